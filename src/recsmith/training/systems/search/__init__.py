"""Architecture search in one network: widths of tables and layers that pay for their bytes or seconds (docs/search.md).

tables.py are tables and layers whose choices are learned, step.py is the step that learns them, network.py scores what
was learned; searching.py is the search of a run, points.py trains what it found beside other widths.
"""

from typing import Any

from recsmith._components import parsed, register
from recsmith.errors import UsageError
from recsmith.training.seams.kinds import STEP, TABLES
from recsmith.training.seams.system import System

register(STEP, "search", "recsmith.training.systems.search.step:SearchStep")
register(TABLES, "searched", "recsmith.training.systems.search.tables:SearchedTables")

NO_CHOICES = "pipeline is search, and the model has no choices; recsmith search makes such a run"


class SearchSystem(System):
    """The step of a search, on tables that have choices."""

    key = "pipeline"

    def check(self, run: Any, *, launched: bool) -> None:
        """Refuse the step where no table has choices."""
        tables = parsed(run.model.table_module or "plain", "model.table_module")[0]
        if parsed(run.pipeline, "pipeline")[0] == "search" and tables != "searched":
            raise UsageError(NO_CHOICES)


SYSTEM = SearchSystem()
