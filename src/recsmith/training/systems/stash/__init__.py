"""Tables that rest in a file while dense layers work, so that activations have their memory, on CPU (docs/stashing.md).

resting.py writes memory to a file and gives its pages back, rows.py is the store, parts.py what does not go with it,
bytes.py how much of each rank rests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from recsmith._components import NAME, register
from recsmith.plans import Plan
from recsmith.training.seams.predicting import OpenRun, RunFacts, SystemTold
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
    """Tables that rest."""

    key = "rows"

    def row_parts(self, run: "Run") -> Sequence["Part"]:
        """All fused tables, or those that are named."""
        from recsmith.training.systems.stash.parts import TablesRest

        return (TablesRest(),) if is_stashed(run) else ()

    def decide(self, made: OpenRun) -> OpenRun:
        """Which tables rest, by the plan where it says so; and of `when: auto`, whether any do."""
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
                told = f"rows: stashed is off: {said}"
                step = made.step and replace(
                    made.step, embeddings_s=made.step.embeddings_s - copies_s(made.run, made.priced)
                )
                return replace(made, run=replace(made.run, rows="device"), step=step).telling(self.key, False, [told])
            settings = {**settings, "when": "always"}
        return replace(made, run=replace(made.run, rows={NAME: "stashed", **settings}))

    def kept_plan(self, run: "Run", plan: Plan) -> Plan:
        """Tables that rest say so, where that is decided."""
        if not is_stashed(run) or run.rows_named[1].get("when") == "auto":
            return plan
        from recsmith.training.systems.stash.bytes import resting_plan

        return resting_plan(run, plan)

    def change_memory(
        self, run: "Run", plan: Plan, memory: Sequence["RankMemory"], activations: int
    ) -> Sequence["RankMemory"]:
        """Activations have the memory of what rests."""
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
        """Tables are written behind lookups, and read before updates."""
        if not is_stashed(run):
            return step
        from recsmith.training.systems.stash.bytes import copies_s

        return replace(step, embeddings_s=step.embeddings_s + copies_s(run, plan))

    def told(self, run: "Run", told: RunFacts) -> Sequence[SystemTold]:
        """How much rests, and how long copies take."""
        if not is_stashed(run):
            return ()
        from recsmith.training.systems.stash.bytes import stashed_line

        return (SystemTold(key=self.key, on=True, said=stashed_line(run, told.plan, told)),)

    def brought(self, job: "TrainingJob") -> Mapping[str, str]:
        """How much rested, and how long copies took."""
        if not is_stashed(job.run):
            return {}
        from recsmith.training.systems.stash.bytes import brought_line
        from recsmith.training.systems.stash.rows import StashedRows

        assert isinstance(job.sharded.rows, StashedRows)
        return {self.key: brought_line(job.run, job.plan, job.sharded.rows.resting)}

    def attached(self, run: "Run", model: "nn.Module") -> Any:
        """What a batch without a gradient for a table has left away comes back before the next step."""
        if not is_stashed(run):
            return None
        from recsmith.training.systems.stash.bytes import BackBeforeSteps

        return BackBeforeSteps()


def is_stashed(run: "Run") -> bool:
    """Whether tables of a run rest."""
    return run.rows_named[0] == "stashed"


SYSTEM = Stashed()
