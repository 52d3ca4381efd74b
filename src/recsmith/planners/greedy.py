"""Longest-first greedy: one algorithm that can balance several costs.

The scores are those of the NeuroShard and AutoShard baselines (neuroshard/sharders.py: dim, size, dim * pooling
factor, and that times log10(rows)); cost_greedy balances the seconds that the cost model predicts. A table that fits
on a device stays whole; any other table is split no further than needed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.elementary import log10
from recsmith.planners.protocol import Search, SearchPlanner, Solution
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.placement import place_in_fewest_pieces
from recsmith.problems import Footprint, Problem

Score = Callable[[Problem], Floats]


def _dim(problem: Problem) -> Floats:
    return problem.pieces.width.astype(float)


def _size(problem: Problem) -> Floats:
    return (problem.pieces.width * problem.modes.head_rows[problem.pieces.mode]).astype(float)


def _lookup(problem: Problem) -> Floats:
    return problem.pieces.width * problem.modes.ids[problem.pieces.mode]


def _size_lookup(problem: Problem) -> Floats:
    rows = problem.demand.rows[problem.modes.table[problem.pieces.mode]]
    return _lookup(problem) * log10(np.maximum(rows, 1))


def _random(seed: int) -> Score:
    return lambda problem: np.random.default_rng(seed).random(len(problem.pieces.mode))


def place_by_score(evaluator: Evaluator, score: Floats | None = None) -> Footprint | None:
    """Place pieces in falling score, each on the device with room that has the least sum of scores.

    Returns None if some piece finds no room.

    score: one number for each of `problem.pieces` (P,), 0 or more; None: the seconds of the cost model.
    """
    assignment = place_in_fewest_pieces(DeviceState(evaluator, score), shared_relaxation(evaluator))
    return assignment.footprint(evaluator.problem) if assignment else None


@dataclass(frozen=True)
class Greedy(SearchPlanner):
    """Places pieces in falling score, each on the device with room that has the least sum of scores.

    about: what it balances, as a sentence for a list of planners.
    """

    name: str
    score: Score | None
    about: str = ""

    def solve(self, search: Search) -> Solution:
        """Make one placement; raises NoPlanFound if some tables find no room."""
        score = _random(search.seed) if self.name == "random" else self.score
        search.try_(place_by_score(search.evaluator, score(search.problem) if score else None))
        return search.found(self.name)


RANDOM = Greedy("random", None, "Random baseline: longest-first greedy on random scores.")
DIM_GREEDY = Greedy("dim_greedy", _dim, "Longest-first greedy that balances embedding dimensions.")
SIZE_GREEDY = Greedy("size_greedy", _size, "Longest-first greedy that balances bytes.")
LOOKUP_GREEDY = Greedy("lookup_greedy", _lookup, "Longest-first greedy that balances dimension times lookups.")
SIZE_LOOKUP_GREEDY = Greedy("size_lookup_greedy", _size_lookup, "Longest-first greedy that balances lookups and sizes.")
COST_GREEDY = Greedy("cost_greedy", None, "Longest-first greedy that balances what the cost model says.")
GREEDIES = (RANDOM, DIM_GREEDY, SIZE_GREEDY, LOOKUP_GREEDY, SIZE_LOOKUP_GREEDY, COST_GREEDY)
