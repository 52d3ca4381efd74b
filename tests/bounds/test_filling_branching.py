"""The bound by fillings of a rank: above no plan, and above the search that it goes on from where few share one."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.bounds import hand_made, total_of
from support.cases import BOTH, Case, Pick, cluster, drawn, fits, table, workload

from recsmith.bounds.filling_branching import FillingBranching, filling_branchings
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.plans import Placement
from recsmith.problems import Space

WORK = 100_000_000
SOME = {"models": BOTH, "counts": (1, 2, 3, 5), "dims": (4, 8, 20, 64)}


def branchings(case: Case, below: float, work: int = 0) -> list[FillingBranching]:
    """The searches by fillings that go on from one that has worked on so many numbers."""
    evaluator = case.evaluator
    search = PhaseBranching(evaluator, dominated=groups_dominated_by_type(evaluator), below=below, byte_price=0.0)
    search.solve(work)
    return list(filling_branchings(evaluator, search))


def copied(pick: Pick) -> tuple[Case, tuple[Placement, ...]]:
    """A hand-made plan of tables of which each is there three times, placed alike but for its ranks."""
    case, placements = hand_made(pick, **SOME | {"counts": (1, 2)})
    tables, placed, world = case.workload.tables, list(placements), case.cluster.world_size
    for again in (1, 2):
        names = {t.name: f"{t.name} again {again}" for t in case.workload.tables}
        tables += tuple(
            replace(
                t,
                name=names[t.name],
                features=tuple(replace(f, name=f"{f.name} {again}") for f in t.features),
                collection=f"{t.collection}{again}" if t.pooling == "mean" else t.collection,  # alone as before
            )
            for t in case.workload.tables
        )
        for each in placements:
            ranks = each.ranks
            if ranks and each.sharding_type in ("table_wise", "column_wise"):
                ranks = tuple((rank + again) % world for rank in ranks)
            placed.append(replace(each, table=names[each.table], ranks=ranks))
    return replace(case, workload=replace(case.workload, tables=tables)), tuple(placed)


@pytest.mark.parametrize("made_by", [lambda pick: hand_made(pick, **SOME), copied])
def test_no_hand_made_plan_costs_less(made_by) -> None:
    """However far above the plan the search looks, wherever it begins and stops."""

    @given(drawn(made_by), st.floats(1.0, 3.0))
    def check(made, reach: float) -> None:
        case, placements = made
        assume(fits(case, placements))
        total = total_of(case, placements)
        for search in branchings(case, reach * total, WORK // 10):
            for work in (0, WORK // 4, WORK):
                search.solve(work)
                assert search.bound <= total * (1 + 1e-9)

    check()


def test_tables_that_must_be_cut_cost_more_than_their_mean() -> None:
    """Nine equal tables on eight ranks: where no rank can hold one and a piece of the ninth, more are cut."""
    tables = [table(f"t{i}", 1_000_000, 64, 40.0) for i in range(9)]
    case = Case(workload(*tables, batch_size=4096), cluster(8), Space(types=("column_wise",)), cost_model="analytic")
    total = case.plan().plan.cost.total_s
    evaluator = case.evaluator
    search = PhaseBranching(
        evaluator, dominated=groups_dominated_by_type(evaluator), below=total, byte_price=0.0, dual=True
    )
    search.solve(1_000_000_000)
    filling = next(filling_branchings(evaluator, search))
    filling.solve(1_000_000_000, total * (1 - 1e-9))
    assert search.bound * 1.02 < min(filling.bound, total)
    assert filling.bound <= total * (1 + 1e-9) or not filling.heap


def test_none_on_a_single_device() -> None:
    case = Case(workload(table("t", 1_000, 8, 10.0), batch_size=64), cluster(1), Space(), cost_model="analytic")
    assert branchings(case, 1.0) == []
