"""Optimizers: of dense layers (protocol.py), of tables, and how their learning rates change.

settings.py is what a run says of them; building.py makes them for a sharded model.
"""

from recsmith._components import register

KIND = "optimizer"  # of dense layers, beside those of torch.optim
IN_HALVES = ("split", "master")  # those whose layers are bf16
register(KIND, "split", "recsmith.training.optimizers.split:SplitOptimizer")
register(KIND, "master", "recsmith.training.optimizers.split:MasterOptimizer")
register(KIND, "shampoo", "recsmith.training.optimizers.shampoo:ShampooOptimizer")
