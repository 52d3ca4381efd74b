"""Stash tables in a file while dense layers work, so that activations can use their memory, on CPU (docs/stashing.md).

resting.py writes memory to a file and frees its pages. rows.py is the row store, parts.py says what stashing excludes,
and bytes.py predicts bytes and seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recsmith._components import NAME, register
from recsmith.plans import Plan
from recsmith.training.seams.predicting import OpenRun, RunFacts, SystemLine
from recsmith.training.seams.system import ROWS, System

if TYPE_CHECKING:
    from torch import nn

    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.job import TrainingJob
    from recsmith.training.job.run_step import RankMemory
    from recsmith.training.run.run import Run
    from recsmith.training.seams.capabilities import Part

register(ROWS, "stashed", "recsmith.training.systems.stash.rows:StashedRows")


class Stashed(System):
    """The system that stashes tables in a file during a step (`rows: stashed`)."""

    key = "rows"

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """Stashed tables, if the run has them."""
        from recsmith.training.systems.stash.parts import TablesRest

        return (TablesRest(),) if is_stashed(run) else ()

    def decide(self, made: OpenRun) -> OpenRun:
        """Decide which tables are stashed, by the plan if it says so, and for `when: auto` whether any is."""
        if not is_stashed(made.run):
            return made
        from recsmith.training.systems.stash.bytes import check_named, copies_s, fits_without

        _, settings = made.run.rows_named
        planned = [each.table for each in made.plan.placements if each.stash]
        if planned:
            settings = {"tables": planned, **settings}
        check_named(settings.get("tables"), [each.name for each in made.plan.workload.tables])
        if settings.get("when") == "auto":
            said = fits_without(made)
            if said is not None:
                text = f"rows: stashed is off: {said}"
                step = made.step and replace(
                    made.step, embeddings_s=made.step.embeddings_s - copies_s(made.run, made.priced)
                )
                without = replace(made.run, rows="device")
                return replace(made, run=without, step=step).with_lines(self.key, False, [text])
            settings = {**settings, "when": "always"}
        return replace(made, run=replace(made.run, rows={NAME: "stashed", **settings}))

    def kept_plan(self, run: "Run", plan: Plan) -> Plan:
        """The plan with stashed tables marked, once that is decided."""
        if not is_stashed(run) or run.rows_named[1].get("when") == "auto":
            return plan
        from recsmith.training.systems.stash.bytes import resting_plan

        return resting_plan(run, plan)

    def change_memory(
        self, run: "Run", plan: Plan, memory: Sequence["RankMemory"], activations: int
    ) -> Sequence["RankMemory"]:
        """Let activations use the memory of stashed tables, and count these tables as bytes in a file."""
        if not is_stashed(run):
            return memory
        from recsmith.training.systems.stash.bytes import resting_bytes

        rests = resting_bytes(run, plan)
        return [
            replace(
                each, layers=each.layers - min(activations, size), file=each.file + size, freed=min(activations, size)
            )
            for each, size in zip(memory, rests, strict=True)
        ]

    def change_step(self, run: "Run", plan: Plan, step: "JobStep", numbers: int) -> "JobStep":
        """Add the seconds in which tables are written after lookups and read before updates."""
        if not is_stashed(run):
            return step
        from recsmith.training.systems.stash.bytes import copies_s

        return replace(step, embeddings_s=step.embeddings_s + copies_s(run, plan))

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """Bytes that are stashed, and predicted seconds of copying."""
        if not is_stashed(run):
            return ()
        from recsmith.training.systems.stash.bytes import stashed_line

        return (SystemLine(key=self.key, on=True, said=stashed_line(run, facts.plan, facts)),)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """Bytes that were stashed, and seconds of copying."""
        if not is_stashed(job.run):
            return {}
        from recsmith.training.systems.stash.bytes import brought_line
        from recsmith.training.systems.stash.rows import StashedRows

        assert isinstance(job.sharded.rows, StashedRows)
        return {self.key: brought_line(job.run, job.plan, job.sharded.rows.resting)}

    def attached(self, run: "Run", model: "nn.Module") -> Any:
        """A hook that restores, before each step, tables that got no gradient in the last batch."""
        if not is_stashed(run):
            return None
        from recsmith.training.systems.stash.bytes import BackBeforeSteps

        return BackBeforeSteps()


def is_stashed(run: "Run") -> bool:
    """Whether a run stashes tables (`rows: stashed`)."""
    return run.rows_named[0] == "stashed"


SYSTEM = Stashed()
