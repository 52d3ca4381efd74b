"""Tables that are stored smaller, also by a method of examples/, keep the contract of table modules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

import torch
from embeddings.stored import TRANSFORMS

from recsmith.embeddings import CompressionRule, LogicalTable, transforms_of
from recsmith.errors import UsageError
from recsmith.testing.tables import COLUMNS, TableModuleContract, batch, configs
from recsmith.training.systems.stored.tables import StoredTables
from recsmith.training.tables.plain import features_of, vectors_of

CPU = torch.device("cpu")
EXAMPLES = Path(__file__).parents[4] / "examples"


class TestStoredAsItIs(TableModuleContract):
    """No table is stored smaller."""

    def make(self, configs: Any) -> Any:
        """None."""
        return StoredTables(configs, CPU, transforms={})


class TestStoredByAMethodOfOnesOwn(TableModuleContract):
    """examples/own_storage.py: a method in one file, which nothing else knows of."""

    @pytest.fixture(autouse=True)
    def examples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Examples are on the path."""
        monkeypatch.syspath_prepend(EXAMPLES)

    def make(self, configs: Any) -> Any:
        """The first table in 40 rows."""
        rule = CompressionRule(method="own_storage:Bloom", above_rows=0, arguments={"rows": 40, "hashes": 3})
        sizes = [LogicalTable(each.name, each.num_embeddings, each.embedding_dim) for each in configs]
        transforms = transforms_of([rule], sizes)
        assert list(transforms) == ["t"]
        return StoredTables(configs, CPU, transforms=transforms)

    def test_its_arguments_are_checked(self) -> None:
        rule = CompressionRule(method="own_storage:Bloom", arguments={"row": 40})
        with pytest.raises(UsageError, match="row is no setting; did you mean 'rows'"):
            transforms_of([rule], [LogicalTable("t", 900, 8)])
        with pytest.raises(UsageError, match=r"factor is 8\.0, and own_storage:Bloom does not read it"):
            transforms_of([CompressionRule(method="own_storage:Bloom", factor=8.0)], [])


class StoredContract(TableModuleContract):
    """Of a table of 90 rows that is stored by a transform."""

    name = ""

    def make(self, configs: Any) -> Any:
        """The first table is stored smaller, the other as it is."""
        return StoredTables(configs, CPU, transforms={"t": TRANSFORMS[self.name]})


STORED: dict[str, Any] = {
    name: type(f"TestStored{name.title()}", (StoredContract,), {"name": name}) for name in TRANSFORMS
}
globals().update({each.__name__: each for each in STORED.values()})


def test_ids_that_are_told_apart_have_vectors_of_their_own() -> None:
    for name in ("multiply", "add", "concat", "three", "chinese", "blocks", "generate"):
        made = STORED[name]().made()
        vectors = vectors_of(made, "t").numpy()
        assert vectors.shape == (90, COLUMNS * (2 if name == "generate" else 1))
        assert len(np.unique(vectors, axis=0)) == 90
    assert len(np.unique(vectors_of(STORED["hash"]().made(), "t").numpy(), axis=0)) <= 20


def test_each_partition_is_a_feature_to_the_model_where_it_generates() -> None:
    made = StoredTables(configs(), CPU, transforms={"t": TRANSFORMS["generate"]})
    wanted = ["f@partition0", "f@partition1", "g@partition0", "g@partition1", "h"]
    assert [name for config in made.embedding_bag_configs() for name in config.feature_names] == wanted
    found = made(features_of(made).tensors(batch()))
    assert (found.keys(), found.length_per_key()) == (wanted, [COLUMNS] * 5)
