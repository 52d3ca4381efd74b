"""Learned cost models of fused embedding kernels, trained on compute measurements."""
