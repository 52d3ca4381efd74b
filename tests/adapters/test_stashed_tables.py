"""Tables that rest, in TorchRec's words: the flag of their configurations, and what cannot be said by it."""

from dataclasses import replace
from typing import Any

import pytest
from support.build import placed, plan_of, table, workload

from recsmith import load_cluster
from recsmith.errors import PlanMismatch
from recsmith.plans import Plan

pytestmark = pytest.mark.usefixtures("torchrec")


def model() -> Any:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    configs = [
        EmbeddingBagConfig(name=name, num_embeddings=100, embedding_dim=32, feature_names=[name]) for name in "ab"
    ]
    return torch.nn.Sequential(EmbeddingBagCollection(tables=configs, device=torch.device("meta")))


def plan(kind: str, *rests: Any) -> Plan:
    tables = [replace(table(name), collection="0") for name in "ab"]
    places = [replace(placed(n, "table_wise", [0]), stash=rest) for n, rest in zip("ab", rests, strict=True)]
    return plan_of(workload(*tables), load_cluster(kind), *places)


def flags(made: Any) -> list[bool]:
    return [config.stash_weights for config in made[0].embedding_bag_configs()]


def test_the_flag_is_set_as_the_plan_says_and_asked_for():
    from recsmith.torchrec import stash_tables, to_sharding_plan

    made, rests = model(), plan("h100:2", "weights", None)
    with pytest.raises(PlanMismatch, match="table 'a' rests in host memory in the plan"):
        to_sharding_plan(rests, made, device="cuda")
    assert stash_tables(rests, made) == 1
    assert flags(made) == [True, False]
    assert to_sharding_plan(rests, made, device="cuda").plan["0"]["a"].sharding_type == "table_wise"  # type: ignore[index]  # pyright: ignore[reportIndexIssue, reportUnknownMemberType]
    assert stash_tables(plan("h100:2", None, None), made) == 0
    assert flags(made) == [False, False]


def test_optimizer_state_is_nothing_that_torchrec_moves():
    from recsmith.torchrec import stash_tables

    made = model()
    with pytest.raises(PlanMismatch, match="weights_and_state, and TorchRec"):
        stash_tables(plan("cpu:2", "weights", "weights_and_state"), made)
    assert flags(made) == [False, False]
