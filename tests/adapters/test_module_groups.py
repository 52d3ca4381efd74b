"""Modules of a 2D job with sharding groups of their own: plans that share devices, and training beside one model."""

from typing import Any

import pytest
from support.build import placed, plan_of, table, workload

from recsmith import load_cluster
from recsmith.errors import Infeasible, UsageError
from recsmith.plans import plan_to_raw

pytestmark = pytest.mark.usefixtures("torchrec")
GIB = 2**30


def model() -> Any:
    """Two pooled tables, and one of sequences."""
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig

    def config(cls: Any, name: str, rows: int) -> Any:
        return cls(name=name, embedding_dim=64, num_embeddings=rows, feature_names=[f"f_{name}"])

    meta = torch.device("meta")
    bags = EmbeddingBagCollection([config(EmbeddingBagConfig, name, 4_000_000) for name in "ab"], device=meta)
    rows = EmbeddingCollection([config(EmbeddingConfig, "c", 4_000_000)], device=meta)
    return torch.nn.ModuleDict({"bags": bags, "rows": rows})


def planners(hbm: float, **words: Any) -> tuple[Any, Any]:
    from torchrec import EmbeddingBagCollection, EmbeddingCollection

    from recsmith.torchrec import RecSmithPlanner

    job = load_cluster("h100:4").with_memory(int(hbm * GIB), 0)
    bags = RecSmithPlanner(job, sharding_group_size=2, only=EmbeddingBagCollection, iterations=1, optimizer="sgd")
    rows = RecSmithPlanner(job, only=EmbeddingCollection, beside=[bags], iterations=1, optimizer="sgd", **words)
    return bags, rows


def test_each_planner_plans_its_own_modules_in_memory_that_the_other_leaves() -> None:
    bags, rows = planners(3.0)
    assert {each.table for each in bags.make(model()).plan.placements} == {"a", "b"}
    bags.plan(model())
    made = rows.make(model()).plan
    assert {each.table for each in made.placements} == {"c"}
    taken = [each.hbm_bytes for each in bags.result.plan.cost.per_device]
    assert list(made.cluster.hbm_per_rank) == [3 * GIB - taken[rank // 2] for rank in range(4)]


def test_memory_that_is_taken_is_not_planned_twice() -> None:
    bags, rows = planners(1.1)
    bags.plan(model())
    with pytest.raises(Infeasible, match="the tables need at least"):
        rows.make(model())


def test_configurations_are_torchrecs() -> None:
    from torchrec import EmbeddingCollection

    bags, rows = planners(3.0)
    bags.plan(model())
    found = rows.submodule_config(rows.plan(model()))
    assert (found.module, found.sharding_group_size, found.use_inter_host_allreduce) == (EmbeddingCollection, 4, False)
    assert list(found.plan.plan) == ["rows"]


def test_tables_split_by_hosts_that_torchrec_counts_as_one_are_refused() -> None:
    from torchrec import EmbeddingBagCollection

    from recsmith.problems import Space
    from recsmith.torchrec import RecSmithPlanner

    words: Any = {"only": EmbeddingBagCollection, "iterations": 1, "optimizer": "sgd"}
    by_hosts = RecSmithPlanner("h100:2x2", space=Space(types=("table_row_wise",)), **words)
    plan = by_hosts.plan(model())
    with pytest.raises(UsageError, match=r"is table_row_wise on 2 hosts, and TorchRec counts a module's own group"):
        by_hosts.submodule_config(plan)


def test_what_cannot_be_is_refused() -> None:
    from torchrec import EmbeddingBagCollection

    from recsmith.torchrec import RecSmithPlanner

    _, rows = planners(3.0)
    with pytest.raises(UsageError, match="has planned nothing yet"):
        rows.make(model())
    with pytest.raises(UsageError, match="this planner plans all modules"):
        RecSmithPlanner("h100:4").submodule_config(rows)
    other = RecSmithPlanner("h100:8", only=EmbeddingBagCollection, iterations=1, optimizer="sgd")
    other.plan(model())
    rows.beside = (other,)
    with pytest.raises(UsageError, match="the plan beside is for 8 devices, and this one for 4"):
        rows.make(model())


def test_groups_of_two_sizes_train_like_one_model() -> None:
    from recsmith.jobs.launch import launch

    tables = [table("a", rows=40, dim=8, pooling_factor=3.0), table("b", rows=30, dim=8, pooling_factor=2.0),
              table("c", rows=50, dim=8, pooling_factor=3.0, pooling="none")]  # fmt: skip
    work = workload(*tables, batch_size=4, optimizer="sgd")
    by_hand = [placed(name, "table_wise", [0]) for name in "abc"]
    plan = plan_of(work, load_cluster("cpu:4"), *by_hand)
    ranks = launch("support.module_groups:train", {"plan": plan_to_raw(plan), "steps": 4}, ranks=4)
    assert set[str]().union(*(rank["weights"] for rank in ranks)) == set("abc")
    assert max(apart for rank in ranks for apart in rank["weights"].values()) <= 1e-6
