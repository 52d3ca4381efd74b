"""Local search around the ranks that decide the step: pieces move or are swapped, tables are placed again.

Every change keeps legality and memory and lowers a smooth stand-in of the step (smooth_max.py). Three kinds are tried,
the next where the one before finds nothing: a piece of a slowest rank moves or is swapped for another (piece_moves.py);
a table of a slowest rank is taken out and placed again by the best of all its options; several tables, some of a
slowest rank and some not, are taken out and placed again one after the other, in many copies of the plan side by side
(table_changes.py).
"""

import numpy as np

from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.current_plan import CurrentPlan
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.piece_moves import move_or_swap
from recsmith.planners.search.plan_copies import PlanCopies
from recsmith.planners.search.table_changes import replace_several, replace_table
from recsmith.planners.search.table_options import TableOptions

SHARPNESS = (24, 96, 384)  # powers of the loads whose sum is lowered, in turn: blunt ones see all slow ranks, not one


class LocalSearch:
    """A plan under improvement, change by change. sharpness: of the smoothed maximum; set it between rounds."""

    def __init__(self, devices: DeviceState, relaxation: Relaxation, draft: Assignment, seed: int = 0) -> None:
        self.devices = devices
        self.copies = PlanCopies.of(devices, draft)
        self.options = TableOptions(relaxation)
        self.random = np.random.default_rng(seed)
        self.sharpness = SHARPNESS[0]

    def assignment(self) -> Assignment:
        """The plan: all tables' pieces, in order of tables."""
        return self.copies.assignment(0)

    @property
    def total(self) -> float:
        """Seconds of the step as it now is."""
        return float(self.copies.totals()[0])

    def round(self, *, several: bool) -> bool:
        """One change for the better; False where none was found. several: also take several tables out at once."""
        plan = CurrentPlan.of(self.devices, self.copies, self.sharpness)
        worst = plan.slowest_ranks()
        if any(move_or_swap(plan, rank) for rank in worst):
            return True
        if any(replace_table(plan, self.options, rank) for rank in worst):
            return True
        better = replace_several(plan, self.options, worst, self.random) if several else None
        if better is not None:
            self.copies = better
        return better is not None
