"""Plans that break a constraint are mended: the tables that break one are placed again, all others stay.

Most of a search keeps constraints as it goes. What does not, such as a network that places pieces one after the other
without asking which tables are apart, is put right here, so that every planner keeps every constraint.

Legend: T tables.
"""

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.fewest_pieces import fewest_pieces_options
from recsmith.planners.search.placement import place_longest_first
from recsmith.planners.search.repair import repair
from recsmith.problems import NO_PIECE, Footprint, Problem
from recsmith.problems.footprint import ordered_footprint


def mended(evaluator: Evaluator, footprint: Footprint) -> Footprint | None:
    """A plan near this one that keeps the constraints; None where none was found."""
    draft = mended_draft(evaluator, footprint)
    return draft.footprint(evaluator.problem) if draft else None


def mended_draft(evaluator: Evaluator, footprint: Footprint) -> Assignment | None:
    """The same as an assignment; tables that are split otherwise than by any option are placed again as well."""
    problem = evaluator.problem
    legality, relaxation = problem.legality, shared_relaxation(evaluator)
    simplest = fewest_pieces_options(relaxation)
    if not relaxation.option_fits[simplest].all():
        return None
    known = Assignment.options_of(problem, footprint)
    broken = legality.broken(footprint) | (known == NO_PIECE)
    allowed = np.where(known == NO_PIECE, False, relaxation.option_fits[known])
    for choice in (np.where(broken & ~allowed, simplest, known), np.where(broken, simplest, known)):
        draft = _placed_again(evaluator, footprint, choice, broken)
        if draft is not None and legality.holds(draft.footprint(problem)):
            return draft
    return None


def _placed_again(evaluator: Evaluator, footprint: Footprint, choice: Ints, broken: Bools) -> Assignment | None:
    """The options (T,) with the pieces of broken tables (T,) placed anew; None where one finds no room."""
    problem, devices = evaluator.problem, DeviceState(evaluator)
    draft = Assignment.of(problem, choice)
    kept = ~broken[problem.modes.table[footprint.mode]]
    draft.target[~broken[draft.table]] = _in_order(problem, footprint, kept)
    for piece, target in zip(draft.piece.tolist(), draft.target.tolist(), strict=True):
        if target != NOWHERE:
            devices.place(piece, target)
    lost = np.flatnonzero(draft.target == NOWHERE)
    part = Assignment(draft.option, draft.table[lost], draft.piece[lost], draft.target[lost])
    place_longest_first(devices, part, devices.seconds)
    draft.target[lost] = part.target
    repair(devices, draft)
    return draft if draft.complete else None


def _in_order(problem: Problem, footprint: Footprint, kept: Bools) -> Ints:
    """The targets of kept pieces (N,), in the order of assignments."""
    return ordered_footprint(problem, footprint.mode[kept], footprint.width[kept], footprint.target[kept]).target
