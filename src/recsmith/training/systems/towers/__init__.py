"""Embedding tables in towers, one tower per host (Luo et al., "Disaggregated Multi-Tower", MLSys 2024): docs/towers.md.

settings.py holds the settings of a run, of_run.py decides which tables form a tower and whether that pays, and parts.py
says what towers exclude: none of them needs torch. tables.py is the module of a model, hosts.py exchanges ids and
outputs between hosts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recsmith._components import register
from recsmith.analyses.advice import Switch
from recsmith.plans import Plan
from recsmith.problems import TableRule
from recsmith.training.seams.building import TablesAsked
from recsmith.training.seams.predicting import OpenRun, SystemLine
from recsmith.training.seams.system import TABLES, System

if TYPE_CHECKING:
    import torch
    from torch import nn

    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run, RunModel
    from recsmith.training.seams.capabilities import Part
    from recsmith.training.sources.protocol import BatchSource
    from recsmith.training.stores.protocol import HostParts
    from recsmith.training.systems.towers.parts import TowersOfHosts

register(TABLES, "towers", "recsmith.training.systems.towers.tables:TowerTables")


class TowerSystem(System):
    """The system that trains embedding tables in towers."""

    key = "model.table_module"

    def table_parts(self, model: "RunModel") -> Sequence["TowersOfHosts"]:
        """The towers of a model."""
        from recsmith.training.systems.towers.parts import TowersOfHosts
        from recsmith.training.systems.towers.settings import towers_of

        towers = towers_of(model)
        return () if towers is None else (TowersOfHosts(towers=towers),)

    def placed_parts(self, run: "Run", plan: Plan) -> Sequence["Part"]:
        """The towers with the plan's hosts, and on several hosts the step `sparse_dist`, which sends ids ahead."""
        from recsmith.training.run.parts import AHEAD_OF_BATCHES

        hosts = plan.cluster.hosts
        ahead = run.step_named[0] == "sparse_dist"
        towers = [replace(each, hosts=hosts) for each in self.table_parts(run.model)]
        return (*towers, *([AHEAD_OF_BATCHES] if towers and ahead and hosts > 1 else []))

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """Rules that keep each tower on one host."""
        from recsmith.training.systems.towers.settings import towers_of

        towers = towers_of(run.model)
        return towers.rules(hosts) if towers else ()

    def tables(self, run: "Run", source: "BatchSource") -> TablesAsked:
        """The run with all settings of its towers filled in, or without towers if `auto` finds that they do not pay."""
        from recsmith.training.systems.towers.of_run import tower_lines, with_towers
        from recsmith.training.systems.towers.settings import towers_of

        lines, made = tower_lines(run, source.schema), with_towers(run, source.schema)
        on = towers_of(made.model) is not None
        return TablesAsked(made, lines=tuple(SystemLine(key=self.key, on=on, said=line) for line in lines))

    def needs_step(self, run: "Run") -> bool:
        """Whether the run has towers: their step is predicted, and later systems decide by it."""
        from recsmith.training.systems.towers.settings import towers_of

        return towers_of(run.model) is not None

    def decide(self, made: OpenRun) -> OpenRun:
        """Subtract from the predicted step what towers are predicted to save."""
        from recsmith.training.systems.towers.of_run import outlook

        steps, _ = outlook(made.run, made.parts.source.schema)
        if made.step is None or steps is None:
            return made
        saved = made.step.step_s - steps.towers_s
        return replace(made, step=replace(made.step, embeddings_s=max(0.0, made.step.embeddings_s - saved)))

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """Bytes of pooled vectors that left a host, compared with those of plain tables."""
        from recsmith.training.systems.towers.settings import towers_of

        if towers_of(job.run.model) is None:
            return {}
        from recsmith.training.systems.towers.brought import brought_line

        return {self.key: brought_line(job)}

    def switches(self, run: "Run") -> Sequence[Switch]:
        """Offer one tower per host, which sends an eighth of its columns."""
        from recsmith.prediction.towers import auc_of

        made = Switch(
            name="towers", change="model.table_module: {name: towers, ratio: 8}",
            settings=('model.table_module={"name": "towers", "ratio": 8}',),
            quality=auc_of(8), page="towers.md",
        )  # fmt: skip
        return (made,) if run.model.table_module is None else ()

    def check_goes_on(self, before: "Run", run: "Run") -> None:
        """Refuse a checkpoint whose towers differ from those of the run."""
        from recsmith.training.systems.towers.of_run import check_same_towers

        check_same_towers(before.model, run.model)

    def host_parts(self, task: "nn.Module", plan: Plan, device: "torch.device", codecs: Any) -> "HostParts | None":
        """Place each tower of a model on its host."""
        from recsmith.training.systems.towers.hosts import place_towers

        return place_towers(task, plan, device, codecs)


SYSTEM = TowerSystem()
