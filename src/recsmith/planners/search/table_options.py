"""Which options of a table local search tries when it places the table again."""

import numpy as np

from recsmith._types import Ints
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.search.current_plan import CurrentPlan

MOST_PIECES = 64  # of a table that is placed again by itself
FEW_PIECES = 12  # of a table that is placed again together with others
MOST_OPTIONS = 24  # of a table that is placed again together with others: the cheapest
SPARE_PIECES = 4  # more than there are ranks: so many pieces of a table are tried at most


class TableOptions:
    """The options of each table that local search tries; sorted out once for each table and number of pieces."""

    def __init__(self, relaxation: Relaxation) -> None:
        self.relaxation = relaxation
        self._fitting: dict[tuple[int, int], Ints] = {}

    def below_slowest(self, plan: CurrentPlan, table: int) -> Ints:
        """Options whose extra work still fits below the slowest ranks, were all loads level."""
        relaxation, loads = self.relaxation, plan.copies.loads[0]
        own, most = self._fitting_options(table, MOST_PIECES), float(plan.objective.reference.sum())
        level = float(loads.sum()) + relaxation.option_seconds[own]
        return own[(relaxation.option_largest[own] < most) & (level < most * loads.shape[1])]

    def cheapest(self, table: int) -> Ints:
        """The cheapest options of a table in few pieces."""
        own = self._fitting_options(table, FEW_PIECES)
        return own[np.argsort(self.relaxation.option_seconds[own], kind="stable")[:MOST_OPTIONS]]

    def _fitting_options(self, table: int, most: int) -> Ints:
        """The options of a table that fit an empty device, in `most` pieces or in as few as fit."""
        problem = self.relaxation.problem
        most = min(most, len(problem.capacity) + SPARE_PIECES)
        if (table, most) not in self._fitting:
            options = problem.options
            own = np.arange(int(options.start[table]), int(options.start[table + 1]))
            count = options.count[own].sum(axis=1)
            fits = self.relaxation.option_fits[own]
            few = count <= max(most, int(count[fits].min(initial=most)))
            self._fitting[table, most] = own[fits & few]
        return self._fitting[table, most]
