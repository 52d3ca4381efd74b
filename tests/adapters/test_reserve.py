"""What RecSmithPlanner keeps free of tables: what is stated, a storage reservation, or an estimate that it logs."""

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from recsmith import load_cluster
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
    with pytest.raises(Infeasible, match=r"Proved.*Planning kept 1\.25.* GiB of each device free of tables") as error:
        _planner(tight)
    assert "dense_optimizer=" in str(error.value)
    with pytest.raises(Infeasible, match=r"Planning kept .*, as FixedPercentageStorageReservation reserves\."):
        _planner(load_cluster("h100:2").with_memory(2**16), storage_reservation=_percentage(0.9))


def test_on_cpu_a_percentage_says_that_it_is_of_hbm() -> None:
    planner = _planner("cpu:2", storage_reservation=_percentage(0.25))
    assert planner.result.plan.cluster.reserve_bytes == 0
    assert "is of HBM, which CPU ranks do not have" in planner.reserve.words


@pytest.mark.soak
def test_whole_jobs_take_what_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    from memory_jobs import JOBS  # pyright: ignore[reportMissingImports]

    from recsmith.jobs.launch import launch

    for name, job in JOBS.items():
        cluster = load_cluster(job.cluster)
        for rank in launch("memory_jobs:measure", {"name": name}, ranks=cluster.world_size, hosts=cluster.hosts):
            assert abs((rank["shards"] + rank["reserve"]) / rank["peak"] - 1) < 0.05, name
