"""Tables in towers keep the contract of table modules."""

from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch

from recsmith.testing.tables import COLUMNS, TableModuleContract, batch, configs
from recsmith.training.systems.towers.tables import TowerTables
from recsmith.training.tables.plain import features_of

CPU = torch.device("cpu")


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
