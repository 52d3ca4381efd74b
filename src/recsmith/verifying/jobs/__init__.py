"""Verification of plans by jobs: each plan trains in a real TorchRec job on this CPU, all ranks at once.

It says whether a plan runs and takes the memory that was predicted. How fast kernels are is verifying/kernels.
"""
