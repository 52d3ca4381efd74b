"""Cost model `analytic`: kernels and collectives from the figures of the device and its links."""
