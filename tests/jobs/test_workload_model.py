"""A workload's model: collections as TorchRec wants them, and batches that ask for what features say."""

import pytest
from support.build import cluster, placed, plan_of, table, workload

from recsmith.errors import UsageError
from recsmith.workloads import AccessProfile, Feature, Workload

pytestmark = pytest.mark.usefixtures("torchrec")


def mixed() -> Workload:
    """Pooled, weighted and sequence tables; sequences of two widths."""
    weighted = (Feature(name="w", pooling_factor=2.0, weighted=True),)
    two = tuple(Feature(name=name, pooling_factor=2.5) for name in ("x", "y"))
    return workload(
        table("b", features=two), table("a", dim=8), table("w", features=weighted), table("s", dim=8, pooling="none"),
        table("t", dim=8, pooling="none"), table("u", dim=16, pooling="none"),
    )  # fmt: skip


def test_tables_share_a_collection_where_torchrec_lets_them():
    from recsmith.jobs.workload_model import collection_groups

    groups = [[each.name for each in tables] for tables in collection_groups(mixed())]
    assert sorted(groups) == [["a", "b"], ["s", "t"], ["u"], ["w"]]


def test_means_stay_with_those_of_their_collection():
    from recsmith.jobs.workload_model import collection_groups

    means = [table(name, pooling="mean", collection=of) for name, of in (("a", "x"), ("b", "x"), ("c", "y"))]
    groups = [[each.name for each in tables] for tables in collection_groups(workload(*means, table("d")))]
    assert sorted(groups) == [["a", "b"], ["c"], ["d"]]


def test_a_plan_gets_the_collections_of_the_model():
    from recsmith.jobs.workload_model import collection_groups, with_model_collections

    plan = plan_of(mixed(), cluster(), *(placed(each, "table_wise", [0]) for each in "abstuw"))
    moved = with_model_collections(plan)
    assert moved.placements == plan.placements
    for i, tables in enumerate(collection_groups(plan.workload)):
        for each in tables:
            assert next(t for t in moved.workload.tables if t.name == each.name).collection == f"collections.{i}"


def test_a_model_answers_every_feature_of_a_batch():
    import torch

    from recsmith.jobs.workload_model import WorkloadModel, random_batch

    work = mixed()
    batch = random_batch(work, 64, torch.Generator().manual_seed(0))
    answers = WorkloadModel(work, torch.device("cpu"))(batch)
    assert set(answers) == {"a/a", "b/x", "b/y", "w/w", "s/s", "t/t", "u/u"}
    assert answers["b/x"].shape == (64, 32)
    assert answers["s/s"].shape == (64, 8)  # one id a sample
    pooled, *_, weighted = batch.features
    assert set(pooled["b/x"].lengths().tolist()) == {2, 3}
    assert pooled.weights_or_none() is None
    assert weighted["w/w"].weights().shape == (128,)


def test_ids_are_uniform_but_where_a_table_says_where_its_hot_rows_lie():
    import torch

    from recsmith.jobs.workload_model import random_batch

    front, told = AccessProfile(hot_rows="in_front"), AccessProfile(block_lookups=(1.0, 0.0, 0.0, 3.0))
    work = workload(
        table("even", 1000, pooling_factor=8.0), table("front", 1000, pooling_factor=8.0, access=front),
        table("told", 1000, pooling_factor=8.0, access=told), batch_size=512,
    )  # fmt: skip
    (features,) = random_batch(work, 512, torch.Generator().manual_seed(0)).features
    drawn = {name: features[f"{name}/{name}"].values() for name in ("even", "front", "told")}
    quarter = {name: torch.bincount(ids // 250) / 4096 for name, ids in drawn.items()}
    assert quarter["even"].tolist() == pytest.approx([0.25] * 4, abs=0.03)
    assert quarter["front"][0] > 0.7
    assert quarter["told"].tolist() == pytest.approx([0.25, 0, 0, 0.75], abs=0.03)


def test_data_types_that_torchrec_does_not_train_are_refused():
    from recsmith.jobs.workload_model import collection_groups

    with pytest.raises(UsageError, match="table 'a' is int8; TorchRec trains fp32, fp16, bf16"):
        collection_groups(workload(table("a", data_type="int8")))
