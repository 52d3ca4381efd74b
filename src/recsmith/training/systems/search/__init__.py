"""Architecture search in one network: widths of tables and layers that are worth their bytes or seconds.

docs/architecture-search.md says how.

tables.py has tables and layers with learned choices, and sequences.py has such tables that are not pooled. step.py is
the training step that learns the choices, and network.py scores the trained network. searching.py runs a search, and
points.py trains its results next to other widths.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recsmith._components import NAME, parsed, register
from recsmith.errors import UsageError
from recsmith.training.seams.system import STEP, TABLES, System

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torchrec import EmbeddingConfig

    from recsmith.searching import SearchSpace
    from recsmith.training.run.run import Run, RunModel, RunTable

register(STEP, "search", "recsmith.training.systems.search.step:SearchStep")
register(TABLES, "searched", "recsmith.training.systems.search.tables:SearchedTables")

OWN_LOSS = (
    "pipeline is search, whose choices learn by binary cross entropy of each label, and the run has {key}; leave it "
    "out, and train what is found with it"
)
NO_CHOICES = "pipeline is search, and the model has no choices; recsmith search makes such a run"


class SearchSystem(System):
    """The system of architecture search: its training step, and tables with choices."""

    key = "pipeline"

    def check(self, run: "Run", *, launched: bool) -> None:
        """Refuse the search step if no table has choices, or if the run defines its own loss (model.tasks)."""
        tables = parsed(run.model.table_module or "plain", "model.table_module")[0]
        if run.step_named[0] == "search" and tables != "searched":
            raise UsageError(NO_CHOICES)
        if run.step_named[0] == "search" and run.model.tasks:
            raise UsageError(OWN_LOSS.format(key="model.tasks"))

    def table_module(self, model: "RunModel", tables: Sequence["RunTable"]) -> Any:
        """The searched pooled tables of a model, if some tables of the space are not pooled; else None."""
        space = _space(model)
        if space is None or all(each.name in {table.name for table in tables} for each in space.tables):
            return None
        from recsmith.files import encode

        mine = tuple(each for each in space.tables if each.name in {table.name for table in tables})
        return {NAME: "searched", "space": encode(replace(space, tables=mine))} if mine or space.layers else "plain"

    def sequences(
        self,
        model: "RunModel",
        tables: Sequence["RunTable"],
        configs: Sequence["EmbeddingConfig"],
        device: "torch.device",
    ) -> "nn.Module | None":
        """Tables that are not pooled, with masks on their rows; None if the space has none."""
        space = _space(model)
        if space is None:
            return None
        from recsmith.training.systems.search.sequences import SearchedSequences

        mine = tuple(each for each in space.tables if each.name in {table.name for table in tables})
        return SearchedSequences(configs, device, space=replace(space, tables=mine, layers=())) if mine else None

    def check_model(self, run: "Run", model: "nn.Module") -> None:
        """Refuse a space with a table that the model does not have."""
        space = _space(run.model)
        if space is None:
            return
        from recsmith.training.tables.plain import table_modules

        known = {name for tables in table_modules(model) for name in tables.names()}
        odd = next((each.name for each in space.tables if each.name not in known), None)
        if odd is not None:
            raise UsageError(
                f"model.table_module (searched): '{odd}' is no table of the model; leave it out of the space"
            )


def _space(model: "RunModel") -> "SearchSpace | None":
    """The search space of a model; None if its tables are not searched."""
    name, settings = parsed(model.table_module or "plain", "model.table_module")
    if name != "searched":
        return None
    from recsmith.files import decode_part
    from recsmith.searching import SearchSpace

    return decode_part(SearchSpace, settings.get("space"), "model.table_module.space")


SYSTEM = SearchSystem()
