"""Tables whose widths are searched keep the contract of table modules."""

from typing import Any

import pytest

pytest.importorskip("torchrec")
pytest.importorskip("recsmith.training.systems.stored")  # whose tables are masked

import torch

from recsmith.files import encode
from recsmith.searching import PartChoice, PartChoices, SearchSpace
from recsmith.testing.tables import COLUMNS, TableModuleContract
from recsmith.training.systems.search.tables import SearchedTables, pick

CPU = torch.device("cpu")


class TestSearched(TableModuleContract):
    """Masks of the sample that is as wide as the tables, of which one has two numbers of rows."""

    def make(self, configs: Any) -> Any:
        """Evaluated, since samples draw while a search trains."""
        options = tuple(PartChoice(width=width, rows=rows) for rows in (0.5, 1.0) for width in (4, COLUMNS))
        space = SearchSpace(tables=(PartChoices(name="t", options=options),))
        made = SearchedTables(configs, CPU, space=encode(space)).eval()
        pick(made, space.largest)
        return made
