"""Local search from one given plan and from no other, for questions that ask about many changes of one job.

A search from scratch mostly finds again what is already known. This one takes a second or two for a thousand tables,
and its plan is no worse than its start. If the plan no longer fits the memory, its tables keep their splits and are
placed anew; without such splits, tables begin in the fewest pieces. No bound is computed, because that takes long when
memory is tight.
"""

from collections.abc import Sequence
from dataclasses import replace

from recsmith.bounds.first import describe_space
from recsmith.bounds.relaxation import Relaxation, shared_relaxation
from recsmith.errors import NoPlanFound
from recsmith.planners.auto.improvement import Improvement, StoppingRule
from recsmith.planners.greedy import COST_GREEDY
from recsmith.planners.protocol import Search, SearchPlanner, Solution
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.placement import place_and_repair
from recsmith.plans import Bound, Placement
from recsmith.problems import footprint_of, in_space

EFFORT = 3_000_000  # numbers worked on: a tenth to a third of what planner auto spends; more gains a few per cent
NO_ROOM = (
    "no room was found for every table as tables are split now; `recsmith plan` also splits them in other ways, "
    "and takes longer"
)
NO_BOUND = "none: it was not asked for"


class WarmSearch(SearchPlanner):
    """Improves a given plan by moving pieces while that pays. effort: how many numbers the search may work on.

    like: placements of all tables, whose splits are used if there is no start.
    """

    name = "warm"
    about = "Local search from a given plan."

    def __init__(self, effort: int = EFFORT, like: Sequence[Placement] = ()) -> None:
        self.effort, self.like = effort, tuple(like)

    def solve(self, search: Search) -> Solution:
        """Return the best plan found; NoPlanFound says only that no plan was made quickly, not that none exists."""
        devices, relaxation = DeviceState(search.evaluator), shared_relaxation(search.evaluator)
        if search.best is None and self.like and in_space(search.problem, self.like):
            self._place_anew(search, devices, relaxation)
            if search.best is None:
                raise NoPlanFound(NO_ROOM)
        if search.best is None:
            quick = COST_GREEDY.plan(search.problem, search.evaluator, seed=search.seed)
            search.try_(quick.footprint, quick.total_s)
        draft = search.best and Assignment.from_footprint(search.problem, search.best)
        if draft is not None:
            stopping = StoppingRule(search, 0.0, len(search.problem.tables) * len(devices.free))
            improvement = Improvement(search, stopping, devices)
            improvement.run([draft], relaxation, limited=True, effort=self.effort)
        none = Bound(value_s=None, kind=NO_BOUND, space=describe_space(search.problem))
        return replace(search.found(self.name), bound=none)

    def _place_anew(self, search: Search, devices: DeviceState, relaxation: Relaxation) -> None:
        """Place the splits of `like` on empty devices, longest first, and repair pieces that find no room."""
        split = Assignment.from_footprint(search.problem, footprint_of(search.problem, self.like))
        if split is None:
            return
        found = place_and_repair(devices, split.option, relaxation.piece_bytes)
        if found.complete:
            search.try_(found.footprint(search.problem))
