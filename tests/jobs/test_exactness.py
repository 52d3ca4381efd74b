"""A sharded model trains like the unsharded one: every type, on real TorchRec, in real processes.

Starting the processes of a job takes most of its time. By default it is one job: on two hosts every type runs, and a
few steps show a wrong gradient, state or shard. `make soak` trains longer, also on one host and on one device.
"""

from importlib.util import find_spec

import pytest
from support.exactness import COLUMN_SPLITS, cpu_cluster, every_type

from recsmith.plans import plan_to_raw

pytestmark = pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed")

OPTIMIZERS = ["sgd", "adagrad", "rowwise_adagrad"]
STEPS, MANY_STEPS = 5, 100
LARGEST_DIFFERENCE = 1e-6
LEAST_MOVE = 1e-3  # a table that training left alone proves nothing


@pytest.mark.parametrize(
    ("local", "hosts", "steps"),
    [
        (2, 2, STEPS),
        *(pytest.param(*shape, MANY_STEPS, marks=pytest.mark.soak) for shape in ((1, 1), (2, 1), (4, 1), (2, 2))),
    ],
)
def test_every_type_trains_like_the_unsharded_model(local: int, hosts: int, steps: int) -> None:
    from recsmith.jobs.launch import launch

    plan = every_type(cpu_cluster(local, hosts))
    arguments = {"plan": plan_to_raw(plan), "optimizers": OPTIMIZERS, "steps": steps, "batch_size": 4}
    results = launch("recsmith.jobs.exactness:compare", arguments, ranks=local * hosts, hosts=hosts)
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
