"""Longest-first greedy: one algorithm, several costs to balance.

The scores are those of the NeuroShard and AutoShard baselines (neuroshard/sharders.py: dim, size, dim * pooling
factor, and that times log10(rows)); cost_greedy balances what the cost model itself says. Tables stay whole
where a device can hold them and are split no further than needed where none can.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.bounds.relaxation import DEAREST, Relaxation, fitting_price
from recsmith.bounds.selection import SelectionLimits
from recsmith.costs import Evaluator
from recsmith.errors import NoPlanFound
from recsmith.planners.protocol import Budget, OnImprove, Search, Solution
from recsmith.planners.search.assignment import NOWHERE, Assignment, place_longest_first, repair
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import NO_PIECE, Footprint, Problem

Score = Callable[[Problem], Floats]

PRICES = (1.0, 1.25, 2.0, 8.0)  # over the price at which what tables pick just fits all devices together
FEWEST_ROUNDS = 32  # of splitting tables that found no room, however few tables there are


def _dim(problem: Problem) -> Floats:
    return problem.pieces.width.astype(float)


def _size(problem: Problem) -> Floats:
    return (problem.pieces.width * problem.modes.head_rows[problem.pieces.mode]).astype(float)


def _lookup(problem: Problem) -> Floats:
    return problem.pieces.width * problem.modes.ids[problem.pieces.mode]


def _size_lookup(problem: Problem) -> Floats:
    rows = problem.demand.rows[problem.modes.table[problem.pieces.mode]]
    return _lookup(problem) * np.log10(np.maximum(rows, 1))


def _random(seed: int) -> Score:
    return lambda problem: np.random.default_rng(seed).random(len(problem.pieces.mode))


@dataclass(frozen=True)
class Greedy:
    """Places pieces in falling score on the device with the least sum of scores that has room."""

    name: str
    score: Score | None

    def plan(
        self,
        problem: Problem,
        evaluator: Evaluator,
        *,
        seed: int = 0,
        budget: Budget | None = None,
        start: Footprint | None = None,
        on_improve: OnImprove | None = None,
    ) -> Solution:
        """One placement; NoPlanFound where tables find no room."""
        search = Search(evaluator, budget, start, on_improve)
        score = _random(seed) if self.name == "random" else self.score
        ledger = DeviceState(evaluator, score(problem) if score else None)
        assignment = place_simplest(ledger, Relaxation(evaluator))
        search.try_(assignment.footprint(problem) if assignment else None)
        solution = search.solution()
        if solution is None:
            raise NoPlanFound(
                f"planner {self.name} found no room for every table; try --planner auto, more types, or more memory"
            )
        return solution


def place_simplest(ledger: DeviceState, relaxation: Relaxation) -> Assignment | None:
    """Every table in as few pieces as fit a device, longest first; tables that find no room are split further.

    Where all tables so laid outweigh all devices, they are laid as they pick at a price on memory, heaviest first.
    """
    choice = simplest_options(relaxation)
    if not relaxation.option_fits[choice].all():
        return None
    room = float(ledger.problem.capacity.sum())
    if relaxation.option_bytes[choice].sum() <= room:
        return _place_splitting(ledger, relaxation, choice, ledger.seconds)
    price = fitting_price(lambda p: relaxation.choose(SelectionLimits(price=p)), room)
    for dear in (*(price * scale for scale in PRICES), DEAREST):
        choice = relaxation.choose(SelectionLimits(price=dear)).option
        assignment = placed_in_order(ledger, choice, relaxation.piece_bytes)
        if assignment.complete:
            return assignment
    fits = relaxation.option_bytes[choice].sum() <= room
    return _place_splitting(ledger, relaxation, choice, relaxation.piece_bytes) if fits else None


def _place_splitting(ledger: DeviceState, relaxation: Relaxation, choice: Ints, order: Floats) -> Assignment | None:
    """The chosen options (T,) in falling order (P,); tables that find no room are split further, round by round."""
    choice = choice.copy()
    for _ in range(max(len(ledger.problem.tables), FEWEST_ROUNDS)):
        assignment = placed_in_order(ledger, choice, order)
        if assignment.complete:
            return assignment
        lost = np.unique(assignment.table[assignment.target == NOWHERE])
        finer = np.array([finer_option(relaxation, int(choice[t])) for t in lost])
        if (finer == NO_PIECE).all():
            return None
        choice[lost] = np.where(finer == NO_PIECE, choice[lost], finer)
    return None


def placed_in_order(ledger: DeviceState, choice: Ints, order: Floats) -> Assignment:
    """The chosen options (T,) in falling order (P,), repaired; some pieces may have found no room."""
    ledger.clear()
    assignment = Assignment.of(ledger.problem, choice)
    place_longest_first(ledger, assignment, order)
    repair(ledger, assignment)
    return assignment


def simplest_options(relaxation: Relaxation) -> Ints:
    """Each table's option (T,) with the fewest pieces among those that fit an empty device."""
    options = relaxation.problem.options
    pieces = np.where(relaxation.option_fits, options.count.sum(axis=1), np.iinfo(np.int64).max)
    order = np.lexsort((np.arange(len(pieces)), pieces, options.table))
    return order[options.start[:-1]]


def finer_option(relaxation: Relaxation, option: int) -> int:
    """The option of the same table with lighter pieces, and the fewest of them; NO_PIECE if there is none."""
    problem = relaxation.problem
    own = np.flatnonzero(problem.options.table == problem.options.table[option])
    finer = own[relaxation.option_fits[own] & (relaxation.option_heaviest[own] < relaxation.option_heaviest[option])]
    return int(finer[problem.options.count[finer].sum(axis=1).argmin()]) if finer.size else NO_PIECE


GREEDIES = (
    Greedy("random", None),
    Greedy("dim_greedy", _dim),
    Greedy("size_greedy", _size),
    Greedy("lookup_greedy", _lookup),
    Greedy("size_lookup_greedy", _size_lookup),
    Greedy("cost_greedy", None),
)
