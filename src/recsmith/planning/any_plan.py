"""Whether any plan keeps all constraints: one that does, the proof that there is none, or neither.

Tables are placed in as few pieces as fit, the heaviest first; where that fails and the case is small, every way to
place the tables is followed (solver/enumeration.py), or CP-SAT decides where OR-Tools is installed. Packing is hard, so
of larger cases it may stay open. Cost plays no part.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.planners.search.candidates import light_candidates
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.fewest_pieces import place_and_repair, place_in_fewest_pieces
from recsmith.planners.search.mending import mended
from recsmith.planners.solver import is_installed
from recsmith.planners.solver.arrangements import arrangements_of
from recsmith.planners.solver.enumeration import Enumeration
from recsmith.planners.solver.layouts import Shares, all_shares, choices_of
from recsmith.planning.remedies import LIGHTEST, weightless, weights
from recsmith.problems import Footprint, Problem, fits

MOST_ARRANGEMENTS, NODES = 20_000, 20_000  # of an enumeration: of all tables, and partial plans followed; some seconds
MOST_TABLES = 12  # of an enumeration
MOST_CHOICES, UNITS = 60_000, 10.0  # of CP-SAT: widths of all tables times devices, and about seconds of work
DRAWS, SEED = 40, 0  # of light options by chance


@dataclass(frozen=True)
class Verdict:
    """plan: one that keeps all constraints, where one was found. answer: 'some', 'none' (proved) or 'open'."""

    answer: Literal["some", "none", "open"]
    plan: Footprint | None = None


def any_plan(problem: Problem) -> Verdict:
    """Whether a problem has a plan that keeps its constraints and fits the memory."""
    evaluator = weightless(problem)
    if _is_hopeless(evaluator):
        return Verdict("none")
    quick = _quick_plan(evaluator)
    if quick is not None:
        return Verdict("some", quick)
    if choices_of(problem) > MOST_CHOICES:
        return Verdict("open")
    shares = all_shares(evaluator)
    if len(problem.tables) <= MOST_TABLES:
        verdict = _enumerated(evaluator, shares)
        if verdict.answer != "open":
            return verdict
    return _solved(evaluator, shares) if is_installed() else Verdict("open")


def _is_hopeless(evaluator: Evaluator) -> bool:
    """Whether some table fits no device, all weigh more than all devices, or constraints leave them too few places."""
    problem = evaluator.problem
    if not problem.legality.has_places:
        return True
    light = shared_relaxation(evaluator, barred=True).choose(LIGHTEST)
    if np.isfinite(light.seconds).all() and light.bytes.sum() <= problem.capacity.sum():
        return False
    least = weights(problem).per_table(LIGHTEST)
    return not np.isfinite(least.value).all() or bool(least.bytes.sum() > problem.capacity.sum())


def _quick_plan(evaluator: Evaluator) -> Footprint | None:
    problem, relaxation = evaluator.problem, shared_relaxation(evaluator)
    if not np.logical_or.reduceat(relaxation.option_fits, problem.options.start[:-1]).all():
        return None
    devices = DeviceState(evaluator, relaxation.piece_bytes)
    drafts = [place_in_fewest_pieces(devices, relaxation)]
    drafts.append(place_and_repair(devices, relaxation.choose(SelectionLimits()).option, relaxation.piece_bytes))
    draws = light_candidates(relaxation, SEED)
    for _ in range(DRAWS):
        for draft in drafts:
            if draft is not None and draft.complete:
                found = draft.footprint(problem)
                found = found if problem.legality.holds(found) else mended(evaluator, found)
                if found is not None and fits(problem, found):
                    return found
        drafts = [place_and_repair(devices, next(draws).option, relaxation.piece_bytes)]
    return None


def _enumerated(evaluator: Evaluator, shares: Shares) -> Verdict:
    """Every way to place the tables, as far as a number of partial plans goes."""
    arrangements = arrangements_of(evaluator.problem, shares, MOST_ARRANGEMENTS)
    if arrangements is None:
        return Verdict("open")
    if any(not len(each.group) for each in arrangements):
        return Verdict("none")
    heard: list[Footprint] = []
    tree = Enumeration(evaluator, shares, arrangements, np.inf, monotone=False)
    tree.run(NODES, lambda found: bool(heard.append(found)) or True)
    if heard:
        return Verdict("some", heard[0])
    return Verdict("open" if tree.open else "none")


def _solved(evaluator: Evaluator, shares: Shares) -> Verdict:
    """What CP-SAT finds; that there is no plan is believed if it says so with and without its presolve."""
    from recsmith.planners.solver.cp_sat import solve
    from recsmith.planners.solver.cp_sat_model import SpaceModel
    from recsmith.planners.solver.linear_pieces import LinearPieces

    nothing = LinearPieces((), np.zeros(0))
    space = SpaceModel(evaluator, shares, nothing)
    for settings in ({}, {"cp_model_presolve": False}):
        run = solve(space, {**settings, "max_deterministic_time": UNITS}, lambda _: True)
        if run.best is not None:
            return Verdict("some", run.best)
        if not run.impossible:
            return Verdict("open")
    return Verdict("none")
