"""Models of single kernels: seconds of a kernel of a kind and a shape, learned from measured ones."""
