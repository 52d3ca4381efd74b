"""The default planner: let every table choose freely below a limit, then place what they chose, longest first.

The bound tells the limit z that no plan can go below, and which fusion groups plans near it use (a menu). For a menu, a
limit a little above the bound, and a price on memory where memory is short, every table picks its cheapest option
(costs/relaxation.py); longest-first placement then turns the picks into a plan. Pieces are small next to z, so the plan
lands close to the bound.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from recsmith.costs import Evaluator, Outlook, Terms
from recsmith.costs.relaxation import Choice, Relaxation, fitting_price
from recsmith.errors import NoPlanFound
from recsmith.planners._assignment import Assignment, place_longest_first, repair
from recsmith.planners._base import Budget, OnImprove, Search, Solution
from recsmith.planners._improve import LocalSearch
from recsmith.planners._ledger import Ledger
from recsmith.planners.greedy import place_simplest
from recsmith.problems import NO_PIECE, Footprint, Problem

LIMITS = (1.0, 0.95, 0.85, 0.7, 0.5, 1.001, 1.01, 1.03, 1.1, 1.3, 2.0, np.inf)  # over the bound
PRICES = (1.0, 1.25, 2.0, 8.0)  # over the price at which the picks just fit all devices together
LEAST_ROUNDS, MOST_ROUNDS, WORK = 20, 2000, 1_000_000  # rounds of local search: WORK over the number of pieces
LEAST_SHAKES, MOST_SHAKES, SHAKE_WORK = 6, 40, 2_000_000  # rounds in a row that find nothing before the search ends
LEAST_DRAFTS, MOST_DRAFTS, DRAFT_WORK = 14, 100, 40_000  # drafts: DRAFT_WORK over the number of tables
ROUNDS = 6  # of lowering the limit by what whole-world pieces put on every rank
CLOSE_ENOUGH = 1e-3  # relative gap below which only the quick changes are tried
GOOD_ENOUGH = 1e-5  # relative gap at which the search rests


class Auto:
    """Near-optimal plans in milliseconds; a memory-minded variant of each try where memory is tight."""

    name = "auto"

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
        """The best of some tens of placements; NoPlanFound where none is complete."""
        search = Search(evaluator, budget, start, on_improve)
        outlook = evaluator.outlook
        ledger, relaxation = Ledger(evaluator), Relaxation(evaluator, floor=outlook.floor)
        bound = outlook.bound.value_s or 0.0
        with search.interruptible():
            draft = _best_draft(search, ledger, relaxation, outlook)
            if draft is not None and not _rests(search, bound):
                _improve(search, ledger, relaxation, draft, bound, seed)
        solution = search.solution()
        if solution is None:
            raise NoPlanFound(
                "no plan was found, and none was proved impossible: memory is tight; "
                "allow more types or widths any, reserve less, or add devices"
            )
        return solution


def _rests(search: Search, bound: float) -> bool:
    return search.stop or search.total_s <= bound * (1 + GOOD_ENOUGH)


def _best_draft(search: Search, ledger: Ledger, relaxation: Relaxation, outlook: Outlook) -> Assignment | None:
    """The best of what tables pick, placed longest first; as few pieces as possible where no pick finds room."""
    best: Assignment | None = None
    bound = outlook.bound.value_s or 0.0
    most = max(LEAST_DRAFTS, min(MOST_DRAFTS, DRAFT_WORK // len(ledger.problem.tables)))
    for choice in islice(_choices(relaxation, outlook.leads), most):
        before = search.total_s
        draft = _placed(ledger, relaxation, choice)
        search.try_(draft.footprint(ledger.problem) if draft else None)
        best = draft if search.total_s < before else best
        if _rests(search, bound):
            break
    if best is None:
        best = place_simplest(ledger, relaxation)
        search.try_(best.footprint(ledger.problem) if best else None)
    return best


def _improve(
    search: Search, ledger: Ledger, relaxation: Relaxation, draft: Assignment, bound: float, seed: int
) -> None:
    """Local search from a draft, for a number of rounds that falls with the number of pieces."""
    rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, WORK // len(draft.piece)))
    most = min(MOST_SHAKES, LEAST_SHAKES + 2 * len(draft.option))
    shakes = min(most, SHAKE_WORK // (len(draft.piece) * ledger.loads.shape[1]))
    local = LocalSearch(ledger, relaxation, draft, seed)
    patience = shakes
    for _ in range(rounds):
        better = local.round(shake=patience > 0 and local.total > bound * (1 + CLOSE_ENOUGH))
        patience = shakes if better else patience - 1
        if better and local.total < search.total_s:
            search.try_(local.assignment().footprint(ledger.problem))
        if (not better and patience <= 0) or _rests(search, bound):
            break


def _choices(relaxation: Relaxation, leads: tuple[Terms, ...]) -> Iterator[Choice]:
    """What tables pick under the terms of each lead, its limits loosened and tightened; no pick set twice."""
    room = float(relaxation.problem.capacity.sum())
    seen: set[bytes] = set()
    pairs = sorted((i + j, j, i) for i in range(len(LIMITS)) for j in range(len(leads)))  # both loosen step by step
    for _, j, i in pairs:
        terms = replace(leads[j], limit=leads[j].limit * LIMITS[i], local=leads[j].local * LIMITS[i])
        price = fitting_price(lambda p, t=terms: _below(relaxation, replace(t, price=p)), room)
        for scale in PRICES if price > 0 else (0.0,):
            choice = _below(relaxation, replace(terms, price=price * scale))
            key = choice.option.tobytes()
            if key not in seen and (choice.option != NO_PIECE).all():
                seen.add(key)
                yield choice


def _below(relaxation: Relaxation, terms: Terms) -> Choice:
    """What tables pick so that a piece of one rank still fits under the limit on top of what every rank carries."""
    choice = relaxation.choose(terms)
    for _ in range(ROUNDS if terms.limit < np.inf else 0):
        everywhere = float(relaxation.option_everywhere[choice.option[choice.option != NO_PIECE]].sum())
        closer = relaxation.choose(replace(terms, local=min(terms.local, terms.limit - everywhere)))
        if (closer.option == NO_PIECE).any() or (closer.option == choice.option).all():
            break
        choice = closer
    return choice


def _placed(ledger: Ledger, relaxation: Relaxation, choice: Choice) -> Assignment | None:
    """The picks placed by seconds or, if that leaves pieces without room, by seconds and bytes; repaired at last."""
    problem = ledger.problem
    first = problem.options.piece[choice.option, 0]  # the orders are scaled by the chosen options' first pieces
    seconds = ledger.seconds / max(float(ledger.seconds[first].mean()), 1e-300)
    weight = relaxation.piece_bytes / max(float(relaxation.piece_bytes[first].mean()), 1e-300)
    for order in (seconds, seconds + weight, weight):
        ledger.clear()
        assignment = Assignment.of(problem, choice.option)
        place_longest_first(ledger, assignment, order)
        repair(ledger, assignment)
        if assignment.complete:
            return assignment
    return None
