"""TorchRec's ShardingPlan as an object, dumped and printed becomes one Plan, which every command takes."""

import json
import logging
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
