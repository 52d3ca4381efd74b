"""TorchRec's storage reservations: each class of the installed version, with the bytes that TorchRec reserves."""

import inspect
import warnings
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsmith import Cluster, load_cluster
from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")
DOCS = Path(__file__).parents[2] / "docs" / "torchrec.md"
GIB = 2**30
ARGUMENTS: dict[str, dict[str, Any]] = {  # of every class: what a job gives it
    "HeuristicalStorageReservation": {"percentage": 0.1},
    "FixedPercentageStorageReservation": {"percentage": 0.15},
    "FixedAbsoluteStorageReservation": {"hbm_reserved_bytes": 7 * GIB},
    "InferenceStorageReservation": {"percentage": 0.1, "dense_tensor_estimate": 3 * GIB},
}


def _reservation(name: str) -> Any:
    from torchrec.distributed.planner import storage_reservations

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the heuristic's own
        return getattr(storage_reservations, name)(**ARGUMENTS[name])


def _model() -> Any:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    table = EmbeddingBagConfig(name="t", embedding_dim=16, num_embeddings=1000, feature_names=["f", "g"])
    model = torch.nn.Module()
    model.pooled = EmbeddingBagCollection(tables=[table], device=torch.device("meta"))
    model.dense = torch.nn.Linear(4096, 4096, device="meta")
    return model


def _planned(cluster: Any, reservation: Any) -> Cluster:
    from torchrec.distributed.planner import ParameterConstraints

    from recsmith.torchrec import RecSmithPlanner

    limits = {"t": ParameterConstraints(pooling_factors=[3.0, 5.0])}
    planner = RecSmithPlanner(
        cluster, batch_size=256, constraints=limits, planner="cost_greedy", storage_reservation=reservation
    )
    planner.plan(_model())
    assert planner.result is not None
    return planner.result.plan.cluster


def test_every_reservation_of_the_installed_torchrec_is_known() -> None:
    from torchrec.distributed.planner import storage_reservations
    from torchrec.distributed.planner.types import StorageReservation

    classes = inspect.getmembers(storage_reservations, inspect.isclass)
    installed = {
        name for name, each in classes if issubclass(each, StorageReservation) and not inspect.isabstract(each)
    }
    assert installed == set(ARGUMENTS)
    text = DOCS.read_text("utf-8")
    assert all(f"| `{name}` |" in text for name in installed)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_tables_get_what_torchrecs_planner_would_leave_them(name: str, device: str) -> None:
    from torchrec.distributed.planner import ParameterConstraints, Topology
    from torchrec.distributed.sharding_plan import get_default_sharders

    topology = Topology(world_size=2, compute_device=device, hbm_cap=40 * GIB, ddr_cap=60 * GIB)
    limits = {"t": ParameterConstraints(pooling_factors=[3.0, 5.0])}
    theirs = _reservation(name).reserve(deepcopy(topology), 256, _model(), get_default_sharders(), limits)
    left = [each.storage.hbm if device == "cuda" else each.storage.ddr for each in theirs.devices]
    made = _planned(topology, _reservation(name))
    assert list(made.capacities) == left
    assert (made.reserve_bytes > 0) == (device == "cuda" or not name.startswith("Fixed"))


def _own(take: Any) -> Any:
    """A reservation of one's own, which takes from a device's storage."""
    from torchrec.distributed.planner.types import StorageReservation

    class Own(StorageReservation):
        last_reserved_topology = property(lambda self: None)  # pyright: ignore[reportAssignmentType]

        def reserve(self, topology: Any, *_: Any, **__: Any) -> Any:
            for device in topology.devices:
                take(device)
            return topology

    return Own()


def test_a_reservation_that_differs_by_rank_leaves_each_rank_its_own() -> None:
    def take(device: Any) -> None:
        device.storage.hbm -= (1 + device.rank) * GIB

    sizes = (10 * GIB, 20 * GIB)
    made = _planned(load_cluster("h100:2"), _own(take))
    whole = load_cluster("h100:2").capacities[0]
    assert made.capacities == (whole - GIB, whole - 2 * GIB)
    assert made.reserve_bytes == GIB
    uneven = _planned(replace(load_cluster("h100:2"), hbm_bytes=sizes), _own(take))
    assert uneven.capacities == (9 * GIB, 18 * GIB)


def _take(what: str, size: int) -> Any:
    return _own(lambda device: setattr(device.storage, what, getattr(device.storage, what) - size))


@pytest.mark.parametrize(
    ("what", "size", "words"),
    [
        ("ddr", 1, "Own reserves host memory or disks"),
        ("hbm", -1, "Own adds memory to a device"),
        ("hbm", 2**40, "Own leaves nothing of a device's 79.2 GiB for tables"),
    ],
)
def test_a_reservation_that_cannot_be_is_refused_by_name(what: str, size: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        _planned("h100:2", _take(what, size))


def test_torchrecs_own_refusal_is_an_error_of_ours() -> None:
    small = load_cluster("h100:2").with_memory(2**20)
    with pytest.raises(UsageError, match="HeuristicalStorageReservation leaves nothing of a device's 1 MiB"):
        _planned(small, _reservation("HeuristicalStorageReservation"))


@pytest.mark.parametrize("given", [0.15, "15%", 10 * GIB])
def test_what_is_no_reservation_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="or bytes as reserve_bytes="):
        _planned("h100:2", given)
