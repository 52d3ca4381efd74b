"""TorchRec's collection and the table module of examples/ keep the contract; those of systems are in their folders."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchrec")

import torch

from recsmith._components import make
from recsmith.errors import UsageError
from recsmith.testing.tables import TableModuleContract, configs
from recsmith.training.seams import TABLES
from recsmith.training.tables.plain import plain, vectors_of

CPU = torch.device("cpu")
EXAMPLES = Path(__file__).parents[3] / "examples"


class TestPlain(TableModuleContract):
    """TorchRec's own collection."""

    def make(self, configs: Any) -> Any:
        """As it is."""
        return plain(configs, CPU, False)


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


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(UsageError, match="there is no table 'tt'; did you mean 't'"):
        vectors_of(plain(configs(), CPU, False), "tt")
