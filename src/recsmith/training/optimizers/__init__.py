"""Optimizers: of dense layers (protocol.py), of tables, and schedules of their learning rates.

settings.py is the run's section on them; building.py makes them for a sharded model.
"""

KIND = "optimizer"  # kind of the registered optimizers of dense layers, in addition to torch.optim's
AUTO = "auto"  # an optimizer name that is decided before layers are trained
