"""What each rank does during a step: kernels run, only communication runs, or only the host is busy or waits.

Legend: I intervals of seconds, as (I, 2) arrays of begin and end.
"""

import numpy as np

from recsmith._types import Floats, record
from recsmith.prediction.graph import Kind
from recsmith.prediction.walk import Walk

ROUNDING = 1e-12  # share of a step below which a time is a rounding of sums


@record
class RankAccount:
    """Seconds of a rank's step: step_s = active_s + exposed_comm_s + idle_s.

    active_s: some kernel runs. exposed_comm_s: a collective runs and no kernel does (unoverlapped communication).
    idle_s: neither; the host works on overheads, or waits for other ranks.
    """

    rank: int
    step_s: float
    active_s: float
    exposed_comm_s: float
    idle_s: float


def account(walk: Walk) -> list[RankAccount]:
    """The account of every rank, each over the whole step of the job."""
    whole = walk.step_s
    accounts: list[RankAccount] = []
    for rank, times in enumerate(walk.ranks):
        busy = [
            (times.begin[i], times.end[i]) if event.kind == Kind.RUN else (times.work_begin[i], times.work_end[i])
            for i, event in enumerate(walk.graph.ranks[rank])
            if event.kind in (Kind.RUN, Kind.LAUNCH)
        ]
        comm = [
            (meeting.begin, meeting.end)
            for meeting, made in zip(walk.meetings, walk.graph.collectives, strict=True)
            if rank in made.ranks
        ]
        active, either = covered(_pairs(busy)), covered(_pairs(busy + comm))
        exposed = either - active if either - active > ROUNDING * whole else 0.0
        accounts.append(
            RankAccount(
                rank=rank, step_s=whole, active_s=active, exposed_comm_s=exposed, idle_s=whole - active - exposed
            )
        )
    return accounts


def covered(intervals: Floats) -> float:
    """Seconds that at least one of the intervals (I, 2) covers."""
    if not len(intervals):
        return 0.0
    ordered = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ordered[:, 1])
    before = np.concatenate([[-np.inf], reached[:-1]])
    return float(np.maximum(reached - np.maximum(ordered[:, 0], before), 0.0).sum())


def _pairs(intervals: list[tuple[float, float]]) -> Floats:
    return np.array(intervals, dtype=np.float64).reshape(-1, 2)
