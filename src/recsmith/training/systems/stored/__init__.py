"""Tables that are stored smaller: fewer columns, shared rows, learned hashes (docs/compress.md).

tables.py is the torch module; compressing.py proposes rules for data, id_maps.py counts and learns what they need, and
kept_maps.py keeps that with the weights. relearning.py carries a job over to newer hashes, and curve.py trains methods
and factors side by side.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsmith._components import NAME, register
from recsmith.embeddings import CompressionRule
from recsmith.training.seams import capabilities as job
from recsmith.training.seams.capabilities import Capabilities, PlainPart
from recsmith.training.seams.predicting import RunFacts, SystemTold
from recsmith.training.seams.system import TABLES, System
from recsmith.workloads.patterns import check_fit

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torchrec import EmbeddingConfig

    from recsmith.training.run.run import Run, RunModel, RunTable
    from recsmith.training.seams.capabilities import Part

register(TABLES, "stored", "recsmith.training.systems.stored.tables:StoredTables")


COMPRESSION = PlainPart("model.compression", Capabilities({job.TABLES, job.IDS}))


class StoredSmaller(System):
    """Tables that are stored smaller."""

    key = "model.compression"
    settings = tuple[CompressionRule, ...]
    about = "which tables are stored smaller, and how (docs/compress.md)"

    def table_parts(self, model: "RunModel") -> Sequence["Part"]:
        """The rules of a model."""
        return (COMPRESSION,) if model.compression else ()

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The same, which deduplicated data do not go with."""
        return self.table_parts(run.model)

    def table_module(self, model: "RunModel", tables: Sequence["RunTable"]) -> Any:
        """Tables whose rows and columns follow from the rules."""
        transforms = _transforms(model, tables)
        return {NAME: "stored", "transforms": transforms} if transforms else None

    def sequences(
        self,
        model: "RunModel",
        tables: Sequence["RunTable"],
        configs: Sequence["EmbeddingConfig"],
        device: "torch.device",
    ) -> "nn.Module | None":
        """Tables whose rows are not pooled, whose rows and columns follow from the rules."""
        transforms = _transforms(model, tables)
        if not transforms:
            return None
        from recsmith.training.systems.stored.sequences import StoredSequences

        return StoredSequences(configs, device, transforms=transforms)

    def check_model(self, run: "Run", model: "nn.Module") -> None:
        """Refuse a rule that fits no table: it is misspelt."""
        from recsmith.training.tables.plain import table_modules

        if run.model.compression:
            names = [name for tables in table_modules(model) for name in tables.names()]
            check_fit(self.key, [each.tables for each in run.model.compression], names)

    def keep_files(self, model: "RunModel", folder: Path) -> "RunModel":
        """Maps of ids to rows."""
        from recsmith.training.systems.stored.kept_maps import keep_maps

        return keep_maps(model, folder)

    def model_in(self, model: "RunModel", folder: Path) -> "RunModel":
        """With these maps."""
        from recsmith.training.systems.stored.kept_maps import with_maps_in

        return with_maps_in(model, folder)

    def check_goes_on(self, before: "Run", run: "Run") -> None:
        """Refuse maps that are no longer those under which weights were trained."""
        from recsmith.training.systems.stored.kept_maps import check_maps

        check_maps(run.model, Path(run.output))

    def told(self, run: "Run", told: RunFacts) -> Sequence[SystemTold]:
        """Which tables, by which method."""
        if not run.model.compression:
            return ()
        rules = ", ".join(f"{each.tables} by {each.method}" for each in run.model.compression)
        return (SystemTold(key=self.key, on=True, said=f"compression: tables are stored smaller: {rules}"),)


def _transforms(model: "RunModel", tables: Sequence["RunTable"]) -> dict[str, Any]:
    """How some tables of a model are stored, by name."""
    from recsmith.embeddings import LogicalTable, transforms_of

    sizes = [LogicalTable(table.name, table.num_embeddings, table.embedding_dim or 0) for table in tables]
    return transforms_of(model.compression, sizes, [table.name for table in tables if table.pooling == "none"])


SYSTEM = StoredSmaller()
