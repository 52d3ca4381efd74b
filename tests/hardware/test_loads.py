"""What ranks run: the groups, ids, bags and rows that cost models price, and nothing that is not measured."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.build import cluster, placed, plan_of, table, workload

from recsmith.costs.embedding_kernels import EmbeddingKernels
from recsmith.errors import UsageError
from recsmith.hardware import load_hardware
from recsmith.hardware.loads import loads_of, scale_for
from recsmith.plans import Plan
from recsmith.problems import Problem, Space, build_problem, footprint_of
from recsmith.workloads import AccessProfile, Feature, Table


def shaped(name: str, rows: int, dim: int, pooling: float, zipf: float, **rest: Any) -> Table:
    return table(name, rows, dim, pooling_factor=pooling, access=AccessProfile(zipf=zipf), **rest)


def read_by(*features: Feature) -> Table:
    return table("odd", features=features)


def mixed() -> Plan:
    """Every sharding type that is measured, on two hosts of two ranks."""
    work = workload(
        shaped("a", 10_000, 64, 8, 0.9), shaped("b", 5_000, 32, 3, 0.5), shaped("c", 9_001, 16, 20, 1.1),
        shaped("d", 4_003, 48, 5, 0.3), shaped("e", 30_001, 96, 6, 1.0), shaped("f", 2_000, 32, 2, 0.7),
        batch_size=256,
    )  # fmt: skip
    return plan_of(
        work, cluster(hosts=2, local=2),
        placed("a", "column_wise", (0, 1, 1), (32, 16, 16)), placed("b", "table_wise", (0,)),
        placed("c", "row_wise", (0, 1, 2, 3)), placed("d", "table_row_wise", (2, 3)),
        placed("e", "grid_shard", (0, 1, 2, 3), (64, 32)), placed("f", "table_column_wise", (3, 3), (16, 16)),
    )  # fmt: skip


def problem_of(plan: Plan) -> Problem:
    return build_problem(plan.workload, plan.cluster, Space(kernels=("fused",)))


def test_kernels_bags_and_ids_are_those_that_cost_models_price():
    """Of each rank: kernels, pieces, ids, bags, outputs and different rows."""
    plan = mixed()
    problem = problem_of(plan)
    kernels, found = EmbeddingKernels.of(problem), footprint_of(problem, plan.placements)
    modes = problem.modes
    size = np.array([1, 2, 4])[modes.span[found.mode]]
    hardware = load_hardware("simulated:h100")
    for rank, load in enumerate(loads_of(plan)):
        mine = found.mode[found.target == rank // size]
        widths = found.width[found.target == rank // size]
        assert len(load) == len(set(modes.group[mine].tolist()))
        assert sum(len(case.tables) for case in load) == len(mine)
        assert sum(sum(case.lookups) for case in load) == pytest.approx(modes.ids[mine].sum(), abs=len(mine))
        bags = [case.workload.batch_size for case in load for _ in case.tables]
        assert sorted(bags) == sorted(modes.bags[mine].tolist())
        assert sum(case.outputs for case in load) == (modes.bags[mine] * widths).sum()
        unique = np.sum([sum(hardware.measure(case).unique_rows) for case in load if case.blocks == 1])
        whole = modes.spread[mine] == 1
        assert unique == pytest.approx(kernels.unique[mine][whole].sum(), rel=0.01)


def test_uneven_blocks_look_up_what_their_rows_are_read():
    """With hot rows in front each rank has its own share of ids and different rows, and the cost model the first's."""
    work = workload(
        shaped("a", 40_000, 16, 20, 1.0), shaped("b", 1_000, 16, 4, 0.2), batch_size=512, hot_rows="in_front"
    )
    plan = plan_of(work, cluster(local=4), placed("a", "row_wise", (0, 1, 2, 3)), placed("b", "row_wise", (0, 1, 2, 3)))
    problem, hardware = problem_of(plan), load_hardware("simulated:h100")
    mode = footprint_of(problem, plan.placements).mode
    loads = loads_of(plan)
    lookups = [sum(sum(case.lookups) for case in load) for load in loads]
    assert sum(lookups) == pytest.approx(4 * 512 * 24, rel=1e-3)
    assert lookups == sorted(lookups, reverse=True)
    assert lookups[0] == pytest.approx(problem.modes.ids[mode].sum(), rel=1e-3)
    assert lookups[0] > 3 * lookups[3]
    unique = [sum(sum(hardware.measure(case).unique_rows) for case in load) for load in loads]
    assert unique[0] == pytest.approx(EmbeddingKernels.of(problem).unique[mode].sum(), rel=0.02)


def test_rows_of_all_ranks_are_those_of_the_tables():
    plan = mixed()
    elements = sum(case.elements for load in loads_of(plan) for case in load)
    assert elements == sum(each.num_embeddings * each.embedding_dim for each in plan.workload.tables)


