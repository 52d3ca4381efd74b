"""Cost models `neural:<name>`: kernels as a network learned them from measurements."""
