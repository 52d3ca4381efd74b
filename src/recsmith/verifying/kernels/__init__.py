"""Verification of plans by their kernels: those of each rank, measured rank after rank on one device of any kind.

The parts that only measure (visits.py, steps.py) serve bench as well. Plans that train as whole TorchRec jobs
are verifying/jobs.
"""
