"""The same settings as TorchRec's managed collisions: kinds and shapes, on CPU."""

from importlib.util import find_spec
from typing import Any

import pytest

from recsmith.errors import UsageError
from recsmith.workloads import Dynamic

pytestmark = [
    pytest.mark.skipif(find_spec("torchrec") is None, reason="needs TorchRec"),
    pytest.mark.usefixtures("torchrec"),
]


def bags() -> Any:
    import torch
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

    tables = [
        EmbeddingBagConfig(name=f"t{name}", embedding_dim=8, num_embeddings=64, feature_names=[name]) for name in "abc"
    ]
    return EmbeddingBagCollection(tables=tables, device=torch.device("cpu"))


def test_each_rule_is_the_module_that_keeps_it():
    import torch
    from torchrec import KeyedJaggedTensor

    from recsmith.training.systems.dynamic.managed import to_managed_collisions

    rules = {"ta": Dynamic(evict="lru"), "tb": Dynamic(evict="lfu"), "tc": Dynamic(evict="none")}
    made: Any = to_managed_collisions(bags(), rules, torch.device("cpu"), buckets=4)
    modules = made._managed_collision_collection._managed_collision_modules
    assert [type(modules[name]).__name__ for name in rules] == [
        "HashZchManagedCollisionModule", "MCHManagedCollisionModule", "HashZchManagedCollisionModule",
    ]  # fmt: skip
    assert {modules[name].output_size() for name in rules} == {64}
    assert modules["ta"]._eviction_policy_name.name == "LRU_EVICTION"
    assert modules["tc"]._eviction_policy_name is None
    assert type(modules["tb"]._eviction_policy).__name__ == "LFU_EvictionPolicy"
    ids = KeyedJaggedTensor(
        keys=["a", "b", "c"], values=torch.tensor([10**15, 7, 3, 2**50, 5, 6]), lengths=torch.ones(6, dtype=torch.int32)
    )
    with pytest.raises(RuntimeError, match="readonly"):  # FBGEMM gives rows on GPUs alone
        made(ids)
    kept: Any = to_managed_collisions(bags(), {**rules, "ta": Dynamic(evict="none")}, torch.device("cpu"))
    vectors, _ = kept.eval()(ids)
    assert vectors.values().shape == (2, 24)
    assert torch.isfinite(vectors.values()).all()


@pytest.mark.parametrize(
    ("rule", "buckets", "words"),
    [
        (Dynamic(admit=2), 1, "'ta' has admit above 1, which TorchRec's managed collisions do not know"),
        (Dynamic(evict="age"), 1, "'ta' has evict: age"),
        (Dynamic(), 5, "64 rows, which 5 buckets do not share evenly"),
    ],
)
def test_what_torchrec_has_not_is_refused(rule: Dynamic, buckets: int, words: str):
    import torch

    from recsmith.training.systems.dynamic.managed import to_managed_collisions

    tables = {"ta": rule, "tb": Dynamic(), "tc": Dynamic()}
    with pytest.raises(UsageError, match=words):
        to_managed_collisions(bags(), tables, torch.device("cpu"), buckets=buckets)
    with pytest.raises(UsageError, match="table 'tc' has no rule"):
        to_managed_collisions(bags(), {"ta": Dynamic(), "tb": Dynamic()}, torch.device("cpu"))
