"""Planner `ldm`: the largest differencing method (Karmarkar and Karp, 1982), for any number of ranks.

Each piece begins as a partition of its own, in which one rank holds the piece and all others hold nothing. Again and
again the two most uneven partitions are merged: the most loaded rank of one with the least loaded rank of the other,
and so on, until one partition is left. The balanced quantity is the seconds of the options that tables select. A piece
that finds no room on its rank is placed where it fits best.

Legend: N pieces of single ranks, W ranks.
"""

import heapq
from itertools import islice

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds import lower_bound
from recsmith.bounds.relaxation import Choice, shared_relaxation
from recsmith.errors import UsageError
from recsmith.planners.protocol import Search, SearchPlanner, Solution
from recsmith.planners.search.candidates import candidates
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState
from recsmith.planners.search.placement import allowed_targets, place_longest_first, repair
from recsmith.sharding import Span

MOST_CANDIDATES = 8  # selections tried; trade-off: more find better plans and take longer; not tuned further
MOST_SIZE = 5_000_000  # tables times ranks: numbers in the lists that are merged, 40 MB


class Ldm(SearchPlanner):
    """Karmarkar and Karp's differencing method, on the options that tables select under the limits of the bound."""

    name = "ldm"
    about = "The largest differencing method (Karmarkar and Karp, 1982)."

    def solve(self, search: Search) -> Solution:
        """Return the best plan of a few selections.

        Raises NoPlanFound if no selection finds room, and UsageError if the problem is so large that merging takes
        long.
        """
        problem, evaluator = search.problem, search.evaluator
        size = len(problem.tables) * problem.cluster.world_size
        if size > MOST_SIZE:
            raise UsageError(
                f"planner ldm merges lists as long as there are ranks, one for each table: {size:,} entries here, more "
                f"than its {MOST_SIZE:,}; use planner auto"
            )
        devices, known = DeviceState(evaluator), lower_bound(evaluator)
        relaxation = shared_relaxation(evaluator, known.linear)
        with search.interruptible():
            for choice in islice(candidates(relaxation, known.promising), MOST_CANDIDATES):
                draft = differenced(devices, choice)
                search.try_(draft.footprint(problem) if draft else None)
                if search.stop:
                    break
        return search.found(self.name, "differencing found no room for some pieces; planner auto looks further")


def differenced(devices: DeviceState, choice: Choice) -> Assignment | None:
    """Place the selected options by differencing; returns None if some piece finds no room."""
    assignment = Assignment.of(devices.problem, choice.option)
    devices.clear()
    single = np.flatnonzero(devices.span[assignment.piece] == Span.RANK)
    wanted = partition(devices.seconds[assignment.piece[single]], len(devices.free))
    others = np.flatnonzero(~np.isin(np.arange(len(assignment.piece)), single))
    _place_shared(devices, assignment, others)
    for i, target in zip(single.tolist(), wanted.tolist(), strict=True):
        piece = int(assignment.piece[i])
        room = devices.fits(piece) & allowed_targets(devices, assignment, i)
        if room[target]:
            devices.place(piece, target)
            assignment.target[i] = target
    repair(devices, assignment)
    return assignment if assignment.complete else None


def _place_shared(devices: DeviceState, assignment: Assignment, others: Ints) -> None:
    """Place the pieces that cover hosts or the world before all others, by longest-first placement."""
    if not others.size:
        return
    part = Assignment(assignment.option, assignment.table[others], assignment.piece[others], assignment.target[others])
    place_longest_first(devices, part, devices.seconds)
    assignment.target[others] = part.target


def partition(weights: Floats, ranks: int) -> Ints:
    """Assign each weight a rank (N,) so that the ranks' sums are nearly equal. Cost: N merges of W sums."""
    heap: list[tuple[float, int, Floats, list[list[int]]]] = []  # spread, number, sums (W,), pieces of each rank
    for i, weight in enumerate(weights.tolist()):
        sums = np.zeros(ranks)
        sums[-1] = weight
        heap.append((-weight, i, sums, [*[[] for _ in range(ranks - 1)], [i]]))
    heapq.heapify(heap)
    while len(heap) > 1:
        (_, number, one, mine), (_, _, other, theirs) = heapq.heappop(heap), heapq.heappop(heap)
        sums = one + other[::-1]
        order: list[int] = np.argsort(sums, kind="stable").tolist()
        merged = [mine[rank] + theirs[ranks - 1 - rank] for rank in order]
        heapq.heappush(heap, (float(sums.min() - sums.max()), number, sums[order], merged))
    target = np.full(len(weights), NOWHERE)
    for rank, pieces in enumerate(heap[0][3] if heap else ()):
        target[pieces] = rank
    return target
