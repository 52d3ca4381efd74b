"""Optimizers: of dense layers (protocol.py), of tables, and how their learning rates change.

settings.py is what a run says of them; building.py makes them for a sharded model.
"""

KIND = "optimizer"  # of dense layers, beside those of torch.optim
AUTO = "auto"  # a name that is decided before layers are trained
