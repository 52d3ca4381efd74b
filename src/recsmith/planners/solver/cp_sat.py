# pyright: basic
"""Runs of CP-SAT on a model: from a plan, to better plans and a bound.

One worker, a fixed seed, and limits in the solver's own measure of work make the outcome the same on every machine.
Presolve reductions that lose plans are off: release 9.15 reports solvable models as impossible (decisions/0006).

Legend: N slots (cp_sat_variables.py), W ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from recsmith._types import Ints
from recsmith.planners.solver.cp_sat_model import SpaceModel
from recsmith.planners.solver.placed_tables import PlacedTable
from recsmith.problems import Footprint
from recsmith.sharding import Span

SETTINGS = {"num_workers": 1, "random_seed": 0, "keep_all_feasible_solutions_in_presolve": True}


@dataclass(frozen=True, slots=True)
class SolverRun:
    """How a run ended.

    best: the pieces of the last plan, without those of fixed tables. proven: whether it is proved that no plan is
    better. impossible: whether it is proved that there is no plan. bound_s: lower bound on any plan. spent:
    deterministic seconds, about as long as those of the clock.
    """

    best: Footprint | None
    proven: bool
    impossible: bool
    bound_s: float
    spent: float


def solve(space: SpaceModel, settings: dict[str, Any], on_plan: Callable[[Footprint], bool] | None = None) -> SolverRun:
    """Run the solver. `on_plan` gets each plan that it finds, better and better, and stops it by returning True."""
    solver = _solver(settings)
    status = solver.solve(space.model, _PlanCallback(space, on_plan) if on_plan else None)
    impossible = status == cp_model.INFEASIBLE
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return SolverRun(
        best=_footprint(space, solver.boolean_value) if found else None,
        proven=status == cp_model.OPTIMAL, impossible=impossible,
        bound_s=0.0 if impossible else max(0.0, solver.best_objective_bound * space.tick_s),
        spent=solver.response_proto.deterministic_time,
    )  # fmt: skip


def start_from(space: SpaceModel, footprint: Footprint) -> None:
    """Hint at a plan of all tables; the solver first completes the hint to a value for every variable."""
    variables = space.variables
    filled = _slots_of(space, footprint)
    chosen = {int(variables.layout[slot]) for slot in filled}
    hints = {variable.index: int(number in chosen) for number, variable in enumerate(variables.chosen)}
    for slot, variable in enumerate(variables.filled):
        hints.setdefault(variable.index, int(slot in filled))
    _hint(space, hints)
    solver = _solver({"fix_variables_to_their_hinted_value": True})
    if solver.solve(space.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        _hint(space, dict(enumerate(solver.response_proto.solution)))


class _PlanCallback(cp_model.CpSolverSolutionCallback):
    """Passes each solution on as a plan."""

    def __init__(self, space: SpaceModel, on_plan: Callable[[Footprint], bool]) -> None:
        super().__init__()
        self.space, self.on_plan = space, on_plan

    def on_solution_callback(self) -> None:
        """The solver calls this at each solution."""
        if self.on_plan(_footprint(self.space, self.boolean_value)):
            self.stop_search()


def _footprint(space: SpaceModel, is_true: Callable[[cp_model.IntVar], bool]) -> Footprint:
    """The plan of a solution."""
    variables = space.variables
    filled = [slot for slot, variable in enumerate(variables.filled) if is_true(variable)]
    return space.shares.footprint(space.problem, variables.share[filled], variables.target[filled])


def _solver(settings: dict[str, Any]) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    for name, value in {**SETTINGS, **settings}.items():
        setattr(solver.parameters, name, value)
    return solver


def _hint(space: SpaceModel, values: dict[int, int]) -> None:
    """Set hints by index of the variable, in place of earlier ones."""
    space.model.clear_hints()
    for index, value in values.items():
        space.model.add_hint(space.model.get_int_var_from_proto_index(index), value)


def _slots_of(space: SpaceModel, footprint: Footprint) -> set[int]:
    """Slots that hold a plan's columns; a layout that the model lacks is replaced by another on the same targets."""
    layouts, variables = space.shares.layouts, space.variables
    slot_of: list[dict[tuple[int, int], int]] = [{} for _ in layouts]  # by target and columns
    for slot, key in enumerate(zip(variables.target.tolist(), variables.columns.tolist(), strict=True)):
        slot_of[variables.layout[slot]].setdefault(key, slot)
    footprint = replace(footprint, target=_ordered_targets(space, footprint))
    filled: set[int] = set()
    for table in range(len(space.problem.tables)):
        placed = PlacedTable.of(space.problem, footprint, table)
        kind, held = (table, placed.coverage), placed.columns.items()
        same = [i for i, layout in enumerate(layouts) if (layout.table, layout.coverage) == kind]
        fitting = [i for i in same if held <= slot_of[i].keys()]
        fitting.sort(key=lambda i: layouts[i].mode != placed.mode)
        filled.update(slot_of[number][each] for number in fitting[:1] for each in held)
    return filled


def _ordered_targets(space: SpaceModel, footprint: Footprint) -> Ints:
    """Targets of a plan's pieces, with interchangeable ranks in the order that the model demands."""
    if space.order is None:
        return footprint.target
    modes, columns = space.problem.modes, np.zeros(len(space.problem.capacity), dtype=np.int64)
    on_rank = modes.span[footprint.mode] == Span.RANK
    ordering = on_rank & (modes.table[footprint.mode] == space.order.table)
    np.add.at(columns, footprint.target[ordering], footprint.width[ordering])
    moved_to = np.arange(len(columns))
    for run in space.order.runs:
        ranks = np.array(run)
        moved_to[ranks[np.argsort(-columns[ranks], kind="stable")]] = ranks
    return np.where(on_rank, moved_to[footprint.target * on_rank], footprint.target)
