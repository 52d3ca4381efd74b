"""What the drop-in planner keeps free of tables: as stated, by TorchRec's reservations, or by an estimate."""

import inspect
import logging
import sys
import warnings
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsmith import Cluster, load_cluster
from recsmith.errors import Infeasible, UsageError

pytestmark = pytest.mark.usefixtures("torchrec")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GIB = 2**30


def _model() -> Any:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    table = EmbeddingBagConfig(name="t", embedding_dim=16, num_embeddings=1000, feature_names=["f"])
    model = torch.nn.Module()
    model.pooled = EmbeddingBagCollection(tables=[table], device=torch.device("meta"))
    model.dense = torch.nn.Linear(8192, 8192, device="meta")  # 256 MiB
    return model


def _planner(cluster: Any = "h100:2", **words: Any) -> Any:
    from recsmith.torchrec import RecSmithPlanner

    planner = RecSmithPlanner(cluster, planner="cost_greedy", **words)
    planner.plan(_model())
    return planner


def _percentage(share: float) -> Any:
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation

    return FixedPercentageStorageReservation(share)


def test_without_a_word_the_rest_of_the_model_is_estimated_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    planner = _planner()
    kept = planner.result.plan.cluster.reserve_bytes
    assert kept == planner.reserve.estimate.total
    assert 1.25 * GIB < kept < 1.27 * GIB  # weights, gradients, two moments, and a copy in the step: 5 x 256 MiB
    assert [record.levelno for record in caplog.records if record.name == "recsmith"] == [logging.WARNING]
    for words in ("1.25", "256 MiB for gradients", "512.1 MiB for state of adam", "Activations", "reserve_bytes="):
        assert words in caplog.text
    assert _planner(dense_optimizer="sgd").result.plan.cluster.reserve_bytes < 0.8 * GIB


def test_what_is_said_takes_the_place_of_the_estimate(caplog: pytest.LogCaptureFixture) -> None:
    own = load_cluster("h100:2").with_memory(reserve_bytes=GIB)
    whole = own.hbm_per_rank[0]
    for cluster, words, kept in (
        ("h100:2", {"reserve_bytes": 0}, 0),
        ("h100:2", {"reserve_bytes": "3GiB"}, 3 * GIB),
        (own, {}, GIB),
        (own, {"reserve_bytes": 0}, 0),
        ("h100:2", {"storage_reservation": _percentage(0.0)}, 0),
        (own, {"storage_reservation": _percentage(0.25)}, whole - int(0.75 * whole)),
    ):
        planner = _planner(cluster, **words)
        assert (planner.result.plan.cluster.reserve_bytes, planner.reserve.estimate) == (kept, None)
    assert not caplog.records  # below warnings


def test_two_words_at_once_are_refused() -> None:
    with pytest.raises(UsageError, match="reserve_bytes and storage_reservation are both given"):
        _planner(reserve_bytes=0, storage_reservation=_percentage(0.1))


def test_where_nothing_is_left_the_error_says_what_the_model_takes() -> None:
    with pytest.raises(Infeasible, match=r"a device has 1 GiB, and planning would keep 1\.25.* GiB .*reserve_bytes="):
        _planner(load_cluster("h100:2").with_memory(GIB))
    assert _planner(load_cluster("h100:2").with_memory(GIB), reserve_bytes=0).result


def test_where_too_little_is_left_the_error_says_what_was_kept() -> None:
    kept = _planner().reserve.estimate.total
    tight = load_cluster("h100:2").with_memory(kept + 2**12)
    with pytest.raises(
        Infeasible, match=r"Proved.*[^.]\. Planning kept 1\.25.* GiB of each device free of tables"
    ) as error:
        _planner(tight)
    assert "dense_optimizer=" in str(error.value)
    with pytest.raises(Infeasible, match=r"Planning kept .*, as FixedPercentageStorageReservation reserves\."):
        _planner(load_cluster("h100:2").with_memory(2**16), storage_reservation=_percentage(0.9))


def test_on_cpu_a_percentage_says_that_it_is_of_hbm() -> None:
    planner = _planner("cpu:2", storage_reservation=_percentage(0.25))
    assert planner.result.plan.cluster.reserve_bytes == 0
    assert "is of HBM, which CPU ranks do not have" in planner.reserve.text


@pytest.mark.soak
def test_whole_jobs_take_what_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    from memory_jobs import JOBS  # pyright: ignore[reportMissingImports]

    from recsmith.jobs.launch import launch

    for name, job in JOBS.items():
        cluster = load_cluster(job.cluster)
        for rank in launch("memory_jobs:measure", {"name": name}, ranks=cluster.world_size, hosts=cluster.hosts):
            assert abs((rank["shards"] + rank["reserve"]) / rank["peak"] - 1) < 0.05, name


DOCS = Path(__file__).parents[2] / "docs" / "torchrec.md"
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


def _small_model() -> Any:
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
    planner.plan(_small_model())
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
    theirs = _reservation(name).reserve(deepcopy(topology), 256, _small_model(), get_default_sharders(), limits)
    left = [each.storage.hbm if device == "cuda" else each.storage.ddr for each in theirs.devices]
    made = _planned(topology, _reservation(name))
    assert list(made.capacities) == left
    assert ((made.reserve_bytes or 0) > 0) == (device == "cuda" or not name.startswith("Fixed"))


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
