# pyright: basic
"""Runs of CP-SAT on a model: from a plan, to better plans and a bound.

One worker, a fixed seed, and limits in the solver's own measure of work: what it finds is the same on every machine.
Reductions of its presolve that lose plans are off: release 9.15 calls models impossible that are not (decisions/0006).
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from recsmith._types import Ints
from recsmith.planners.solver.cp_sat_model import SpaceModel
from recsmith.problems import Footprint
from recsmith.sharding import Span

SETTINGS = {"num_workers": 1, "random_seed": 0, "keep_all_feasible_solutions_in_presolve": True}


@dataclass(frozen=True, slots=True)
class SolverRun:
    """How a run ended.

    best: the pieces of the last plan, without those that are kept. proven: it is the best. impossible: there is none.
    bound_s: no plan takes less. spent: deterministic seconds, about as long as those of the clock.
    """

    best: Footprint | None

    proven: bool
    impossible: bool
    bound_s: float
    spent: float


def solve(space: SpaceModel, settings: dict[str, Any], hear: Callable[[Footprint], bool] | None = None) -> SolverRun:
    """Run the solver. `hear` is told of each plan that it finds, better and better, and stops it by True."""
    solver = _solver(settings)
    status = solver.solve(space.model, _Ear(space, hear) if hear else None)
    impossible = status == cp_model.INFEASIBLE
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return SolverRun(
        best=_footprint(space, solver.boolean_value) if found else None,
        proven=status == cp_model.OPTIMAL, impossible=impossible,
        bound_s=0.0 if impossible else max(0.0, solver.best_objective_bound * space.unit),
        spent=solver.response_proto.deterministic_time,
    )  # fmt: skip


def start_from(space: SpaceModel, footprint: Footprint) -> None:
    """Hint at a plan; the solver first works out what it means for every variable."""
    wanted = _seats_of(space, footprint)
    taken = {int(space.layout[seat]) for seat in wanted}
    hints = {variable.index: int(number in taken) for number, variable in enumerate(space.taken)}
    for seat, variable in enumerate(space.held):
        hints.setdefault(variable.index, int(seat in wanted))
    _hint(space, hints)
    solver = _solver({"fix_variables_to_their_hinted_value": True})
    if solver.solve(space.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        _hint(space, dict(enumerate(solver.response_proto.solution)))


class _Ear(cp_model.CpSolverSolutionCallback):
    """Hears of each solution."""

    def __init__(self, space: SpaceModel, hear: Callable[[Footprint], bool]) -> None:
        super().__init__()
        self.space, self.hear = space, hear

    def on_solution_callback(self) -> None:
        """Tell of the plan."""
        if self.hear(_footprint(self.space, self.boolean_value)):
            self.stop_search()


def _footprint(space: SpaceModel, is_held: Callable[[cp_model.IntVar], bool]) -> Footprint:
    """The plan of a solution."""
    held = [seat for seat, variable in enumerate(space.held) if is_held(variable)]
    return space.shares.footprint(space.problem, space.share[held], space.target[held])


def _solver(settings: dict[str, Any]) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    for name, value in {**SETTINGS, **settings}.items():
        setattr(solver.parameters, name, value)
    return solver


def _hint(space: SpaceModel, values: dict[int, int]) -> None:
    """Values by index of the variable, in place of earlier ones."""
    space.model.clear_hints()
    for index, value in values.items():
        space.model.add_hint(space.model.get_int_var_from_proto_index(index), value)


def _seats_of(space: SpaceModel, footprint: Footprint) -> set[int]:
    """Seats that hold a plan's columns, its ranks in order; a layout that is gone has another that stands in for it."""
    layouts, modes, target = space.shares.layouts, space.problem.modes, _in_order(space, footprint)
    held: list[dict[tuple[int, int], int]] = [{} for _ in layouts]
    for seat, key in enumerate(zip(space.target.tolist(), space.columns.tolist(), strict=True)):
        held[space.layout[seat]].setdefault(key, seat)
    wanted: set[int] = set()
    for table in range(len(space.problem.tables)):
        mine = np.flatnonzero(modes.table[footprint.mode] == table)
        mode, columns = int(footprint.mode[mine[0]]), Counter[int]()
        for place, width in zip(target[mine].tolist(), footprint.width[mine].tolist(), strict=True):
            columns[place] += width
        reach, there = int(modes.coverage[mode]), columns.items()
        fitting = [i for i, layout in enumerate(layouts) if (layout.table, layout.coverage) == (table, reach)]
        fitting = sorted((i for i in fitting if there <= held[i].keys()), key=lambda i: layouts[i].mode != mode)
        wanted.update(held[number][each] for number in fitting[:1] for each in there)
    return wanted


def _in_order(space: SpaceModel, footprint: Footprint) -> Ints:
    """Targets of a plan's pieces, with ranks that are alike in the order that the model asks for."""
    modes, columns = space.problem.modes, np.zeros(len(space.problem.capacity), dtype=np.int64)
    on_rank = modes.span[footprint.mode] == Span.RANK
    first = on_rank & (modes.table[footprint.mode] == space.dearest)
    np.add.at(columns, footprint.target[first], footprint.width[first])
    place = np.arange(len(columns))
    for run in space.alike_ranks():
        place[np.array(run)[np.argsort(-columns[run], kind="stable")]] = run
    return np.where(on_rank, place[footprint.target * on_rank], footprint.target)
