"""Local search in planner auto: from which plans, with how much effort, and when the whole plan is priced."""

from collections.abc import Sequence
from itertools import cycle

from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.auto.stopping import StoppingRule
from recsmith.planners.protocol import Search
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.local_search import SHARPNESS, LocalSearch

IDLE_ROUNDS = 6  # and one a table: rounds in a row that find nothing before a descent ends
# Numbers worked on, a clock that runs alike on every machine: at least, for each piece and device of small problems, at
# most, and for each piece and device of any; the last, up to the same most, is added to the others.
LEAST_EFFORT, SMALL_EFFORT, MOST_EFFORT, LARGE_EFFORT = 2_000_000, 60_000, 15_000_000, 200
GAINS = 20  # between two pricings of the whole plan of a large problem, which take as long as some rounds


class Improvement:
    """Local search from one draft after the other, with one sharpness of the smoothed maximum after the other."""

    def __init__(self, search: Search, stopping: StoppingRule, devices: DeviceState, seed: int) -> None:
        self.search, self.stopping, self.devices, self.seed = search, stopping, devices, seed

    def run(self, drafts: Sequence[Assignment], relaxation: Relaxation, *, limited: bool) -> None:
        """Improve drafts; limited: until an effort is spent that they share, otherwise until the budget is spent."""
        before = self.devices.effort
        for number, draft in enumerate(drafts):
            local = LocalSearch(self.devices, relaxation, draft, self.seed)
            limit = before + self._effort(draft) * (number + 1) // len(drafts) if limited else None
            for sharpness in SHARPNESS if limited else cycle(SHARPNESS):
                local.sharpness = sharpness
                if not self._descend(local, limit):
                    break
            if self.stopping.reached:
                break

    def _effort(self, draft: Assignment) -> int:
        """Numbers that local search from a draft may work on."""
        cells = len(draft.piece) * len(self.devices.free)
        return min(MOST_EFFORT, LEAST_EFFORT + SMALL_EFFORT * cells) + min(MOST_EFFORT, LARGE_EFFORT * cells)

    def _descend(self, local: LocalSearch, limit: int | None) -> bool:
        """Rounds until many in a row find nothing; False where the search is to end."""
        most = IDLE_ROUNDS + len(self.devices.problem.tables)
        patience, gains = most, 0
        while patience > 0 and not self.stopping.reached:
            several = not self.stopping.near_bound(local.total)
            better = local.round(several=several)
            patience = most if better else patience - 1 if several else 0
            gains += better and local.total < self.search.total_s
            if gains >= (GAINS if self.stopping.is_large else 1) or (gains and not patience):
                self._try(local)
                gains = 0
            elif limit is None:
                self.search.try_(None)  # a round counts against a budget whether or not it finds something
            if limit is not None and self.devices.effort > limit:
                break
        if gains:
            self._try(local)
        spent = limit is not None and self.devices.effort > limit
        return not spent and not self.stopping.reached and not self.stopping.near_bound(local.total)

    def _try(self, local: LocalSearch) -> None:
        self.search.try_(local.assignment().footprint(self.devices.problem))
