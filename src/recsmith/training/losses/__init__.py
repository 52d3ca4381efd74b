"""Losses of labels as tasks name them (settings.py): one of by_sample.py, or a function of yours (protocol.py).

job/losses.py adds them up.
"""

from recsmith._components import register
from recsmith.training.losses.settings import KIND

__all__ = ["KIND"]

register(KIND, "binary", "recsmith.training.losses.by_sample:binary")
register(KIND, "mse", "recsmith.training.losses.by_sample:mse")
register(KIND, "pairwise", "recsmith.training.losses.by_sample:pairwise")
