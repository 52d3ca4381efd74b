"""A sharded model trains like the unsharded one, in real processes; a 2D job like one model per sharding group."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
from support.exactness import COLUMN_SPLITS, cpu_cluster, every_type

from recsmith import Plan, load_cluster
from recsmith.clusters import sharding_group
from recsmith.plans import plan_to_raw
from recsmith.workloads.workload import IndexDedup

pytestmark = pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed")

OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad"]
STEPS, MANY_STEPS = 5, 100  # odd: of two steps a synchronisation, the last leaves the groups apart
LARGEST_DIFFERENCE = 1e-6  # of the table's largest weight; NaN counts as infinite
LEAST_MOVE = 1e-3  # a table that training left alone proves nothing


@pytest.mark.parametrize(
    ("local", "hosts", "steps", "dedup"),
    [
        (2, 2, STEPS, "on"),
        *(
            pytest.param(*shape, MANY_STEPS, dedup, marks=pytest.mark.soak)
            for shape in ((1, 1), (2, 1), (4, 1), (2, 2))
            for dedup in ("off", "on")
        ),
    ],
)
def test_every_type_trains_like_the_unsharded_model(local: int, hosts: int, steps: int, dedup: IndexDedup) -> None:
    """Pooled tables of all types; sequences of their own, with equal ids looked up once or each by itself."""
    from recsmith.jobs.launch import launch

    plan = every_type(cpu_cluster(local, hosts))
    plan = replace(plan, workload=replace(plan.workload, index_dedup=dedup))
    arguments = {"plan": plan_to_raw(plan), "optimizers": OPTIMIZERS, "steps": steps, "batch_size": 4}
    results = launch("support.trained_exactness:compare", arguments, ranks=local * hosts, hosts=hosts)
    seen: set[str] = set()
    for rank in results:
        for optimizer, found in zip(OPTIMIZERS, rank, strict=True):
            assert found["forward"] <= LARGEST_DIFFERENCE
            assert min(found["moved"].values()) > LEAST_MOVE
            for table, apart in found["weights"].items():
                seen.add(table)
                if optimizer == "rowwise_adagrad" and table in COLUMN_SPLITS:
                    assert 1e-4 < apart < 1  # another optimizer: each column shard keeps its own row statistic
                else:
                    assert apart <= LARGEST_DIFFERENCE, (optimizer, table)
    assert seen == {table.name for table in plan.workload.tables}


def hand_plan(local: int, *, steps_per_sync: int, blocks: bool) -> Plan:
    """Every type on a sharding group that is half of two hosts."""
    job = load_cluster(f"cpu:{local}x2")
    return every_type(sharding_group(job, local, steps_per_sync=steps_per_sync, use_inter_host_allreduce=blocks))


@pytest.mark.parametrize(
    ("local", "groups", "blocks"),
    [
        (2, [0, 1, 0, 1], False),
        pytest.param(2, [0, 0, 1, 1], True, marks=pytest.mark.soak),
        pytest.param(4, [0, 1, 0, 1, 0, 1, 0, 1], False, marks=pytest.mark.soak),
    ],
)
def test_two_sharding_groups_train_like_their_reference(local: int, groups: list[int], blocks: bool) -> None:
    from recsmith.jobs.launch import launch

    averaged, one_model = (hand_plan(local, steps_per_sync=steps, blocks=blocks) for steps in (2, 1))
    arguments = {"averaged": plan_to_raw(averaged), "one_model": plan_to_raw(one_model), "steps": STEPS}
    ranks = launch("support.replicated_jobs:train_both", arguments, ranks=2 * local, hosts=2)

    every_table = {table.name for table in averaged.workload.tables}
    assert [rank["averaged"]["group"] for rank in ranks] == groups
    for job in ("averaged", "one_model", "planned"):
        assert set[str]().union(*(rank[job]["weights"] for rank in ranks)) == every_table
        assert max(max(rank[job]["weights"].values()) for rank in ranks) <= LARGEST_DIFFERENCE, job
    for job in ("averaged", "one_model"):
        assert min(min(rank[job]["moved"].values()) for rank in ranks) > LEAST_MOVE
    assert max(rank["one_model"]["one_model"] for rank in ranks) <= LARGEST_DIFFERENCE  # sgd: as one unsharded model
    assert min(rank["averaged"]["one_model"] for rank in ranks) > 1e-4  # the averages differ from it, and are met
    assert [rank["planned"]["planned"] for rank in ranks] == [True, *[False] * (2 * local - 1)]


def test_torchrec_trains_ranges_of_columns_that_share_a_host() -> None:
    """So that there are no more ranges than hosts is a rule of plans here, and not what TorchRec can do."""
    from recsmith.jobs.launch import launch

    arguments = {"steps": STEPS, "batch_size": 4, "optimizer": "sgd"}
    for rank in launch("support.grid_shards:on_one_host", arguments, ranks=2):
        assert rank["forward"] <= LARGEST_DIFFERENCE
        assert rank["weights"]["grid"] <= LARGEST_DIFFERENCE
        assert rank["moved"]["grid"] > LEAST_MOVE
