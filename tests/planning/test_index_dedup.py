"""Equal ids of a rank that are looked up once: what plans are priced with, and when planning chooses it."""

from dataclasses import replace

import numpy as np
import pytest
from support.build import table, workload

from recsmith import AccessProfile, Table, Workload, load_cluster, plan, simulate
from recsmith.errors import Infeasible
from recsmith.plans import plan_from_raw, plan_to_raw
from recsmith.problems import Space, build_problem
from recsmith.problems.rank_bytes import predicted_bytes
from recsmith.workloads.reuse import Reuse
from recsmith.workloads.workload import IndexDedup

CPU, GPUS = load_cluster("cpu:2"), load_cluster("h100:8x4")


def sequence(rows: int, dim: int = 64, *, name: str = "s", zipf: float = 0.0) -> Table:
    return table(name, rows, dim, pooling_factor=32.0, pooling="none", access=AccessProfile(zipf=zipf))


def asked(*tables: Table, dedup: IndexDedup = "on", batch: int = 1024) -> Workload:
    return workload(*tables, batch_size=batch, index_dedup=dedup)


@pytest.mark.parametrize("kind", ["table_wise", "row_wise"])
def test_a_rank_is_asked_for_the_different_ids_of_each_batch(kind: str) -> None:
    """Of W ranks W times the different ids of one; as many different rows are read as without."""
    one, space = sequence(4_000), Space(types=(kind,), kernels=("fused",))
    off, on = (build_problem(asked(one, dedup=each), CPU, space) for each in ("off", "on"))
    different = float(Reuse.of((one,)).unique_rows(np.zeros(1, dtype=np.int64), np.array([1024 * 32.0]))[0])
    assert on.modes.ids[0] / off.modes.ids[0] == pytest.approx(different / (1024 * 32.0))
    assert on.modes.bags == on.modes.outputs == on.modes.ids
    assert on.modes.lookups == pytest.approx(off.modes.lookups)


def test_pooled_tables_are_as_before_beside_sequences() -> None:
    pooled = table("p", 4_000, 64, pooling_factor=32.0)
    off, on = (build_problem(asked(pooled, sequence(4_000), dedup=each), CPU, Space()) for each in ("off", "on"))
    same = on.modes.table == [each.name for each in on.tables].index("p")
    assert (on.modes.ids[same] == off.modes.ids[same]).all()
    assert (on.modes.ids[~same] < off.modes.ids[~same]).all()


def test_hot_rows_in_front_burden_the_first_block_less_once_they_are_asked_for_once() -> None:
    one = replace(sequence(100_000), access=AccessProfile(zipf=1.2, hot_rows="in_front"))
    space = Space(types=("row_wise",), kernels=("fused",))
    off, on = (build_problem(asked(one, dedup=each), CPU, space) for each in ("off", "on"))
    assert 1 < off.modes.spread[0] < on.modes.spread[0] < 2


def test_a_plan_says_whether_ids_are_deduplicated_and_keeps_that_in_its_file() -> None:
    made = plan(asked(sequence(2_000)), CPU, cost_model="neural:cpu").plan
    again = plan_from_raw(plan_to_raw(made), "test")
    assert again.workload.index_dedup == "on"
    assert simulate(again).cost == made.cost
    assert "index_dedup" not in plan_to_raw(plan(asked(sequence(2_000), dedup="off"), CPU).plan)["workload"]


@pytest.mark.parametrize(("rows", "dim", "choice"), [(500, 128, "on"), (3_000_000, 16, "off")])
def test_planning_takes_what_makes_the_shorter_step(rows: int, dim: int, choice: IndexDedup) -> None:
    """Few rows are asked for again and again; of many rows hardly any is."""
    found = {each: plan(asked(sequence(rows, dim), dedup=each), CPU).plan for each in ("off", "on", "auto")}
    seconds = {each: made.cost.step_s for each, made in found.items()}
    assert found["auto"].workload.index_dedup == choice
    assert seconds["auto"] == min(seconds.values()) < max(seconds.values())


def test_links_between_hosts_make_it_pay_on_gpus_too() -> None:
    """Rows that cross hosts are dearer than finding ids; on one host the search for equal ids takes longer."""
    one = sequence(20_000, 512, zipf=1.0)
    across = plan(asked(one, dedup="auto", batch=4096), GPUS, space=Space(types=("row_wise",))).plan
    assert across.workload.index_dedup == "on"
    inside = plan(asked(sequence(20_000_000, 64), dedup="auto", batch=4096), load_cluster("h100:2")).plan
    assert inside.workload.index_dedup == "off"


def test_without_sequence_tables_there_is_nothing_to_choose() -> None:
    work = workload(table("p", 4_000, 64, pooling_factor=32.0), index_dedup="auto")
    made = plan(work, CPU).plan
    assert made.workload.index_dedup == "off"
    assert made.cost == plan(replace(work, index_dedup="off"), CPU).plan.cost
    assert made.cost.sequences_s == 0


def test_what_has_no_plan_either_way_is_refused() -> None:
    tight = replace(CPU, hbm_bytes=1 << 20)
    with pytest.raises(Infeasible):
        plan(asked(sequence(2_000_000), dedup="auto"), tight)


def test_a_rank_holds_rows_that_come_back_and_those_of_all_ids() -> None:
    """Fewer rows are looked up and come back; each id then has its row again."""
    off, on = (plan(asked(sequence(500, 64), dedup=each), CPU).plan for each in ("off", "on"))
    (shards_off, base_off), (shards_on, base_on) = (max(predicted_bytes(each)) for each in (off, on))
    assert shards_on < shards_off / 4
    rows = 1024 * 32 * 64 * 4
    assert rows < base_on < base_off + 2 * rows