def test_blocks_of_rows_read_as_many_different_rows_as_the_cost_model_says():
    torch = pytest.importorskip("torch")
    from recsmith.hardware.lookups import draw_lookups, uniform_pool

    work = workload(shaped("a", 40_000, 16, 20, 1.0), shaped("b", 1_000, 16, 4, 0.2), batch_size=512)
    ranks = (0, 1, 2, 3)
    plan = plan_of(work, cluster(local=4), placed("a", "row_wise", ranks), placed("b", "row_wise", ranks))
    problem = problem_of(plan)
    found = footprint_of(problem, plan.placements)
    expected = np.sort(EmbeddingKernels.of(problem).unique[found.mode])
    for (case,) in loads_of(plan):
        unique = draw_lookups(case, uniform_pool(2**16, torch.device("cpu"))).unique_rows
        assert np.sort(unique) == pytest.approx(expected, rel=0.02)


def test_ranks_that_hold_the_same_shapes_have_one_load():
    """Whatever tables are called, in which order they stand, and whatever type says that they are whole."""
    work = workload(*(shaped(name, 1000, 32, 4, 0.5) for name in "acd"), shaped("b", 500, 16, 2, 0.9))
    work = replace(work, tables=(*work.tables, shaped("e", 500, 16, 2, 0.9)))
    plan = plan_of(
        work, cluster(local=3),
        placed("a", "table_wise", (0,)), placed("b", "table_wise", (0,)), placed("c", "table_wise", (1,)),
        placed("d", "column_wise", (2,)), placed("e", "table_wise", (1,)),
    )  # fmt: skip
    first, second, third = loads_of(plan)
    assert first == second != third
    assert hash(first) == hash(second)
    assert loads_of(plan, seed=1)[0] != first


def test_groups_of_other_shapes_have_other_numbers():
    """Of as many tables and bytes too: ids and noise follow from the number."""
    work = workload(shaped("a", 1000, 32, 4, 0.9), shaped("b", 1000, 32, 5, 0.9), shaped("c", 1000, 32, 4, 0.8),
                    shaped("d", 500, 64, 4, 0.9))  # fmt: skip
    plan = plan_of(work, cluster(local=4), *(placed(name, "table_wise", (rank,)) for rank, name in enumerate("abcd")))
    assert len({case.number for load in loads_of(plan) for case in load}) == 4


def test_a_rank_without_shards_runs_nothing():
    assert loads_of(plan_of(workload(), cluster(), placed("a", "table_wise", (1,))))[0] == ()


def test_tables_that_say_nothing_of_their_reads_get_the_models_law():
    plain = loads_of(plan_of(workload(table()), cluster(), placed("a", "table_wise", (0,))))
    said = loads_of(
        plan_of(workload(table(access=AccessProfile(zipf=0.893))), cluster(), placed("a", "table_wise", (0,)))
    )
    assert plain == said


def test_means_are_means_only_where_a_rank_has_whole_rows():
    work = workload(table("a", pooling="mean"), table("b", pooling="mean", collection="of its own"))
    plan = plan_of(work, cluster(), placed("a", "table_wise", (0,)), placed("b", "row_wise", (0, 1)))
    found = [case.tables[0].pooling for case in loads_of(plan)[0]]
    assert found == ["sum", "mean"]


@pytest.mark.parametrize(
    ("odd", "kind", "kernel", "why"),
    [
        (table("odd"), "data_parallel", "dense", "is data_parallel"),
        (table("odd"), "table_wise", "fused_uvm", "uses kernel fused_uvm"),
        (read_by(Feature(name="f", pooling_factor=1, weighted=True)), "table_wise", "fused", "has weighted ids"),
        (read_by(Feature(name="f", pooling_factor=1, num_poolings=2)), "table_wise", "fused", "has several features"),
        (read_by(Feature(name="f", pooling_factor=1, batch_size=9)), "table_wise", "fused", "or a batch_size"),
        (read_by(*(Feature(name=f, pooling_factor=1) for f in "fg")), "table_wise", "fused", "has several features"),
    ],
)
def test_what_is_not_measured_is_refused_by_name(odd: Table, kind: str, kernel: str, why: str):
    ranks = (0, 1) if kind == "data_parallel" else (0,)
    plan = plan_of(workload(odd), cluster(), placed("odd", kind, ranks, kernel=kernel))
    with pytest.raises(UsageError, match=f"table 'odd' .*{why}"):
        loads_of(plan)


def test_the_scale_of_loads_holds_each_of_them():
    loads = loads_of(mixed())
    scale = scale_for(loads, "cpu")
    for load in loads:
        scale.check(load)
    work = workload(shaped("a", 2**20, 64, 4, 1.0), batch_size=2**18)
    (load, _) = loads_of(plan_of(work, cluster(), placed("a", "table_wise", (0,))))
    with pytest.raises(UsageError, match="scale plans allows"):
        scale.check(load)
    assert scale_for((load,), "cpu").elements == 2**26
