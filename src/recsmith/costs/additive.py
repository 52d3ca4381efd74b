"""The simplest evaluator: every piece costs its rank some seconds, and the seconds of pieces add up.

Legend: N pieces, M modes, G = 1 fusion group, F = 1 phase; the four parts are recsmith.plans.PARTS.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.costs.protocol import Evaluator, Plane
from recsmith.costs.step_rules import LARGEST_SUM, StepRule
from recsmith.plans import PARTS
from recsmith.problems import Problem

Seconds = Callable[[Ints, Ints], Floats]


@dataclass(frozen=True)
class AdditiveEvaluator:
    """An evaluator for which a formula per piece is enough: nothing is fused, shared or launched.

    seconds(modes, widths): the four parts (N, 4), 0 or more, that pieces of these modes (N,) and columns (N,) cost each
    rank they cover. `problem.modes` and `problem.demand` hold what a formula needs. The step takes as long as the rank
    with the largest sum.
    """

    problem: Problem
    seconds: Seconds
    groups: int = 1
    additive: bool = True
    step_rule: StepRule = LARGEST_SUM
    group: Ints = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """All modes (M,) are in one group."""
        object.__setattr__(self, "group", np.zeros(len(self.problem.modes.table), dtype=np.int64))

    @property
    def extrapolated(self) -> dict[str, float]:
        """Empty: a formula is not trained."""
        return {}

    @property
    def shared(self) -> Floats:
        """Zeros: collectives have no latency."""
        return np.zeros((self.groups, len(PARTS)))

    @property
    def planes(self) -> tuple[Plane, ...]:
        """The sum of the parts itself."""
        return (Plane(np.ones((1, len(PARTS))), 0.0),)

    @property
    def lifted(self) -> tuple[tuple[float, Evaluator], ...]:
        """Empty: the plane does not lie below zero."""
        return ()

    def terms(self, modes: Ints, widths: Ints) -> Floats:
        """The formula."""
        return self.seconds(modes, widths)

    def head(self, sums: Floats) -> Floats:
        """The terms are seconds already."""
        return sums

    def loads(self, sums: Floats) -> Floats:
        """The sum of the four parts (1, ...)."""
        return sums.sum(axis=-1)[None]

    def compute(self, sums: Floats) -> Floats:
        """Forward and backward compute."""
        return sums[..., 0] + sums[..., 1]
