"""Compressed tables: fewer columns, shared rows, learned hashes (docs/compress.md).

tables.py is the torch module for pooled tables, and sequences.py for tables that are not pooled. compressing.py
proposes rules for data, id_maps.py counts ids and learns hashes for them, and kept_maps.py keeps the id maps with the
weights. relearning.py converts a job to newer hashes, and curve.py trains several methods and factors to compare them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsmith._components import NAME, register
from recsmith.embeddings import CompressionRule
from recsmith.training.seams import capabilities as job
from recsmith.training.seams.capabilities import Capabilities, PlainPart
from recsmith.training.seams.predicting import RunFacts, SystemLine
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
    """The system that compresses tables (`model.compression`)."""

    key = "model.compression"
    settings = tuple[CompressionRule, ...]
    about = "which tables are stored smaller, and how (docs/compress.md)"

    def table_parts(self, model: "RunModel") -> Sequence["Part"]:
        """The compression rules of a model, if it has any."""
        return (COMPRESSION,) if model.compression else ()

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The compression rules, which exclude deduplicated data."""
        return self.table_parts(run.model)

    def table_module(self, model: "RunModel", tables: Sequence["RunTable"]) -> Any:
        """A table module whose rows and columns follow from the rules; None if no rule applies."""
        transforms = _transforms(model, tables)
        return {NAME: "stored", "transforms": transforms} if transforms else None

    def sequences(
        self,
        model: "RunModel",
        tables: Sequence["RunTable"],
        configs: Sequence["EmbeddingConfig"],
        device: "torch.device",
    ) -> "nn.Module | None":
        """A module of compressed tables that are not pooled, as the rules define them; None if no rule applies."""
        transforms = _transforms(model, tables)
        if not transforms:
            return None
        from recsmith.training.systems.stored.sequences import StoredSequences

        return StoredSequences(configs, device, transforms=transforms)

    def check_model(self, run: "Run", model: "nn.Module") -> None:
        """Refuse a rule that matches no table, since its name is probably misspelt."""
        from recsmith.training.tables.plain import table_modules

        if run.model.compression:
            names = [name for tables in table_modules(model) for name in tables.names()]
            check_fit(self.key, [each.tables for each in run.model.compression], names)

    def keep_files(self, model: "RunModel", folder: Path) -> "RunModel":
        """Copy the maps of ids to rows into the folder of what was trained."""
        from recsmith.training.systems.stored.kept_maps import keep_maps

        return keep_maps(model, folder)

    def model_in(self, model: "RunModel", folder: Path) -> "RunModel":
        """The model with the maps in its own folder."""
        from recsmith.training.systems.stored.kept_maps import with_maps_in

        return with_maps_in(model, folder)

    def check_goes_on(self, before: "Run", run: "Run") -> None:
        """Refuse maps that changed since the weights were trained with them."""
        from recsmith.training.systems.stored.kept_maps import check_maps

        check_maps(run.model, Path(run.output))

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """A line on which tables are compressed, and by which method."""
        if not run.model.compression:
            return ()
        rules = ", ".join(f"{each.tables} by {each.method}" for each in run.model.compression)
        return (SystemLine(key=self.key, on=True, said=f"compression: tables are stored smaller: {rules}"),)


def _transforms(model: "RunModel", tables: Sequence["RunTable"]) -> dict[str, Any]:
    """How the compressed tables of a model are stored, by name."""
    from recsmith.embeddings import LogicalTable, transforms_of

    sizes = [LogicalTable(table.name, table.num_embeddings, table.embedding_dim or 0) for table in tables]
    return transforms_of(model.compression, sizes, [table.name for table in tables if table.pooling == "none"])


SYSTEM = StoredSmaller()
