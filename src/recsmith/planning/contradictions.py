"""Constraints that no plan can keep: finds a smallest contradictory set, with lines of the constraints file.

One constraint after the other is left out; if no plan exists without it either, it is not needed for the contradiction
(a deletion filter, Chinneck and Dravnieks, 1991). The remaining constraints contradict each other, but not once any one
of them is left out.

Whether a plan exists: tables are placed in as few pieces as fit, the largest first. If that fails and the case is
small, all placements are enumerated (solver/enumeration.py), or CP-SAT decides if OR-Tools is installed. Packing is
hard, so larger cases may stay undecided. Cost is ignored.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.clusters import Cluster
from recsmith.costs import Evaluator
from recsmith.errors import Infeasible, RecSmithError, UsageError
from recsmith.files import encode
from recsmith.planners.search.candidates import light_candidates
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.placement import mended, place_and_repair, place_in_fewest_pieces
from recsmith.planners.solver import is_installed
from recsmith.planners.solver.enumeration import Enumeration, arrangements_of
from recsmith.planners.solver.layouts import Shares, all_shares, choices_of
from recsmith.planning.feasibility import LIGHTEST, weightless, weights
from recsmith.problems import Apart, Constraints, Footprint, Problem, Space, TableRule, Together, build_problem, fits
from recsmith.problems.constraint_files import line_of
from recsmith.problems.constraints import Part, PerRank
from recsmith.problems.space import NoChoiceLeft
from recsmith.workloads import Workload

SHOWN = 8  # most constraints that a message names
NOT_EVEN = "no plan exists, even without the constraints: the tables do not fit the cluster in this space. Proved"
SHOWN_NAMES = 4  # most tables of a constraint that a message names
# limits of an enumeration: arrangements of all tables, and partial plans; some seconds
MOST_ARRANGEMENTS, NODES = 20_000, 20_000
MOST_TABLES = 12  # most tables of an enumeration
MOST_CHOICES, UNITS = 60_000, 10.0  # limits of CP-SAT: widths of all tables times devices, and about seconds of work
DRAWS, SEED = 40, 0  # random draws of light options


@dataclass(frozen=True)
class Conflict:
    """Constraints that no plan keeps together. open: those without which the existence of a plan was not decided."""

    parts: tuple[Part, ...]
    open: tuple[Part, ...]


@dataclass(frozen=True)
class Question:
    """A workload on a cluster within a space, for which constraints are examined."""

    workload: Workload
    cluster: Cluster
    space: Space | None

    def existence(self, constraints: Constraints) -> "Existence":
        """Whether a plan exists that keeps these constraints."""
        try:
            return any_plan(build_problem(self.workload, self.cluster, self.space, constraints))
        except NoChoiceLeft:
            return Existence("none")
        except UsageError:  # sequences of a collection that share no width
            return Existence("none")

    def refusal(self, constraints: Constraints) -> str:
        """Why a table has no choice left under these constraints; '' if every table has one."""
        try:
            build_problem(self.workload, self.cluster, self.space, constraints)
        except UsageError as error:
            return str(error) if isinstance(error, NoChoiceLeft) else ""
        return ""


def find_conflict(question: Question, constraints: Constraints) -> Conflict | None:
    """A minimal set of constraints that no plan keeps; None if no plan exists even without constraints.

    All constraints together must be known to allow no plan.
    """
    if question.existence(constraints.only(())).answer == "none":
        return None
    kept = list(constraints.parts)
    step = max(1, len(kept) // 2)
    while True:  # long stretches first, so that one conflict among hundreds of pins is found quickly
        first = 0
        while first < len(kept):
            rest = kept[:first] + kept[first + step :]
            if rest and question.existence(constraints.only(tuple(rest))).answer == "none":
                kept = rest
            else:
                first += step
        if step == 1:
            break
        step = max(1, min(step, len(kept)) // 2)
    without = {part: question.existence(constraints.only(tuple(p for p in kept if p != part))) for part in kept}
    return Conflict(tuple(kept), tuple(part for part in kept if without[part].answer == "open"))


def contradiction(question: Question, constraints: Constraints, error: RecSmithError) -> RecSmithError:
    """An error that names a minimal set of constraints which no plan keeps; without constraints, the given error.

    If no plan exists even without constraints, the message says so, unless the given error is already the proof.
    """
    constraints = constraints.matching([table.name for table in question.workload.tables])
    if not constraints.parts:
        return error
    conflict = find_conflict(question, constraints)
    if conflict is None:
        return error if isinstance(error, Infeasible) else Infeasible(NOT_EVEN)
    shown = [_told(constraints, part) for part in conflict.parts[:SHOWN]]
    more = f"; and {len(conflict.parts) - SHOWN} more" if len(conflict.parts) > SHOWN else ""
    listed = "; ".join(shown) + more
    if len(conflict.parts) == 1:
        why = question.refusal(constraints.only(conflict.parts))
        alone = f"no plan keeps this constraint: {listed}. Proved{why and f': {why}'}"
        return Infeasible(f"{alone}; relax it, or check it against the workload, the cluster and the space")
    if conflict.open:
        checked = f"whether the others can be kept without one was not decided for {len(conflict.open)} of them"
    else:
        checked = "checked: without any one of them, the others can be kept"
    return Infeasible(
        f"no plan keeps these {len(conflict.parts)} constraints together: {listed}. Proved; {checked}. Relax one"
    )


def _told(constraints: Constraints, part: Part) -> str:
    """A constraint as a sentence, with its line."""
    name, place = part
    each = constraints.part(part)
    line = line_of(constraints, part)
    where = f"line {line}" if line else f"{name}[{place}]"
    return f"{_words(each)} ({where})"


def _words(each: TableRule | Together | Apart | PerRank) -> str:
    names = ", ".join(f"'{name}'" for name in each.patterns[:SHOWN_NAMES])
    names += f" and {len(each.patterns) - SHOWN_NAMES} more" if len(each.patterns) > SHOWN_NAMES else ""
    if isinstance(each, Together | Apart):
        what = "together" if isinstance(each, Together) else "apart"
        return f"{names} {what}{' per host' if each.per == 'host' else ''}"
    if isinstance(each, PerRank):
        counted = ((each.max_tables, "tables"), (each.max_shards, "shards"))
        limits = " and ".join(f"{most} {what}" for most, what in counted if most is not None)
        return f"at most {limits} a rank of {names}"
    fields = {key: value for key, value in encode(each).items() if key not in ("tables", "optional")}
    said = ", ".join(f"{key} {_value(value)}" for key, value in fields.items())
    return f"{names} {said}"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "to " + ", ".join(f"{key} {_value(each)}" for key, each in value.items())  # pyright: ignore
    return "[" + ", ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)  # pyright: ignore


# --- whether any plan exists ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Existence:
    """Whether a plan exists. plan: one that keeps all constraints, or None. answer: 'some', 'none' (proved), 'open'."""

    answer: Literal["some", "none", "open"]
    plan: Footprint | None = None


def any_plan(problem: Problem) -> Existence:
    """Whether a problem has a plan that keeps its constraints and fits the memory."""
    evaluator = weightless(problem)
    if _is_hopeless(evaluator):
        return Existence("none")
    quick = _quick_plan(evaluator)
    if quick is not None:
        return Existence("some", quick)
    if choices_of(problem) > MOST_CHOICES or problem.memory_model.mixed:
        return Existence("open")
    shares = all_shares(evaluator)
    if len(problem.tables) <= MOST_TABLES:
        existence = _enumerated(evaluator, shares)
        if existence.answer != "open":
            return existence
    return _solved(evaluator, shares) if is_installed() else Existence("open")


def _is_hopeless(evaluator: Evaluator) -> bool:
    """Whether a table fits no device, all need more than all devices have, or constraints leave too few places."""
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


def _enumerated(evaluator: Evaluator, shares: Shares) -> Existence:
    """The result of enumerating all placements of the tables, up to a number of partial plans."""
    arrangements = arrangements_of(evaluator.problem, shares, MOST_ARRANGEMENTS)
    if arrangements is None:
        return Existence("open")
    if any(not len(each.group) for each in arrangements):
        return Existence("none")
    heard: list[Footprint] = []
    tree = Enumeration(evaluator, shares, arrangements, np.inf, monotone=False)
    tree.run(NODES, lambda found: bool(heard.append(found)) or True)
    if heard:
        return Existence("some", heard[0])
    return Existence("open" if tree.open else "none")


def _solved(evaluator: Evaluator, shares: Shares) -> Existence:
    """The result of CP-SAT; 'none' is accepted only if it says so both with and without its presolve."""
    from recsmith.planners.solver.cp_sat import solve
    from recsmith.planners.solver.cp_sat_model import SpaceModel
    from recsmith.planners.solver.linear_pieces import LinearPieces

    nothing = LinearPieces((), np.zeros(0))
    space = SpaceModel(evaluator, shares, nothing)
    for settings in ({}, {"cp_model_presolve": False}):
        run = solve(space, {**settings, "max_deterministic_time": UNITS}, lambda _: True)
        if run.best is not None:
            return Existence("some", run.best)
        if not run.impossible:
            return Existence("open")
    return Existence("none")
