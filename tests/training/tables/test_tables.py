"""The table modules of RecSmith, and one whose tables are stored by a method of examples/, keep the contract."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrec")

import torch
from embeddings.stored import TRANSFORMS

from recsmith._components import make
from recsmith.embeddings import CompressionRule, LogicalTable, transforms_of
from recsmith.errors import UsageError
from recsmith.files import encode
from recsmith.searching import PartChoice, PartChoices, SearchSpace
from recsmith.testing.tables import COLUMNS, TableModuleContract, batch, configs
from recsmith.training.seams import TABLES
from recsmith.training.systems.dedup.groups import Deduplication
from recsmith.training.systems.dedup.tables import DeduplicatedTables
from recsmith.training.systems.search.tables import SearchedTables, pick
from recsmith.training.systems.stored.tables import StoredTables
from recsmith.training.systems.towers.tables import TowerTables
from recsmith.training.tables.plain import exported_names, features_of, plain, vectors_of, why_not_ahead

CPU = torch.device("cpu")
EXAMPLES = Path(__file__).parents[3] / "examples"


class TestPlain(TableModuleContract):
    """TorchRec's own collection."""

    def make(self, configs: Any) -> Any:
        """As it is."""
        return plain(configs, CPU, False)


class TestStoredAsItIs(TableModuleContract):
    """No table is stored smaller."""

    def make(self, configs: Any) -> Any:
        """None."""
        return StoredTables(configs, CPU, transforms={})


class TestSearched(TableModuleContract):
    """Masks of the sample that is as wide as the tables, of which one has two numbers of rows."""

    def make(self, configs: Any) -> Any:
        """Evaluated, since samples draw while a search trains."""
        options = tuple(PartChoice(width=width, rows=rows) for rows in (0.5, 1.0) for width in (4, COLUMNS))
        space = SearchSpace(tables=(PartChoices(name="t", options=options),))
        made = SearchedTables(configs, CPU, space=encode(space)).eval()
        pick(made, space.largest)
        return made


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


class TestOnesOwn(TableModuleContract):
    """examples/own_tables.py: a table module in one file. Its bags are no sums of vectors but those of one id."""

    longest = 1

    @pytest.fixture(autouse=True)
    def examples(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Examples are on the path."""
        monkeypatch.syspath_prepend(EXAMPLES)

    def make(self, configs: Any) -> Any:
        """By its place, as a run gives it."""
        return make(TABLES, {"name": "own_tables:UnitTables", "scale": 2.0}, configs, CPU, False)


class TestDeduplicated(TableModuleContract):
    """Two features share their rows, and are looked up in a collection of their own."""

    def make(self, configs: Any) -> Any:
        """f and g are deduplicated."""
        found = Deduplication(groups=(("f", "g"),), parts=(("f", "g"),), factors={"f": (2.0, 2.0), "g": (2.0, 2.0)})
        return DeduplicatedTables(configs, CPU, deduplication=found)

    def test_it_is_exported_as_one_collection(self) -> None:
        found = exported_names(torch.nn.Sequential(self.made()), [f"0.{name}" for name in self.made().state_dict()])
        assert found == {
            "0.plain.embedding_bags.u.weight": "0.embedding_bags.u.weight",
            "0.distinct.0.embedding_bags.t.weight": "0.embedding_bags.t.weight",
        }
        assert "padded to equal numbers" in (why_not_ahead(self.made()) or "")


class TestTowers(TableModuleContract):
    """Of ratio 1, which learn nothing, in another order than the model's."""

    def make(self, configs: Any) -> Any:
        """Each table is a tower."""
        return TowerTables(configs, CPU, ratio=1, towers=(("u",), ("t",)))

    def test_outputs_are_narrower_features_in_the_models_order(self) -> None:
        for kind in ("linear", "cross"):
            made = TowerTables(configs(), CPU, ratio=4, towers=(("u",), ("t",)), module=kind)  # type: ignore[arg-type]
            found = made(features_of(made).tensors(batch()))
            assert (found.keys(), found.length_per_key()) == (["f", "g", "h"], [COLUMNS // 4] * 3)
            assert [config.embedding_dim for config in made.embedding_bag_configs()] == [COLUMNS // 4] * 2


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


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(UsageError, match="there is no table 'tt'; did you mean 't'"):
        vectors_of(plain(configs(), CPU, False), "tt")
