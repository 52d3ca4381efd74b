"""A 2D job trains as it should: every type, on TorchRec's DMPCollection, in real processes of two sharding groups."""

from importlib.util import find_spec

import pytest
from support.exactness import every_type

from recsmith import Plan, load_cluster
from recsmith.clusters import sharding_group
from recsmith.plans import plan_to_raw

pytestmark = pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed")

STEPS = 3  # an odd number: of two steps a synchronisation, the last leaves the groups apart
LARGEST_DIFFERENCE = 1e-6  # of the table's largest weight; NaN counts as infinite
LEAST_MOVE = 1e-3  # a table that training left alone proves nothing
JOB = "cpu:2x2"


def hand_plan(*, steps_per_sync: int, use_inter_host_allreduce: bool) -> Plan:
    group = sharding_group(
        load_cluster(JOB), 2, steps_per_sync=steps_per_sync, use_inter_host_allreduce=use_inter_host_allreduce
    )
    return every_type(group)


@pytest.mark.parametrize("blocks", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_two_sharding_groups_of_two_ranks_train_like_their_reference(blocks: bool) -> None:
    from recsmith.jobs.launch import launch

    averaged = hand_plan(steps_per_sync=2, use_inter_host_allreduce=blocks)
    one_model = hand_plan(steps_per_sync=1, use_inter_host_allreduce=blocks)
    arguments = {"averaged": plan_to_raw(averaged), "one_model": plan_to_raw(one_model), "steps": STEPS}
    ranks = launch("support.replicated_jobs:train_both", arguments, ranks=4, hosts=2)

    every_table = {table.name for table in averaged.workload.tables}
    assert [rank["averaged"]["group"] for rank in ranks] == ([0, 0, 1, 1] if blocks else [0, 1, 0, 1])
    for job in ("averaged", "one_model", "planned"):
        assert set[str]().union(*(rank[job]["weights"] for rank in ranks)) == every_table
        assert max(max(rank[job]["weights"].values()) for rank in ranks) <= LARGEST_DIFFERENCE, job
    for job in ("averaged", "one_model"):
        assert min(min(rank[job]["moved"].values()) for rank in ranks) > LEAST_MOVE
    assert max(rank["one_model"]["one_model"] for rank in ranks) <= LARGEST_DIFFERENCE  # sgd: as one unsharded model
    assert min(rank["averaged"]["one_model"] for rank in ranks) > 1e-4  # the averages differ from it, and are met
    assert [rank["planned"]["planned"] for rank in ranks] == [True, False, False, False]
