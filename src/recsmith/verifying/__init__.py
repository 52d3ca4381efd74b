"""Predictions held against this machine: kernels one by one, and whole TorchRec jobs."""
