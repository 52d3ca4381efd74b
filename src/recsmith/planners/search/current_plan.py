"""The plan that local search improves, as it is at the start of a round, and the score that a change must lower.

Legend: W ranks, N placed pieces, T tables, F phases.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.plan_copies import PlanCopies
from recsmith.planners.search.smooth_max import SmoothMax
from recsmith.sharding import Span
from recsmith.sharding.coverage import covers

LEAST_GAIN = 1e-7  # relative to a slowest rank's load; smaller gains are not worth a change
MOST_PARTNERS = 4096  # pieces of other ranks that a piece may be swapped for; trade-off: more find more, cost more time


@dataclass(frozen=True)
class CurrentPlan:
    """The plan of `copies` (its only one) in one round of local search, and the objective made at its loads.

    powers (W,): what each rank adds to the score at the start of the round; score: their sum.
    """

    devices: DeviceState
    copies: PlanCopies
    pieces: "PlacedPieces"
    objective: SmoothMax
    powers: Floats
    score: float

    @classmethod
    def of(cls, devices: DeviceState, copies: PlanCopies, sharpness: int) -> "CurrentPlan":
        """The plan as it now is, with a smoothed maximum of this sharpness."""
        loads = copies.full_loads()[0]
        objective = SmoothMax.at(loads, sharpness)
        powers = objective.powers(loads)
        return cls(devices, copies, PlacedPieces(devices, copies), objective, powers, float(powers.sum()))

    def slowest_ranks(self) -> list[int]:
        """The rank that adds most to the score, then the slowest rank of each phase; each once."""
        slowest: list[int] = self.copies.full_loads()[0].argmax(axis=1).tolist()
        return list(dict.fromkeys([int(self.powers.argmax()), *slowest]))

    def goal(self, rank: int) -> float:
        """The score that a change for a rank must go below."""
        return self.score - LEAST_GAIN * self.objective.sharpness * float(self.powers[rank])

    def score_now(self) -> float:
        """The score of the plan after the changes that were made to it in this round."""
        return float(self.objective.score(self.copies.full_loads()[0]))

    def tables_on(self, rank: int) -> list[int]:
        """Tables with a piece on a rank, those first that cost it most."""
        pieces, devices = self.pieces, self.devices
        here = np.flatnonzero(covers(pieces.target, devices.coverage[pieces.piece], rank))
        order = here[np.argsort(-devices.seconds[pieces.piece[here]], kind="stable")]
        free = order[~devices.legality.pinned[pieces.table[order]]]
        return list(dict.fromkeys(pieces.table[free].tolist()))


class PlacedPieces:
    """The pieces of a plan (N,), in order of tables: piece, target, table, and device bytes (size).

    start (T,): the number of each table's first piece. movable (N,): whether it may go to any other rank by itself.
    """

    def __init__(self, devices: DeviceState, copies: PlanCopies) -> None:
        targets: list[Ints] = copies.targets[0]
        counts = np.array([some.size for some in targets], dtype=np.int64)
        options = devices.problem.options
        self.piece = np.repeat(options.piece[copies.option[0]].ravel(), options.count[copies.option[0]].ravel())
        self.target = np.concatenate(targets)
        self.table = np.repeat(np.arange(len(targets)), counts)
        self.start = np.cumsum(counts) - counts
        self.size = devices.problem.pieces.tail.device[self.piece]
        tied = devices.tied[copies.option[0]][self.table]
        fixed = tied | devices.legality.pinned[self.table]
        self.movable: Bools = (devices.span[self.piece] == int(Span.RANK)) & ~fixed

    def on_rank(self, rank: int) -> Ints:
        """Movable pieces on a rank."""
        return np.flatnonzero(self.movable & (self.target == rank))

    def partners(self, rank: int, load: Floats) -> Ints:
        """Movable pieces of other ranks; where they are too many, those of the least loaded ranks by load (W,)."""
        others = np.flatnonzero(self.movable & (self.target != rank))
        if len(others) <= MOST_PARTNERS:
            return others
        return np.sort(others[np.argsort(load[self.target[others]], kind="stable")[:MOST_PARTNERS]])
