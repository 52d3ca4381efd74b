"""Relaxations that several members of a search ask for: each is built once for an evaluator."""

import numpy as np

from recsmith.bounds.per_evaluator import kept_for
from recsmith.bounds.relaxation import Relaxation
from recsmith.bounds.selection import LinearBound
from recsmith.costs.protocol import Evaluator


def shared_relaxation(evaluator: Evaluator, linear: LinearBound | None = None, *, barred: bool = False) -> Relaxation:
    """Relaxation(evaluator, linear=linear, barred=barred), built at the first call; not to be changed by its users.

    A linear bound is recognised by identity, not by value.
    """
    key = "relaxation", None if linear is None else id(linear)  # the relaxation keeps the bound alive, and so its id
    relaxation = kept_for(evaluator, key, lambda: Relaxation(evaluator, linear=linear))
    return relaxation.reopened(np.zeros_like(evaluator.problem.options.barred)) if barred else relaxation
