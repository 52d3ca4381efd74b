"""Which modules of a model are planned, and how their tables are called."""

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def test_modules_that_are_not_planned_are_refused_by_name() -> None:
    import torch
    from torchrec import EmbeddingBagConfig
    from torchrec.distributed.fused_embeddingbag import FusedEmbeddingBagCollectionSharder
    from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

    from recsmith.torchrec import read_workload

    tables = [EmbeddingBagConfig(name="t", embedding_dim=8, num_embeddings=10, feature_names=["f"])]
    model = torch.nn.Sequential()
    model.add_module("fused", FusedEmbeddingBagCollection(tables, torch.optim.SGD, {"lr": 0.1}))
    with pytest.raises(UsageError, match="module 'fused' is a FusedEmbeddingBagCollection"):
        read_workload(model, [FusedEmbeddingBagCollectionSharder()], batch_size=16)  # type: ignore[list-item]


def test_collections_come_in_the_order_of_the_model_with_their_tables() -> None:
    from support.jobs import TwoCollections
    from torchrec.distributed.sharding_plan import get_default_sharders

    from recsmith.adapters.embedding_collections import collections, table_names

    found = collections(TwoCollections(tables=2), get_default_sharders())
    assert [(each.path, list(each.configs), each.weighted) for each in found] == [
        ("pooled", ["t0", "t1"], False), ("weighted", ["t0"], True), ("sequence", ["s"], False),
    ]  # fmt: skip
    assert table_names(found) == {
        ("pooled", "t0"): "pooled.t0", ("weighted", "t0"): "weighted.t0",  # one name, two collections
        ("pooled", "t1"): "t1", ("sequence", "s"): "s",
    }  # fmt: skip


def test_what_no_sharder_shards_is_not_planned() -> None:
    from support.jobs import TwoCollections

    from recsmith.adapters.embedding_collections import collections

    assert collections(TwoCollections(), []) == []
