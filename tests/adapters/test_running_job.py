"""A running job beside its plan: its plan imported, and watched."""

import json
import logging
import math
import warnings
from pathlib import Path
from typing import Any

import pytest

import recsmith

pytestmark = pytest.mark.usefixtures("torchrec")
TABLES = ((1000, 32), (20_000, 64), (300_000, 64), (50, 8))


def _model() -> Any:
    import torch
    from torch import nn
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ebc = EmbeddingBagCollection(
                device=torch.device("meta"),
                tables=[
                    EmbeddingBagConfig(name=f"t{i}", num_embeddings=rows, embedding_dim=dim, feature_names=[f"f{i}"])
                    for i, (rows, dim) in enumerate(TABLES)
                ],
            )

    return Model()


@pytest.fixture(scope="module")
def running() -> tuple[Any, Any]:
    """(the model, TorchRec's own plan of it on two hosts of two GPUs)."""
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology

    model = _model()
    topology = Topology(world_size=4, local_world_size=2, compute_device="cuda")
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sharding_plan = EmbeddingShardingPlanner(topology=topology, batch_size=64, stats=[]).plan(
                model,
                [EmbeddingBagCollectionSharder()],  # type: ignore[list-item]
            )
    finally:
        logging.disable(logging.NOTSET)
    return model, sharding_plan


def test_object_dump_and_print_give_one_plan(running: tuple[Any, Any], tmp_path: Path) -> None:
    from recsmith.torchrec import import_plan

    model, sharding_plan = running
    imported = import_plan(sharding_plan, model, "h100:2x2", batch_size=64)
    assert len(imported.placements) == len(TABLES)
    (tmp_path / "dump.json").write_text(json.dumps(sharding_plan._serialize()))
    (tmp_path / "printed.txt").write_text(str(sharding_plan))
    for name in ("dump.json", "printed.txt"):
        read = recsmith.price(imported.workload, "h100:2x2", str(tmp_path / name))
        assert (read.digest, read.cost, read.gap) == (imported.digest, imported.cost, imported.gap)


def test_an_imported_plan_is_a_plan_like_others(running: tuple[Any, Any], tmp_path: Path) -> None:
    from recsmith.torchrec import import_plan

    model, sharding_plan = running
    imported = import_plan(sharding_plan, model, "h100:2x2", batch_size=64)
    recsmith.save_plan(imported, str(tmp_path / "running.json"))
    read = recsmith.load_plan(str(tmp_path / "running.json"))
    assert recsmith.simulate(read).cost == imported.cost
    assert recsmith.explain(read) == recsmith.explain(imported)
    better = recsmith.plan(read.workload, read.cluster, start=read, planner="cost_greedy").plan
    assert better.cost.total_s <= imported.cost.total_s
    assert recsmith.diff(read, better).before_s == imported.cost.total_s


def test_a_plan_of_another_model_is_refused(running: tuple[Any, Any]) -> None:
    from torch import nn

    from recsmith.torchrec import import_plan

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = _model()

    with pytest.raises(recsmith.PlanMismatch, match=r"module 'inner\.ebc'"):
        import_plan(running[1], Wrapped(), "h100:2x2", batch_size=64)


STEPS, SKIP = 4, 2


@pytest.fixture(scope="module")
def said(torchrec: None) -> list[dict[str, Any]]:
    from recsmith.jobs.launch import launch

    return launch("support.watched:watched", {"steps": STEPS, "skip": SKIP, "steps_left": 10**9}, ranks=2)


def test_every_rank_has_the_same_report(said: list[dict[str, Any]]) -> None:
    assert said[0]["report"] == said[1]["report"]
    assert said[0]["new"] == said[1]["new"]


def test_the_watch_ends_by_itself_and_training_goes_on(said: list[dict[str, Any]]) -> None:
    for rank in said:
        assert rank["ended"] == [False] * (SKIP + STEPS - 1) + [True, False]
        assert (rank["times"], rank["seen"]) == (STEPS, STEPS)


def test_kernels_take_time_where_the_plan_has_tables(said: list[dict[str, Any]]) -> None:
    busy, idle = said[0]["report"]["ranks"]
    for part in ("forward_s", "backward_s"):
        assert math.isfinite(busy[part])
        assert busy[part] > 0
        assert busy[f"predicted_{part}"] > 0
        assert idle[f"predicted_{part}"] == 0
    assert idle["backward_s"] == 0


def test_the_workload_has_the_statistics_of_all_ranks_batches(said: list[dict[str, Any]]) -> None:
    from support import watched as job

    workload = said[0]["report"]["workload"]
    assert workload["batch_size"] == job.BATCH
    assert [table["features"][0]["pooling_factor"] for table in workload["tables"]] == list(job.READ)
    assert [table["access"]["lookups"] for table in workload["tables"]] == [job.BATCH * count for count in job.READ]


def test_both_tables_on_one_rank_do_not_pay(said: list[dict[str, Any]]) -> None:
    report = said[0]["report"]
    assert report["running_s"] > report["planned_s"]  # read more often than was planned
    assert report["saved_s"] > 0
    assert report["moved_bytes"] > 0
    assert {rank for placement in said[0]["new"] for rank in placement["ranks"]} == {0, 1}
