"""The model holds the plans within memory, with one width per collection, and faster than the best plan known."""

from itertools import product

import numpy as np
import pytest
from support.cases import Case, all_placements, cluster, table, workload

pytest.importorskip("ortools")

from ortools.sat.python import cp_model

from recsmith.costs import step_seconds
from recsmith.planners.solver.cp_sat import solve
from recsmith.planners.solver.cp_sat_model import TICKS, SpaceModel
from recsmith.planners.solver.layouts import all_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.planners.solver.placed_tables import FixedTables
from recsmith.plans import Placement
from recsmith.problems import Constraints, Footprint, Space, TableRule, fits, footprint_of


def space_of(case: Case, total_s: float | None = None, bound_s: float = 0.0) -> SpaceModel:
    shares = all_shares(case.evaluator)
    linear_pieces = linear_pieces_of(case.evaluator, shares.terms)
    assert linear_pieces is not None
    return SpaceModel(case.evaluator, shares, linear_pieces, total_s, bound_s)


def plans_of(space: SpaceModel) -> set[tuple[tuple[int, int, int], ...]]:
    """Every plan of a model, as (mode, width, target) of its pieces."""
    found: set[tuple[tuple[int, int, int], ...]] = set()

    class Listed(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            variables = space.variables
            filled = [slot for slot, variable in enumerate(variables.filled) if self.boolean_value(variable)]
            plan = space.shares.footprint(space.problem, variables.share[filled], variables.target[filled])
            found.add(rows(plan))

    space.model.clear_objective()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.enumerate_all_solutions = True
    solver.solve(space.model, Listed())
    return found


def rows(footprint: Footprint) -> tuple[tuple[int, int, int], ...]:
    columns = (footprint.mode.tolist(), footprint.width.tolist(), footprint.target.tolist())
    return tuple(sorted(zip(*columns, strict=True)))


def pair(pooling: str = "sum", hbm: int | tuple[int, ...] = 2**40) -> Case:
    tables = [table(name, 50, 8, pooling=pooling, collection="c") for name in "ab"]
    return Case(workload(*tables), cluster(2, hbm=hbm), Space(types=("table_wise", "column_wise", "row_wise")))


def agrees(case: Case, placements: tuple[Placement, ...]) -> bool:
    """Whether column-wise sequences of the one collection are equally wide."""
    split = {p.widths_of(8)[0] for p in placements if p.sharding_type == "column_wise"}
    return case.problem.tables[0].pooled or len(split) < 2


ALONE = Case(workload(table("a", 50, 12)), cluster(2), Space(types=("column_wise",)))  # 4 and 8 not on one rank


@pytest.mark.parametrize("case", [pair(), pair(hbm=9_000), pair(hbm=(6_000, 12_000)), pair("none"), ALONE])
def test_without_an_objective_it_holds_every_plan_within_memory(case: Case) -> None:
    every = set()
    for placements in product(*all_placements(case).values()):
        footprint = footprint_of(case.problem, placements)
        if agrees(case, placements) and fits(case.problem, footprint):
            every.add(rows(footprint))
    assert every
    assert plans_of(space_of(case)) == every


def test_only_plans_between_its_bound_and_its_best_are_left() -> None:
    case = pair()
    run = solve(space_of(case, step_seconds(case.evaluator, _slow(case))), {})
    assert run.best is not None
    least = step_seconds(case.evaluator, run.best)
    assert solve(space_of(case, least * (1 - 1e-6)), {}).impossible
    assert not solve(space_of(case, least * (1 + 1e-6)), {}).impossible
    assert solve(space_of(case, least * 1.01, bound_s=least * 1.02), {}).impossible
    lifted = solve(space_of(case, least * 1.5, bound_s=least * 1.2), {})
    assert lifted.best is not None
    assert lifted.bound_s == pytest.approx(least * 1.2, rel=1e-8)


def _slow(case: Case) -> Footprint:
    """Every table whole on rank 0."""
    whole = [next(p for p in placements if p.ranks == (0,)) for placements in all_placements(case).values()]
    return footprint_of(case.problem, tuple(whole))


def test_of_plans_that_trade_equal_ranks_one_is_left() -> None:
    case = Case(workload(table("a", 50, 8)), cluster(4), Space(types=("table_wise",)))
    slow = step_seconds(case.evaluator, _slow(case))
    ordered, whole = plans_of(space_of(case, slow)), plans_of(space_of(case))
    assert {rank for ((_, _, rank),) in ordered} == {0}
    assert {rank for ((_, _, rank),) in whole} == {0, 1, 2, 3}
    uneven = Case(case.workload, cluster(4, hbm=(2**30, 2**31, 2**30, 2**31)), case.space)
    assert {rank for ((_, _, rank),) in plans_of(space_of(uneven, slow))} == {0, 1}


def test_a_tick_is_a_share_of_the_best_plan_known() -> None:
    space = space_of(pair(), 3.0)
    assert space.tick_s * TICKS == 3.0
    assert (space_of(pair()).tick_s, space_of(pair()).order) == (0.0, None)


@pytest.mark.parametrize("pooling", ["sum", "none"])
def test_beside_fixed_tables_it_holds_the_plans_of_the_others(pooling: str) -> None:
    case = pair(pooling, hbm=(6_000, 12_000))
    shares, free = all_shares(case.evaluator), np.array([True, False])
    linear_pieces = linear_pieces_of(case.evaluator, shares.terms)
    assert linear_pieces is not None
    mine, others = (all_placements(case)[t.name] for t in case.problem.tables)
    counts = set()
    for other in others:
        fixed = FixedTables.of(case.evaluator, footprint_of(case.problem, (mine[0], other)), free)
        space = SpaceModel(case.evaluator, shares.take(free[shares.table]), linear_pieces, fixed=fixed)
        every = set()
        for placement in mine:
            whole = footprint_of(case.problem, (placement, other))
            if agrees(case, (placement, other)) and fits(case.problem, whole):
                own = case.problem.modes.table[whole.mode] == 0
                every.add(rows(Footprint(whole.mode[own], whole.width[own], whole.target[own])))
        assert plans_of(space) == every
        counts.add(len(every))
    assert len(counts) > 1


@pytest.mark.parametrize(("room", "impossible"), [(1.9, True), (2.0, False)])
def test_host_memory_is_kept(room: float, impossible: bool) -> None:
    """Two tables in host memory that holds 1.9 and 2 of them."""
    space = Space(types=("table_wise",), kernels=("fused_uvm",))
    case = Case(workload(table("a", 100, 4), table("b", 100, 4)), cluster(2, ddr_bytes_per_host=2**40), space)
    size = int(case.problem.memory(np.array([0]), np.array([4]))[1].host[0])
    case = Case(case.workload, cluster(2, ddr_bytes_per_host=int(size * room)), space)
    assert solve(space_of(case), {}).impossible == impossible


@pytest.mark.parametrize(("missing", "impossible"), [((0, 0), False), ((1, 0), True), ((0, 1), True)])
def test_the_last_rank_holds_the_tail(missing: tuple[int, int], impossible: bool) -> None:
    """101 rows in blocks of 51 and 50, on devices with room for just these, or a byte less."""
    case = Case(workload(table("a", 101, 4)), cluster(2), Space(types=("row_wise",)))
    sizes = (int(end.device[0]) for end in case.problem.memory(np.array([0]), np.array([4])))
    hbm = tuple(size - less for size, less in zip(sizes, missing, strict=True))
    assert hbm[1] < hbm[0]
    assert solve(space_of(Case(case.workload, cluster(2, hbm=hbm), case.space)), {}).impossible == impossible


def test_a_rank_that_holds_tails_is_not_traded_for_another() -> None:
    """Table b has room beside the tail of table a only, so ordering the ranks by b's columns must not forbid that."""
    rules = (TableRule(tables="a", sharding_types=("row_wise",)), TableRule(tables="b", sharding_types=("table_wise",)))
    work = workload(table("a", 101, 4), table("b", 20, 4))
    case = Case(work, cluster(2), constraints=Constraints(rules=rules))
    mode = {case.problem.tables[t].name: mode for mode, t in enumerate(case.problem.modes.table.tolist())}
    head, tail = case.problem.memory(np.array([mode["a"], mode["b"]]), np.array([4, 4]))
    room = int(tail.device[0] + tail.device[1])
    assert head.device[0] > tail.device[0]
    tight = Case(work, cluster(2, hbm=room), constraints=case.constraints)
    total = step_seconds(case.evaluator, _slow_b(case))
    run = solve(space_of(tight, total * 1.01), {})
    assert run.best is not None
    assert run.best.target[run.best.mode == mode["b"]].tolist() == [1]


def _slow_b(case: Case) -> Footprint:
    return footprint_of(case.problem, tuple(placements[0] for placements in all_placements(case).values()))
