"""Measurements of fused embedding kernels: which cases, which visits of them, and what a folder of them says."""
