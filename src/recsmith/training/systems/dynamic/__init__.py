"""Tables of raw ids without end: rows are given to ids that come often enough, and taken from others (docs/dynamic.md).

settings.py says which tables and how, parts.py what does not go with them, id_rows.py which row each id has (with
_id_rows.c), without torch. tables.py is the module of a model, maps.py what becomes of its batches, exchange.py how ids
cross ranks, fresh.py draws rows anew, kept.py is what checkpoints and exported models hold, beginning.py what comes
along from another run.
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
from recsmith.training.seams.predicting import NO_COPIES, RunFacts, SystemTold
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
    """Tables of raw ids."""

    key = KEY
    settings = tuple[DynamicRule, ...]
    about = "tables of raw ids without end, whose rows are given to ids and taken from them (docs/dynamic.md)"

    def check(self, run: "Run", *, launched: bool) -> None:
        """The compiled code."""
        if run.model.dynamic:
            from recsmith.training.systems.dynamic.id_rows import check_compiled

            check_compiled()

    def sizes(self, model: "RunModel", of_data: Mapping[str, int | None]) -> Mapping[str, int | None]:
        """Rows of tables with raw ids."""
        return sizes(model, of_data) if model.dynamic else of_data

    def table_parts(self, model: "RunModel") -> Sequence["Part"]:
        """Tables with raw ids."""
        return (_part(),) if model.dynamic else ()

    def data_parts(self, run: "Run") -> Sequence["Part"]:
        """The same, which batches that are read in another way do not go with."""
        return self.table_parts(run.model)

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """The same, beside who says with which weights tables begin."""
        return self.table_parts(run.model)

    def placed_parts(self, run: "Run", plan: Plan) -> Sequence["Part"]:
        """The same under a plan, by their names."""
        names = dynamic_tables(run.model, (table.name for table in plan.workload.tables))
        return (_part(*names),) if names else ()

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """No copies."""
        return tuple(replace(NO_COPIES, tables=rule.tables) for rule in run.model.dynamic)

    def table_module(self, model: "RunModel", tables: Sequence["RunTable"]) -> Any:
        """Collections whose ids get their rows first."""
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
        """The same of tables that are not pooled."""
        rules = dynamic_tables(model, (table.name for table in tables))
        if not rules:
            return None
        from recsmith.training.systems.dynamic.tables import DynamicSequences

        return DynamicSequences(configs, device, dynamic=rules)

    def check_model(self, run: "Run", model: "nn.Module") -> None:
        """What is read or trained in another way."""
        if run.model.dynamic:
            from recsmith.training.run.refusals import check_together, data_parts

            check_together(data_parts(run))

    def more_bytes(self, run: "Run", plan: Plan) -> int:
        """The maps of a rank."""
        return _map_bytes(run, plan) // plan.cluster.world_size

    def told(self, run: "Run", told: RunFacts) -> Sequence[SystemTold]:
        """Which tables, by which rule, and what their maps take."""
        rules = dynamic_tables(run.model, (table.name for table in told.plan.workload.tables))
        if not rules:
            return ()
        said = ", ".join(f"{name} ({rule.said()})" for name, rule in rules.items())
        size = format_size(_map_bytes(run, told.plan))
        line = f"dynamic: raw ids in {counted(len(rules), 'table')}: {said}; their maps take {size} of host memory"
        return (SystemTold(key=self.key, on=True, said=line),)

    def attached(self, run: "Run", model: "nn.Module") -> Any:
        """What counts steps for the maps, and what they did."""
        if not run.model.dynamic:
            return None
        from recsmith.training.systems.dynamic.counting import CountedIds

        return CountedIds(run.seed)

    def line(self, job: "TrainingJob", steps: int) -> tuple[Raw, str]:
        """Ids, lookups that found a row, and rows that changed hands since the line before."""
        counted = _counted(job)
        return ({}, "") if counted is None else counted.line(job)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """Lookups that found a row, and rows that changed hands, in the whole job."""
        counted = _counted(job)
        return {} if counted is None else {self.key: counted.brought_line(job)}

    def check_goes_on(self, before: "Run", run: "Run") -> None:
        """Refuse ids that have rows by another rule."""
        from recsmith.training.systems.dynamic.going_on import check_same_rules

        check_same_rules(before.model, run.model)

    def begins_with(self, before: "RunModel", model: "RunModel", tables: Sequence[str], path: str) -> Sequence[str]:
        """The ids of rows, and by which rule they get some from now on."""
        from recsmith.training.systems.dynamic.going_on import check_begins

        return check_begins(before, model, tables, path) if model.dynamic or before.dynamic else ()

    def begin_rows(self, run: "Run", job: "ShardedJob", before: Any, rows: Mapping[str, int]) -> Mapping[str, Ints]:
        """The same ids have the same rows, or those of a larger table."""
        if not run.model.dynamic:
            return {}
        from recsmith.training.systems.dynamic.beginning import begin_ids

        return begin_ids(job.model, before, rows)

    def tensors(self, run: "Run", job: "ShardedJob") -> Mapping[str, Any]:
        """The ids of rows."""
        if not run.model.dynamic:
            return {}
        from recsmith.training.systems.dynamic.kept import tensors_of

        return tensors_of(job.model)

    def loaded(self, run: "Run", job: "ShardedJob") -> None:
        """Find them again."""
        if run.model.dynamic:
            from recsmith.training.systems.dynamic.kept import loaded

            loaded(job.model)

    def write_files(self, run: "Run", job: "ShardedJob", folder: Path) -> None:
        """A file of ids for each table."""
        if run.model.dynamic:
            from recsmith.training.systems.dynamic.kept import write_ids

            write_ids(job.model, folder)

    def model_in(self, model: "RunModel", folder: Path) -> "RunModel":
        """With the folder of these."""
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
