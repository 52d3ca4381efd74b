"""Predicts the time of a whole training step from execution graphs: kernels, overheads and the critical path.

    trace files -> graph of every rank -> walk over host threads, streams and collectives -> seconds of the step

Method: Lin et al., Building a Performance Model for Deep Learning Recommendation Model Training on GPUs (HiPC 2022),
and its successor for several GPUs, owensgroup/ml_perf_model. Only capturing.py imports torch.
"""
