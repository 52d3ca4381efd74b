"""The default planner: let every table choose freely below a limit, then place what they chose, longest first.

The bound tells the limit z that no plan can go below, and which fusion groups plans near it use (a menu). For a menu, a
limit a little above the bound, and a price on memory where memory is short, every table picks its cheapest option
(costs/relaxation.py); longest-first placement then turns the picks into a plan. Pieces are small next to z, so the plan
lands close to the bound.
"""

import sys
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
SHAKES = 6  # and two a table: rounds in a row that find nothing before the search ends
EFFORT, EFFORT_PER_CELL = 80_000_000, 200  # numbers worked on by local search, more for each piece and device
LEAST_DRAFTS, MOST_DRAFTS, DRAFT_WORK = 14, 100, 40_000  # drafts: DRAFT_WORK over the number of tables
SCARCE = 0.5  # share of all memory that picks take, from which on bytes are balanced as well as seconds
WEIGHTS = (1.0, 0.5, 0.25)  # of a device's memory: most bytes of a piece
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
    """Local search from a draft: until nothing helps, or the effort is spent; with a budget, until that is."""
    local, limited = LocalSearch(ledger, relaxation, draft, seed), search.budget == Budget()
    effort = EFFORT + EFFORT_PER_CELL * len(draft.piece) * len(ledger.free)
    patience = most = SHAKES + 2 * len(draft.option) if limited else sys.maxsize
    for _ in range(max(LEAST_ROUNDS, min(MOST_ROUNDS, WORK // len(draft.piece))) if limited else sys.maxsize):
        better = local.round(shake=local.total > bound * (1 + CLOSE_ENOUGH))
        patience = min(most, SHAKES + 2 * len(draft.option)) if better else patience - 1
        if better and local.total < search.total_s:
            search.try_(local.assignment().footprint(ledger.problem))
        shaken = better or local.total > bound * (1 + CLOSE_ENOUGH)
        if patience <= 0 or not shaken or (limited and ledger.effort > effort) or _rests(search, bound):
            break


def _choices(relaxation: Relaxation, leads: tuple[Terms, ...]) -> Iterator[Choice]:
    """What tables pick under the terms of each lead, its limits loosened and tightened; no pick set twice."""
    room = float(relaxation.problem.capacity.sum())
    seen: set[bytes] = set()
    pairs = sorted((i + j, j, i) for i in range(len(LIMITS)) for j in range(len(leads)))  # both loosen step by step
    for _, j, i in pairs:
        loose = replace(leads[j], limit=leads[j].limit * LIMITS[i], local=leads[j].local * LIMITS[i])
        for choice in _priced(relaxation, loose, room):
            key = choice.option.tobytes()
            if key not in seen and (choice.option != NO_PIECE).all():
                seen.add(key)
                yield choice


def _priced(relaxation: Relaxation, terms: Terms, room: float) -> Iterator[Choice]:
    """What tables pick at prices at which it fits; where memory is scarce, also without pieces that nearly fill a device."""
    for share in WEIGHTS:
        light = replace(terms, weight=share * float(relaxation.problem.capacity.max()))
        price = fitting_price(lambda p, t=light: _below(relaxation, replace(t, price=p)), room)
        for scale in PRICES if price > 0 else (0.0,):
            choice = _below(relaxation, replace(light, price=price * scale))
            yield choice
            if choice.bytes.sum() < SCARCE * room:
                return


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
    scarce = choice.bytes.sum() >= SCARCE * float(problem.capacity.sum())
    best, least = None, np.inf
    level = max(float(choice.seconds.sum()) / len(ledger.free), 1e-300)
    share, load = problem.pieces.tail.device / float(problem.capacity.max()), ledger.seconds / level
    for order, crowding in ((seconds, 0.0), (np.maximum(load, share), 1.0), (load + 0.8 * share, 0.8), (weight, 1.0)):
        ledger.clear()
        ledger.crowding = crowding
        assignment = Assignment.of(problem, choice.option)
        place_longest_first(ledger, assignment, order)
        repair(ledger, assignment)
        ledger.crowding = 0.0
        if assignment.complete and ledger.total < least:
            best, least = assignment, ledger.total
        if best is not None and not scarce:
            break
    return best
