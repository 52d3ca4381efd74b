"""Tables of distinct bags keep the contract of table modules."""

from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch

from recsmith.testing.tables import TableModuleContract
from recsmith.training.systems.dedup.groups import Deduplication
from recsmith.training.systems.dedup.tables import DeduplicatedTables
from recsmith.training.tables.plain import exported_names, why_not_ahead

CPU = torch.device("cpu")


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
