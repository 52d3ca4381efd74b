"""Learned models of single kernels, which predict steps."""
