"""Tables in files behind caches in memory: larger than memory, on CPU (Kassa et al., "MTrainS", 2023): docs/tiers.md.

shares.py says which tables are in files and how many of their rows in memory, price.py predicts their cost, and
parts.py says what they exclude: none of them needs torch. rows.py is the row store, hits.py counts cache hits,
tables.py is FBGEMM's kernel on caches, and cache.py assigns rows to slots.
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
from recsmith.training.seams.predicting import RunFacts, SystemLine
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
    """The system that keeps tables in files (`rows: tiered`)."""

    key = "rows"

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """Tables in files: all tables if the run gives a cache, else those that the plan keeps on disk."""
        from recsmith.training.systems.tiers.parts import TablesInFile

        return (TablesInFile("cache" in run.rows_named[1]),) if is_tiered(run) else ()

    def placed_parts(self, run: "Run", plan: Plan) -> Sequence["Part"]:
        """The tables that a plan keeps on disk, and the run's row store."""
        from recsmith.training.systems.tiers.parts import OnDisk

        stored = sorted(each.table for each in plan.placements if each.compute_kernel == KEY_VALUE.name)
        return (OnDisk(next(iter(stored), None), run.rows),) if stored or is_tiered(run) else ()

    def kept_plan(self, run: "Run", plan: Plan) -> Plan:
        """The plan with tables in files marked as such, each with the share of its rows that is in memory."""
        from recsmith.training.systems.tiers.shares import stored_plan

        return stored_plan(run, plan) if is_tiered(run) else plan

    def switches(self, run: "Run") -> Sequence[Switch]:
        """Offer tables in files with a tenth of all rows in memory."""
        rows = {NAME: "tiered", "folder": f"{run.output}/rows", "cache": 0.1}
        made = Switch(
            name="tables on disk", change=f"rows: {{name: tiered, folder: {run.output}/rows, cache: 0.1}}",
            settings=(f"rows={json.dumps(rows)}",), quality="exact", page="tiers.md",
        )  # fmt: skip
        return (made,) if run.rows == "device" else ()

    def change_step(self, run: "Run", plan: Plan, step: "JobStep", numbers: int) -> "JobStep":
        """Add the time that lookups wait for rows that no cache holds."""
        from recsmith.training.systems.tiers.price import priced_s, rows_s

        if not is_tiered(run):
            return step
        priced = priced_s(run, plan)
        rows = rows_s(run, plan, max(0.0, step.step_s - priced))
        before = max(each.forward_compute_s for each in plan.cost.per_device)
        rows += forward_turn_s(plan, before + rows) - forward_turn_s(plan, before)
        return replace(step, embeddings_s=max(0.0, step.embeddings_s - priced), rows_s=step.rows_s + rows)

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """Sizes in files and in memory, the predicted hit rate of lookups, and how long they wait."""
        from recsmith.training.systems.tiers.price import tiers_line

        if not is_tiered(run):
            return ()
        return (
            SystemLine(key=self.key, on=True, said=tiers_line(run, facts.plan, facts.memory, _batches(run, facts))),
        )

    def steps_notes(self, run: "Run", source: "BatchSource", ranks: int) -> Sequence[str]:
        """A note if the profile of the static policy is longer than the run."""
        from recsmith.training.sources import total_steps
        from recsmith.training.systems.tiers.shares import unfinished_profile

        static = is_tiered(run) and run.rows_named[1].get("policy") == "static"
        steps = total_steps(run, source, ranks) if static else None
        said = unfinished_profile(run, steps and steps * batches_of_a_step(run))
        return () if said is None else (said,)

    def kernel_facts(self, run: "Run", plan: Plan) -> Mapping[str, Any]:
        """The least number of rows in each table's cache, and the share of its rows that the cache holds."""
        from recsmith.training.systems.tiers.shares import cached_tables, least_slots

        if not is_tiered(run):
            return {}
        shares = {each.table.name: each.share for each in cached_tables(run, plan)}
        return {"least": least_slots(run, plan), "shares": shares}

    def worded_plan(self, run: "Run", plan: Plan, device: str) -> tuple[Plan, Mapping[str, Any]] | None:
        """The plan in TorchRec's words if it keeps tables on disk, on CPU."""
        if device != "cpu" or all(each.compute_kernel != KEY_VALUE.name for each in plan.placements):
            return None
        from recsmith.training.systems.tiers.rows import on_disk

        return on_disk(plan)

    def scored_run(self, run: "Run", card: "ModelCard", folder: Path) -> "Run":
        """The run with its saved plan, if that plan says which tables are on disk and the run does not."""
        by_plan = is_tiered(run) and "cache" not in run.rows_named[1]
        return replace(run, plan=str(folder / "plan.json")) if by_plan else run

    def attached(self, run: "Run", model: "nn.Module") -> Any:
        """A counter of the cache hits of a job."""
        if not is_tiered(run):
            return None
        from recsmith.training.systems.tiers.hits import CacheHits

        return CacheHits()

    def line(self, job: "TrainingJob", steps: int) -> tuple[Raw, str]:
        """Cache hits and waiting since the last line of the log."""
        from recsmith.training.systems.tiers.hits import CacheHits

        hits = attached_in(job, self.key, CacheHits)
        return ({}, "") if hits is None else hits.line(job, steps)

    def result(self, job: "TrainingJob") -> Raw:
        """The hit rate of the whole job."""
        if not is_tiered(job.run):
            return {}
        from recsmith.training.systems.tiers.hits import hit_share_of, lookups_of

        return {"hit_share": hit_share_of(*lookups_of(job))}

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """The hit rate and the waiting time of lookups, compared with the prediction."""
        if not is_tiered(job.run):
            return {}
        from recsmith.training.systems.tiers.hits import brought_line
        from recsmith.training.systems.tiers.shares import predicted_hits

        batches = (job.progress.step - job.progress.begun) * batches_of_a_step(job.run)
        return {self.key: brought_line(job, predicted_hits(job.run, job.plan, batches))}

    def start_facts(self, run: "Run", plan: Plan) -> Raw:
        """The share of lookups that is predicted to find its row in memory."""
        from recsmith.training.systems.tiers.shares import predicted_hits

        hits = predicted_hits(run, plan)
        return {} if hits is None else {"predicted_hit_share": hits}

    def start_lines(self, run: "Run", plan: Plan) -> Sequence[str]:
        """The predicted hit rate, as a sentence."""
        from recsmith.training.systems.tiers.shares import cached_tables, predicted_hits

        hits = predicted_hits(run, plan)
        if hits is None:
            return ()
        tables = counted(len(cached_tables(run, plan)), "table")
        when = "once caches are full"
        return (
            f"rows: {tables} of these in files; {hits:.1%} of their lookups find a row in memory {when}, predicted",
        )


def _batches(run: "Run", facts: RunFacts) -> int | None:
    """The number of batches of the whole run, or None if it is not known."""
    return facts.batches if run.steps is None else run.steps * batches_of_a_step(run)


def is_tiered(run: "Run") -> bool:
    """Whether a run keeps its tables in files (`rows: tiered`)."""
    return run.rows_named[0] == "tiered"


SYSTEM = Tiers()
