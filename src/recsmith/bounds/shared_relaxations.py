"""Relaxations that several members of a search ask for: each is built once for an evaluator and kept with it."""

from typing import Any

import numpy as np

from recsmith.bounds.relaxation import Relaxation
from recsmith.bounds.selection import LinearBound
from recsmith.costs.protocol import Evaluator

KEPT_AS = "_shared_relaxations"  # the entry of the evaluator's own dictionary, so that they live as long as it does


def shared_relaxation(evaluator: Evaluator, linear: LinearBound | None = None, *, barred: bool = False) -> Relaxation:
    """Relaxation(evaluator, linear=linear, barred=barred), built at the first call; not to be changed by its users.

    A linear bound is known again by identity, not by value.
    """
    kept: dict[int | None, Relaxation] = _dictionary_of(evaluator).setdefault(KEPT_AS, {})
    key = None if linear is None else id(linear)  # the relaxation keeps the bound alive, so no other gets its id
    if key not in kept:
        kept[key] = Relaxation(evaluator, linear=linear)
    return kept[key].reopened(np.zeros_like(evaluator.problem.options.barred)) if barred else kept[key]


def _dictionary_of(evaluator: Evaluator) -> dict[str, Any]:
    """Where an evaluator's attributes are; an evaluator with slots has none, and then nothing is kept."""
    return getattr(evaluator, "__dict__", {})
