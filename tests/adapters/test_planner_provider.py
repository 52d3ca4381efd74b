"""RecSmith plans for TorchRec's planning service, which came with TorchRec 1.9."""

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner.types import ParameterConstraints, PlannerErrorType

from recsmith.adapters.planner_provider import FROM, RecSmithPlannerProvider
from recsmith.clusters import load_cluster
from recsmith.errors import MissingExtra
from recsmith.plans import load_plan
from recsmith.plans.running import load_placements

pytestmark = pytest.mark.usefixtures("torchrec")
THERE = find_spec("torchrec.distributed.planner.provider") is not None
in_1_9 = pytest.mark.skipif(not THERE, reason="TorchRec's planning service came with 1.9")


def model(rows: int = 100_000, count: int = 6) -> EmbeddingBagCollection:
    tables = [
        EmbeddingBagConfig(name=f"t{i}", embedding_dim=64, num_embeddings=rows * (i + 1), feature_names=[f"f{i}"])
        for i in range(count)
    ]
    return EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def planned(provider: RecSmithPlannerProvider, skus: tuple[str, ...], **words: Any) -> tuple[Any, Any]:
    """What TorchRec's dry run says of each SKU, and its context."""
    types: Any = import_module("torchrec.distributed.planner.types")
    api: Any = import_module("torchrec.distributed.planner.dry_run.api")
    dry: Any = import_module("torchrec.distributed.planner.dry_run.types")
    executor: Any = import_module("torchrec.distributed.planner.executor")
    asked = {"model": model(), "sharders": [EmbeddingBagCollectionSharder()], "world_size": 8, "local_world_size": 8,
             "batch_size": 512, "training_framework": types.TrainingFramework.APF, **words}  # fmt: skip
    request = dry.DryRunRequest(sku_list=list(skus), **asked)
    context = types.PlannerSessionContext(request=request, results={})
    return api.DryRunOrchestrator(executor.DefaultPlannerExecutor(provider)).plan(request, context), context


@pytest.mark.skipif(THERE, reason="the service is there")
def test_an_older_torchrec_is_told():
    with pytest.raises(MissingExtra, match=r"planning service came with 1\.9"):
        RecSmithPlannerProvider()


@in_1_9
def test_a_dry_run_plans_each_kind_of_device(tmp_path: Path):
    results, context = planned(RecSmithPlannerProvider(planner="cost_greedy"), ("H100", "gb200", "a100-80"))
    assert {sku: result.success for sku, result in results.items()} == dict.fromkeys(("H100", "gb200", "a100-80"), True)
    for sku, result in results.items():
        assert len(result.sharding_options) == 6
        assert result.estimated_max_hbm_bytes > 0
        assert context.hw_source[sku] == FROM
        tables = result.sharding_plan.plan[""]
        assert sorted(tables) == [f"t{i}" for i in range(6)]
    (tmp_path / "printed.txt").write_text(str(results["H100"].sharding_plan))
    read = load_placements(str(tmp_path / "printed.txt"), model_workload(), load_cluster("h100:8"))
    assert len(read) == 6


def model_workload() -> Any:
    from recsmith.torchrec import read_workload

    sharders: Any = [EmbeddingBagCollectionSharder()]
    return read_workload(model(), sharders, batch_size=512)


@in_1_9
def test_a_request_that_was_planned_before_is_answered_from_its_file(tmp_path: Path):
    provider = RecSmithPlannerProvider(cache=tmp_path / "plans", planner="cost_greedy")
    first, before = planned(provider, ("H100",))
    again, after = planned(provider, ("H100",))
    assert (before.cache_hit, after.cache_hit) == ({"H100": False}, {"H100": True})
    assert str(first["H100"].sharding_plan) == str(again["H100"].sharding_plan)
    (file,) = (tmp_path / "plans").iterdir()
    assert load_plan(file).cluster.device.name == "h100"
    file.write_text(file.read_text()[:100])
    mended, third = planned(provider, ("H100",))
    assert third.cache_hit == {"H100": False}
    assert str(mended["H100"].sharding_plan) == str(first["H100"].sharding_plan)
    other, context = planned(provider, ("H100",), model=model(rows=50_000))
    assert other["H100"].success
    assert context.cache_hit == {"H100": False}


@in_1_9
def test_what_does_not_fit_is_an_error_of_torchrec():
    results, _ = planned(RecSmithPlannerProvider(planner="cost_greedy"), ("H100",), hbm_gb=0.06)
    assert not results["H100"].success
    assert results["H100"].planner_error_type == PlannerErrorType.INSUFFICIENT_STORAGE
    assert "need" in results["H100"].planner_failure_reason


@in_1_9
def test_pods_memory_and_constraints_of_a_request_count():
    constraints = {"t0": ParameterConstraints(sharding_types=["row_wise"])}
    results, context = planned(
        RecSmithPlannerProvider(planner="cost_greedy"), ("gb200",), world_size=16, local_world_size=4, pod_size=4,
        hbm_gb=20.0, constraints=constraints,
    )  # fmt: skip
    assert results["gb200"].sharding_plan.plan[""]["t0"].sharding_type == "row_wise"
    (topology,) = context.topology_cache.values()
    assert topology.devices[0].storage.hbm == 20 * 2**30
    assert (topology.local_world_size, topology.intra_group_size) == (4, 16)


@in_1_9
@pytest.mark.parametrize(
    ("words", "message"),
    [({"skus": ("GRANDTETON",)}, "or say which one it is: clusters="), ({"proposer": "greedy"}, "proposer_type")],
)
def test_what_it_does_not_know_is_refused(words: dict[str, Any], message: str):
    types: Any = import_module("torchrec.distributed.planner.types")
    config = types.PlannerConfig(proposer_type=words.get("proposer"))
    results, _ = planned(RecSmithPlannerProvider(), words.get("skus", ("H100",)), planner_config=config)
    (result,) = results.values()
    assert not result.success
    assert message in result.planner_failure_reason


@in_1_9
def test_a_sku_may_be_given_a_cluster():
    big = replace(load_cluster("h100:8"), hbm_bytes=2**34)
    provider = RecSmithPlannerProvider({"GRANDTETON": big, "mine": "h200"}, planner="cost_greedy")
    results, context = planned(provider, ("GRANDTETON", "mine"))
    assert all(result.success for result in results.values())
    assert {each.devices[0].storage.hbm > 2**35 for each in context.topology_cache.values()} == {True, False}
