"""A 2D job trains as it should: every type, on TorchRec's DMPCollection, in real processes of two sharding groups."""

from importlib.util import find_spec

import pytest
from support.exactness import every_type

from recsmith import Plan, load_cluster
from recsmith.clusters import sharding_group
from recsmith.plans import plan_to_raw

pytestmark = pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed")

STEPS = 5  # an odd number: of two steps a synchronisation, the last leaves the groups apart
LARGEST_DIFFERENCE = 1e-6  # of the table's largest weight; NaN counts as infinite
LEAST_MOVE = 1e-3  # a table that training left alone proves nothing


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
