"""What the fusion groups that a plan uses cost the slowest rank at least, before any piece is priced.

Every rank pays the latencies of each group in use, and the opening (the launches) of each group that spans the world.
If a plan uses any other group, some rank pays one more opening.

Legend: G fusion groups.
"""

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.costs.protocol import Evaluator
from recsmith.sharding import Span


class GroupCosts:
    """Seconds that a set of fusion groups costs, whatever they hold.

    worldwide (G,): groups whose pieces span the world. fixed (G,): seconds that each group in use costs every rank.
    """

    def __init__(self, evaluator: Evaluator, opening: float) -> None:
        """opening: the least seconds that a rank pays for holding a piece of a group."""
        self.opening = opening
        self.worldwide: Bools = np.zeros(evaluator.groups, dtype=bool)
        self.worldwide[evaluator.group[evaluator.problem.modes.span == Span.WORLD]] = True
        self.fixed = evaluator.shared.sum(axis=1) + np.where(self.worldwide, opening, 0.0)

    def certain(self, paid: Bools) -> float:
        """Seconds that these groups (G,) cost the slowest rank at least, before any piece."""
        return float(self.fixed[paid].sum()) + (self.opening if self._any_local(paid) else 0.0)

    def added(self, paid: Bools) -> Floats:
        """Seconds (G,) that each group would add to `certain`, beside those that are paid."""
        return self.fixed + np.where(self.worldwide | self._any_local(paid), 0.0, self.opening)

    def _any_local(self, groups: Bools) -> bool:
        return bool((groups & ~self.worldwide).any())
