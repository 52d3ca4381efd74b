"""Virtual tables are beside a plan: their entries are those of TorchRec's planner, and their bytes are kept free."""

from typing import Any

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def _model(**fields: Any) -> Any:
    import torch
    from torchrec import EmbeddingCollection, EmbeddingConfig
    from torchrec.modules.embedding_configs import CountBasedEvictionPolicy

    given = {
        "use_virtual_table": True, "total_num_buckets": 10, "num_embeddings": 10 * 2**30,
        "virtual_table_eviction_policy": CountBasedEvictionPolicy(training_id_eviction_trigger_count=1000),
    } | fields  # fmt: skip
    tables = [
        EmbeddingConfig(name="v", embedding_dim=16, feature_names=["f"], **given),
        EmbeddingConfig(name="t", embedding_dim=16, num_embeddings=100, feature_names=["g"]),
    ]
    model = torch.nn.Module()
    model.sequences = EmbeddingCollection(tables=tables, device=torch.device("meta"))
    return model


def _limits(**fields: Any) -> dict[str, Any]:
    from torchrec.distributed.planner import ParameterConstraints
    from torchrec.distributed.types import KeyValueParams

    given = {
        "compute_kernels": ["dram_virtual_table"], "sharding_types": ["row_wise"], "use_virtual_table": True,
        "key_value_params": KeyValueParams(max_l1_cache_size=3, l2_cache_size=1),
    } | fields  # fmt: skip
    return {"v": ParameterConstraints(**given)}


def _planner(**more: Any) -> Any:
    from recsmith.torchrec import RecSmithPlanner

    given = {"cluster": "h100:4", "constraints": _limits(), "reserve_bytes": 0} | more
    return RecSmithPlanner(batch_size=16, planner="cost_greedy", **given)


@pytest.mark.parametrize("buckets", [10, None])
def test_an_entry_is_that_of_torchrecs_planner(buckets: int | None) -> None:
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith.adapters.convert import to_sharding_plan

    model = _model(total_num_buckets=buckets, num_embeddings=10 * 2**20)
    theirs = EmbeddingShardingPlanner(
        topology=Topology(world_size=4, compute_device="cuda", local_world_size=4),
        constraints=_limits(),
        batch_size=16,
        storage_reservation=FixedPercentageStorageReservation(0.1),
    ).plan(model, get_default_sharders())
    planner = _planner()
    made = planner.make(model)
    ours = to_sharding_plan(made.plan, model, device="cuda", constraints=_limits())
    assert ours.plan["sequences"]["v"] == theirs.plan["sequences"]["v"]  # type: ignore[index]
    assert set(ours.plan["sequences"]) == {"v", "t"}  # type: ignore[arg-type]
    assert [table.name for table in made.plan.workload.tables] == ["t"]


def test_what_it_keeps_on_a_device_is_kept_free() -> None:
    planner = _planner()
    plan = planner.make(_model()).plan
    outputs, ids = 16 * 4 * 16 * 4, 16 * 8
    assert plan.cluster.reserve_bytes == 3 * 2**20 + outputs + ids
    assert "of 1 virtual table. Rows of 1 of them lie in host memory or on disk until" in planner.reserve.text


def test_rows_that_nothing_bounds_are_told() -> None:
    from torchrec.modules.embedding_configs import NoEvictionPolicy

    planner = _planner()
    planner.make(_model(virtual_table_eviction_policy=NoEvictionPolicy()))
    assert "Nothing bounds the rows of 'v'" in planner.reserve.text


@pytest.mark.parametrize(
    ("fields", "limits", "cluster", "words"),
    [
        (
            {},
            {"compute_kernels": None},
            "h100:4",
            r"needs one kernel of dram_virtual_table, ssd_virtual_table, and ",
        ),
        (
            {},
            {"sharding_types": ["table_wise"]},
            "h100:4",
            r"is sharded row_wise, and its constraints allow table",
        ),
        ({}, {}, "cpu:4", r"virtual table 'v' runs on GPUs alone, and the cluster has cpu"),
        ({"virtual_table_eviction_policy": None}, {}, "h100:4", r"has no virtual_table_eviction_policy, which FBGEMM"),
        ({"total_num_buckets": 7}, {}, "h100:4", r"has 10737418240 rows in 7 buckets, which do not divide them"),
        (
            {"enable_embedding_update": True},
            {},
            "h100:4",
            r"enable_embedding_update is True; it belongs to embedding",
        ),
        ({"use_virtual_table": False}, {}, "h100:4", r"total_num_buckets is 10; only virtual tables read it"),
    ],
)
def test_what_torchrec_does_not_run_is_refused(
    fields: dict[str, Any], limits: dict[str, Any], cluster: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        _planner(cluster=cluster, constraints=_limits(**limits)).make(_model(**fields))
