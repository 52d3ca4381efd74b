"""Tables of raw ids from an unbounded set: frequent ids get rows, which other ids lose (docs/dynamic.md).

Without torch: settings.py says which tables and by which rule, parts.py what they refuse, id_rows.py (with _id_rows.c)
which row each id has. tables.py is the module of a model, maps.py replaces the ids of its batches by rows, exchange.py
sends ids between ranks, fresh.py initializes rows again, kept.py defines what checkpoints and exported models hold, and
beginning.py takes over ids from another run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsmith._components import NAME, register
from recsmith._types import Ints
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.problems import TableRule
from recsmith.training.seams.in_jobs import attached_in
from recsmith.training.seams.predicting import NO_COPIES, RunFacts, SystemLine
from recsmith.training.seams.system import TABLES, System
from recsmith.training.systems.dynamic.settings import KEY, DynamicRule, check_own_features, dynamic_tables, sizes
from recsmith.units import counted, format_size

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torchrec import EmbeddingConfig

    from recsmith.training.job.job import TrainingJob
    from recsmith.training.job.sharded import ShardedJob
    from recsmith.training.run.run import Run, RunModel, RunTable
    from recsmith.training.seams.capabilities import Part
    from recsmith.training.systems.dynamic.counting import CountedIds

register(TABLES, "dynamic", "recsmith.training.systems.dynamic.tables:DynamicBags")


class DynamicIds(System):
    """The system of tables with raw ids."""

    key = KEY
    settings = tuple[DynamicRule, ...]
    about = "tables of raw ids without end, whose rows are given to ids and taken from them (docs/dynamic.md)"

    def check(self, run: "Run", *, launched: bool) -> None:
        """Refuse such a run if the compiled code is missing."""
        if run.model.dynamic:
            from recsmith.training.systems.dynamic.id_rows import check_compiled

            check_compiled()

    def sizes(self, model: "RunModel", of_data: Mapping[str, int | None]) -> Mapping[str, int | None]:
        """Number of rows by feature; for raw ids, the rules decide it."""
        return sizes(model, of_data) if model.dynamic else of_data

    def table_parts(self, model: "RunModel") -> Sequence["Part"]:
        """The part that stands for tables with raw ids, if the model has any."""
        return (_part(),) if model.dynamic else ()

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The same part, because batches that are read in another way do not go with raw ids."""
        return self.table_parts(run.model)

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """The same part, because other systems may decide the initial weights of tables."""
        return self.table_parts(run.model)

    def placed_parts(self, run: "Run", plan: Plan) -> Sequence["Part"]:
        """The same part under a plan, with the names of the tables."""
        names = dynamic_tables(run.model, (table.name for table in plan.workload.tables))
        return (_part(*names),) if names else ()

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """Forbid copies of tables with raw ids."""
        return tuple(replace(NO_COPIES, tables=rule.tables) for rule in run.model.dynamic)

    def table_module(self, model: "RunModel", tables: Sequence["RunTable"]) -> Any:
        """The table module that replaces raw ids by rows before the lookup; None if no table has raw ids."""
        rules = dynamic_tables(model, (table.name for table in tables))
        check_own_features(rules, {table.name: table.features for table in tables})
        return {NAME: "dynamic", "dynamic": rules} if rules else None

    def sequences(
        self,
        model: "RunModel",
        tables: Sequence["RunTable"],
        configs: Sequence["EmbeddingConfig"],
        device: "torch.device",
    ) -> "nn.Module | None":
        """The module for tables that are not pooled; None if none of them has raw ids."""
        rules = dynamic_tables(model, (table.name for table in tables))
        if not rules:
            return None
        from recsmith.training.systems.dynamic.tables import DynamicSequences

        return DynamicSequences(configs, device, dynamic=rules)

    def check_model(self, run: "Run", model: "nn.Module") -> None:
        """Refuse data or pipelines that do not go with raw ids."""
        if run.model.dynamic:
            from recsmith.training.run.refusals import check_together, data_parts

            check_together(data_parts(run))

    def more_bytes(self, run: "Run", plan: Plan) -> int:
        """Host bytes of the maps of a rank."""
        return _map_bytes(run, plan) // plan.cluster.world_size

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """A line on the tables with raw ids, their rules, and the memory of their maps."""
        rules = dynamic_tables(run.model, (table.name for table in facts.plan.workload.tables))
        if not rules:
            return ()
        said = ", ".join(f"{name} ({rule.said()})" for name, rule in rules.items())
        size = format_size(_map_bytes(run, facts.plan))
        line = f"dynamic: raw ids in {counted(len(rules), 'table')}: {said}; their maps take {size} of host memory"
        return (SystemLine(key=self.key, on=True, said=line),)

    def attached(self, run: "Run", model: "nn.Module") -> Any:
        """The counter of lookups and evictions, which also passes step numbers to the maps; None without raw ids."""
        if not run.model.dynamic:
            return None
        from recsmith.training.systems.dynamic.counting import CountedIds

        return CountedIds(run.seed)

    def line(self, job: "TrainingJob", steps: int) -> tuple[Raw, str]:
        """Numbers for a log line: ids, lookups that found a row, and rows given to other ids since the last line."""
        counted = _counted(job)
        return ({}, "") if counted is None else counted.line(job)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """A line on lookups that found a row, and rows given to other ids, in the whole job."""
        counted = _counted(job)
        return {} if counted is None else {self.key: counted.brought_line(job)}

    def check_goes_on(self, before: "Run", run: "Run") -> None:
        """Refuse to continue a checkpoint whose ids got rows by another rule."""
        from recsmith.training.systems.dynamic.going_on import check_same_rules

        check_same_rules(before.model, run.model)

    def begins_with(self, before: "RunModel", model: "RunModel", tables: Sequence[str], path: str) -> Sequence[str]:
        """Lines on the ids that are taken over from another run, and on the rule for new ones."""
        from recsmith.training.systems.dynamic.going_on import check_begins

        return check_begins(before, model, tables, path) if model.dynamic or before.dynamic else ()

    def begin_rows(self, run: "Run", job: "ShardedJob", before: Any, rows: Mapping[str, int]) -> Mapping[str, Ints]:
        """Take over ids from another run; for tables with moved rows, the old row of each row."""
        if not run.model.dynamic:
            return {}
        from recsmith.training.systems.dynamic.beginning import begin_ids

        return begin_ids(job.model, before, rows)

    def tensors(self, run: "Run", job: "ShardedJob") -> Mapping[str, Any]:
        """The tensors of the maps that a checkpoint holds."""
        if not run.model.dynamic:
            return {}
        from recsmith.training.systems.dynamic.kept import tensors_of

        return tensors_of(job.model)

    def loaded(self, run: "Run", job: "ShardedJob") -> None:
        """Rebuild the maps from loaded tensors."""
        if run.model.dynamic:
            from recsmith.training.systems.dynamic.kept import loaded

            loaded(job.model)

    def write_files(self, run: "Run", job: "ShardedJob", folder: Path) -> None:
        """Write the ids of each table into a file of the trained model."""
        if run.model.dynamic:
            from recsmith.training.systems.dynamic.kept import write_ids

            write_ids(job.model, folder)

    def model_in(self, model: "RunModel", folder: Path) -> "RunModel":
        """The model's settings, with the folder of these files in each rule."""
        return replace(model, dynamic=tuple(replace(rule, ids=str(folder)) for rule in model.dynamic))


def _part(*tables: str) -> Any:
    from recsmith.training.systems.dynamic.parts import RawIds

    return RawIds(tuple(tables))


def _map_bytes(run: "Run", plan: Plan) -> int:
    tables = {table.name: table for table in plan.workload.tables}
    rules = dynamic_tables(run.model, tables)
    return sum(tables[name].num_embeddings * rule.dynamic.row_bytes for name, rule in rules.items())


def _counted(job: "TrainingJob") -> "CountedIds | None":
    from recsmith.training.systems.dynamic.counting import CountedIds

    return attached_in(job, SYSTEM.key, CountedIds)


SYSTEM = DynamicIds()
