"""Tables in files, behind caches in memory: larger than memory, on CPU (Song et al., "MTrainS", 2023): docs/tiers.md.

shares.py says which tables and how many of their rows are in memory, price.py what that takes, parts.py what does not
go with it, without torch. rows.py is the store, hits.py what its caches find, tables.py FBGEMM's kernel on caches,
cache.py which slot has which row.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsmith._components import NAME, register
from recsmith.analyses.advice import Switch
from recsmith.files import Raw
from recsmith.plans import Plan
from recsmith.prediction.turns import forward_turn_s
from recsmith.sharding import KEY_VALUE
from recsmith.training.seams.in_jobs import attached_in
from recsmith.training.seams.predicting import RunFacts, SystemTold
from recsmith.training.seams.registry import batches_of_a_step
from recsmith.training.seams.system import ROWS, System
from recsmith.units import counted

if TYPE_CHECKING:
    from torch import nn

    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.card import ModelCard
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part
    from recsmith.training.sources.protocol import BatchSource

register(ROWS, "tiered", "recsmith.training.systems.tiers.rows:TieredRows")


class Tiers(System):
    """Tables in files."""

    key = "rows"

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """All tables, or those that the plan says."""
        from recsmith.training.systems.tiers.parts import TablesInFile

        return (TablesInFile("cache" in run.rows_named[1]),) if is_tiered(run) else ()

    def placed_parts(self, run: "Run", plan: Plan) -> Sequence["Part"]:
        """Tables that a plan keeps on disk."""
        from recsmith.training.systems.tiers.parts import OnDisk

        stored = sorted(each.table for each in plan.placements if each.compute_kernel == KEY_VALUE.name)
        return (OnDisk(next(iter(stored), None), run.rows),) if stored or is_tiered(run) else ()

    def kept_plan(self, run: "Run", plan: Plan) -> Plan:
        """Tables that are in files say so, with what is in memory of each."""
        from recsmith.training.systems.tiers.shares import stored_plan

        return stored_plan(run, plan) if is_tiered(run) else plan

    def switches(self, run: "Run") -> Sequence[Switch]:
        """A tenth of all rows in memory."""
        rows = {NAME: "tiered", "folder": f"{run.output}/rows", "cache": 0.1}
        made = Switch(
            name="tables on disk", change=f"rows: {{name: tiered, folder: {run.output}/rows, cache: 0.1}}",
            settings=(f"rows={json.dumps(rows)}",), quality="exact", page="tiers.md",
        )  # fmt: skip
        return (made,) if run.rows == "device" else ()

    def change_step(self, run: "Run", plan: Plan, step: "JobStep", numbers: int) -> "JobStep":
        """Lookups wait for rows that no cache has."""
        from recsmith.training.systems.tiers.price import priced_s, rows_s

        if not is_tiered(run):
            return step
        priced = priced_s(run, plan)
        rows = rows_s(run, plan, max(0.0, step.step_s - priced))
        before = max(each.forward_compute_s for each in plan.cost.per_device)
        rows += forward_turn_s(plan, before + rows) - forward_turn_s(plan, before)
        return replace(step, embeddings_s=max(0.0, step.embeddings_s - priced), rows_s=step.rows_s + rows)

    def told(self, run: "Run", told: RunFacts) -> Sequence[SystemTold]:
        """What is in files and in memory, how many lookups find a row there, and how long they wait."""
        from recsmith.training.systems.tiers.price import tiers_line

        if not is_tiered(run):
            return ()
        return (SystemTold(key=self.key, on=True, said=tiers_line(run, told.plan, told.memory, _batches(run, told))),)

    def steps_notes(self, run: "Run", source: "BatchSource", ranks: int) -> Sequence[str]:
        """A profile that is longer than the run."""
        from recsmith.training.sources import total_steps
        from recsmith.training.systems.tiers.shares import unfinished_profile

        static = is_tiered(run) and run.rows_named[1].get("policy") == "static"
        steps = total_steps(run, source, ranks) if static else None
        said = unfinished_profile(run, steps and steps * batches_of_a_step(run))
        return () if said is None else (said,)

    def kernel_facts(self, run: "Run", plan: Plan) -> Mapping[str, Any]:
        """Rows that the cache of each table holds at least, and the share of them that it holds."""
        from recsmith.training.systems.tiers.shares import cached_tables, least_slots

        if not is_tiered(run):
            return {}
        shares = {each.table.name: each.share for each in cached_tables(run, plan)}
        return {"least": least_slots(run, plan), "shares": shares}

    def worded_plan(self, run: "Run", plan: Plan, device: str) -> tuple[Plan, Mapping[str, Any]] | None:
        """Tables on disk in TorchRec's words, on CPU."""
        if device != "cpu" or all(each.compute_kernel != KEY_VALUE.name for each in plan.placements):
            return None
        from recsmith.training.systems.tiers.rows import on_disk

        return on_disk(plan)

    def scored_run(self, run: "Run", card: "ModelCard", folder: Path) -> "Run":
        """By the run's own plan, which says which tables are on disk, where the run does not."""
        by_plan = is_tiered(run) and "cache" not in run.rows_named[1]
        return replace(run, plan=str(folder / "plan.json")) if by_plan else run

    def attached(self, run: "Run", model: "nn.Module") -> Any:
        """What caches had found by the last line."""
        if not is_tiered(run):
            return None
        from recsmith.training.systems.tiers.hits import CacheHits

        return CacheHits()

    def line(self, job: "TrainingJob", steps: int) -> tuple[Raw, str]:
        """What caches found since the line before."""
        from recsmith.training.systems.tiers.hits import CacheHits

        hits = attached_in(job, self.key, CacheHits)
        return ({}, "") if hits is None else hits.line(job, steps)

    def result(self, job: "TrainingJob") -> Raw:
        """What they found in the whole job."""
        if not is_tiered(job.run):
            return {}
        from recsmith.training.systems.tiers.hits import hit_share_of, lookups_of

        return {"hit_share": hit_share_of(*lookups_of(job))}

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """What caches found and how long lookups waited, beside what was told."""
        if not is_tiered(job.run):
            return {}
        from recsmith.training.systems.tiers.hits import brought_line
        from recsmith.training.systems.tiers.shares import predicted_hits

        batches = (job.progress.step - job.progress.begun) * batches_of_a_step(job.run)
        return {self.key: brought_line(job, predicted_hits(job.run, job.plan, batches))}

    def start_facts(self, run: "Run", plan: Plan) -> Raw:
        """The share of lookups that is predicted to find a row in memory."""
        from recsmith.training.systems.tiers.shares import predicted_hits

        hits = predicted_hits(run, plan)
        return {} if hits is None else {"predicted_hit_share": hits}

    def start_lines(self, run: "Run", plan: Plan) -> Sequence[str]:
        """The same, for people."""
        from recsmith.training.systems.tiers.shares import cached_tables, predicted_hits

        hits = predicted_hits(run, plan)
        if hits is None:
            return ()
        tables = counted(len(cached_tables(run, plan)), "table")
        when = "once caches are full"
        return (
            f"rows: {tables} of these in files; {hits:.1%} of their lookups find a row in memory {when}, predicted",
        )


def _batches(run: "Run", told: RunFacts) -> int | None:
    """Batches of the whole run, where they are known."""
    return told.batches if run.steps is None else run.steps * batches_of_a_step(run)


def is_tiered(run: "Run") -> bool:
    """Whether a run keeps rows so."""
    return run.rows_named[0] == "tiered"


SYSTEM = Tiers()
