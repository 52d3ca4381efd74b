"""Arguments of RecSmithPlanner: a reserve, and errors that say what takes the place of TorchRec's."""

from inspect import signature
from typing import Any

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def _planner(*cluster: Any, **words: Any) -> Any:
    from recsmith.torchrec import RecSmithPlanner

    return RecSmithPlanner(*cluster, **words)


@pytest.mark.parametrize("reserve", ["10GiB", 10 * 2**30])
def test_a_reserve_is_kept_free_on_every_device(reserve: int | str) -> None:
    from torchrec.distributed.planner import Topology

    topology = Topology(world_size=2, compute_device="cuda", hbm_cap=40 * 2**30)
    for cluster in ("h100:2", topology):
        bare, made = _planner(cluster).cluster, _planner(cluster, reserve_bytes=reserve).cluster
        assert made.capacities == tuple(capacity - 10 * 2**30 for capacity in bare.capacities)


@pytest.mark.parametrize("reserve", ["1000GiB", -1, "much"])
def test_a_reserve_that_cannot_be_is_refused(reserve: int | str) -> None:
    with pytest.raises(UsageError):
        _planner("h100:2", reserve_bytes=reserve)


def test_the_arguments_of_torchrecs_planner_are_taken_or_answered() -> None:
    from torchrec.distributed.planner import EmbeddingShardingPlanner

    from recsmith.adapters.arguments import OWN_ARGUMENTS, TORCHREC_ARGUMENTS
    from recsmith.torchrec import RecSmithPlanner

    theirs = set(signature(EmbeddingShardingPlanner.__init__).parameters) - {"self"}
    assert theirs <= {*OWN_ARGUMENTS, *TORCHREC_ARGUMENTS}
    assert set(OWN_ARGUMENTS) == set(signature(RecSmithPlanner).parameters) - {"search"}
    for name, instead in TORCHREC_ARGUMENTS.items():
        with pytest.raises(UsageError) as error:
            _planner("h100:2", **{name: None})
        assert str(error.value) == f"RecSmithPlanner takes no '{name}'; {instead}"
    with pytest.raises(UsageError, match="give the topology first"):
        _planner(topology=None)


def test_a_misspelt_argument_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="takes no 'batchsize'; did you mean 'batch_size'"):
        _planner("h100:2", batchsize=3)


def test_a_planner_without_a_cluster_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a cluster first"):
        _planner()
