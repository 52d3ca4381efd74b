"""Verification of plans: measurements on a machine, compared with the predictions.

kernels   the kernels of every rank, one after the other, on a CPU or GPU: is the plan as fast as predicted? jobs      a
whole TorchRec job on this CPU, all ranks at once: does the plan run, in the predicted memory?
"""
