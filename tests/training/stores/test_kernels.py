"""A row store's kernels stand inside TorchRec where the store asks for them, and nowhere else."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
from torchrec.distributed.embedding_lookup import GroupedEmbeddingsLookup, GroupedPooledEmbeddingsLookup
from training.stores.store_with_kernels import StoreWithKernels

from recsmith.clusters import load_cluster
from recsmith.planning.simulate import price
from recsmith.plans import Placement, save_plan
from recsmith.training.stores.kernels import kernels_of, own_kernels
from recsmith.workloads import Feature, Table, Workload

LOOKUPS = (GroupedPooledEmbeddingsLookup, GroupedEmbeddingsLookup)


def _methods() -> list[Any]:
    return [vars(each)["_create_embedding_kernel"] for each in LOOKUPS]


def _fail_meanwhile(before: list[Any]) -> None:
    with own_kernels(StoreWithKernels.kernel):
        assert all(a is not b for a, b in zip(before, _methods(), strict=True))
        raise RuntimeError("meanwhile")


def test_torchrec_is_as_it_was_afterwards() -> None:
    before = _methods()
    with pytest.raises(RuntimeError, match="meanwhile"):
        _fail_meanwhile(before)
    assert all(a is b for a, b in zip(before, _methods(), strict=True))


def test_a_store_without_kernels_leaves_all_to_torchrec() -> None:
    choose: Any = kernels_of("device")
    assert choose(None, True, torch.device("cpu")) is None


@pytest.mark.parametrize("pooled", [True, False])
def test_both_lookups_ask_with_what_torchrec_gives_them(pooled: bool) -> None:
    asked: list[Any] = []

    def made(**given: Any) -> Any:
        return asked.append(given)

    config, device, lookup = SimpleNamespace(embedding_tables=[]), torch.device("cpu"), object()
    with own_kernels(lambda *given: asked.append(given) or made):  # type: ignore[arg-type,return-value]
        method = _methods()[0 if pooled else 1]
        method(lookup, config, device, "pg", "row_wise", None) if pooled else method(lookup, config, "pg", device, None)
    assert asked[0] == (config, pooled, device)
    assert asked[1]["pg"] == "pg"
    assert asked[1].get("sharding_type") == ("row_wise" if pooled else None)


def a_plan(folder: Path) -> str:
    """A table that is not copied to every rank, and so is fused."""
    table = Table(
        name="item", num_embeddings=300, embedding_dim=4, features=(Feature(name="item", pooling_factor=1.0),)
    )
    workload = Workload(batch_size=40, optimizer="rowwise_adagrad", tables=(table,))
    cluster = load_cluster("cpu:1")
    placed = Placement(table="item", sharding_type="table_wise", compute_kernel="fused", ranks=(0,))
    save_plan(price(workload, cluster, [placed]), folder / "plan.json")
    return str(folder / "plan.json")


@pytest.mark.usefixtures("torchrec")
def test_a_job_trains_the_same_with_kernels_that_its_store_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from recsmith.training import Run, RunData, RunModel, load_model, train

    monkeypatch.syspath_prepend(Path(__file__).parents[2])
    data: dict[str, Any] = {
        "format": "generator", "num_samples": 200, "dense": 2, "features": [{"name": "item", "num_embeddings": 300}],
    }  # fmt: skip
    of: dict[str, Any] = {"data": RunData(train=data, global_batch_size=40)}
    of["model"] = RunModel(embedding_dim=4, bottom=(4,), top=(4,))
    of["plan"] = a_plan(tmp_path)
    train(Run(output=str(tmp_path / "plain"), **of))
    rows = {"name": "training.stores.store_with_kernels:StoreWithKernels", "report": str(tmp_path / "report")}
    train(Run(output=str(tmp_path / "own"), rows=rows, **of))
    assert (tmp_path / "report").read_text() == "OwnBag item"
    plain, own = (load_model(tmp_path / name / "model").table("item") for name in ("plain", "own"))
    assert (plain == own).all()
