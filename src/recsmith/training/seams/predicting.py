"""What a system is asked of a run before it starts: its plan, what `auto` decides, its step, its memory, what is told.

Nothing here imports torch.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recsmith._types import Ints, noun
from recsmith.analyses.paying import gain_of
from recsmith.plans import Plan
from recsmith.problems import TableRule
from recsmith.sharding import TYPE_NAMES

if TYPE_CHECKING:
    from recsmith.analyses.advice import Switch
    from recsmith.prediction.job_step import JobStep
    from recsmith.training.job.models import Unsharded
    from recsmith.training.job.run_step import RankMemory
    from recsmith.training.run.run import Run
    from recsmith.training.sources.protocol import BatchSource

NO_COPIES = TableRule(tables="*", sharding_types=tuple(name for name in TYPE_NAMES if name != "data_parallel"))


@noun
class SystemTold:
    """A system of a run. key: of the run. on: whether the run has it. said: what it brings or costs, in a sentence."""

    key: str
    on: bool
    said: str


def _as_predicted(*said: Any) -> Any:
    """A step as it is, of (run, plan, ranks, step)."""
    return said[-1]


@dataclass(frozen=True)
class OpenRun:
    """A run while systems decide what it leaves open, one after the other.

    run: so far. parts: its data and model (Unsharded). plan: as it was given. priced: with the run's batch and
    optimizer. shapes: of dense parameters. numbers: of gradients that cross ranks. comms: what crosses ranks, so far.
    step: predicted, so far; None where it is not. before: the run of the checkpoint that training goes on from, whose
    choices stay. told: what was decided, and why. lengths: of the histories of the first step, rank by rank, where the
    model is one of histories and the step is predicted. ranks: that train. told_step: how a dry run tells a step of a
    run, a plan and ranks.
    """

    run: "Run"
    parts: "Unsharded"
    plan: Plan
    priced: Plan
    shapes: Sequence[Sequence[int]]
    numbers: int
    comms: Any
    step: "JobStep | None" = None
    before: "Run | None" = None
    told: tuple[SystemTold, ...] = ()
    lengths: Ints | None = None
    ranks: int = 1
    told_step: "Callable[[Run, Plan, int, JobStep | None], JobStep | None]" = _as_predicted

    def gain_of(self, step: "JobStep | None") -> float:
        """The share of a step that another one saves, both as a dry run tells them, by which advice goes too.

        Where steps are not predicted there is none.
        """
        before, after = (self.told_step(self.run, self.priced, self.ranks, each) for each in (self.step, step))
        return gain_of(before.step_s, after.step_s) if before is not None and after is not None else 0.0

    def telling(self, key: str, on: bool, lines: Iterable[str]) -> "OpenRun":
        """The same, with lines of a system."""
        return replace(self, told=(*self.told, *(SystemTold(key=key, on=on, said=line) for line in lines)))


@dataclass(frozen=True)
class RunFacts:
    """What is known of a decided run: its plan as it is priced, the predicted step, and what each rank holds.

    step: None where it is not predicted. memory: of each rank. numbers: of dense layers. ranks: that train. batches: of
    a rank in the whole run, where it ends with its data and their number is known. matrices: of dense layers.
    """

    plan: Plan
    step: "JobStep | None"
    memory: "Sequence[RankMemory]"
    numbers: int
    ranks: int
    batches: int | None = None
    matrices: int = 0


class Predicting:
    """What a system decides before a run starts, and what the run then takes and holds."""

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """What a plan that is made for a run must keep."""
        return ()

    def run_of_plan(self, run: "Run", ranks: int) -> "tuple[Run, int] | None":
        """(the run whose tables are planned, on how many devices) where ranks that train do not hold tables."""
        return None

    def needs_step(self, run: "Run") -> bool:
        """Whether it decides by the predicted step."""
        return False

    def decide(self, made: OpenRun) -> OpenRun:
        """Decide what the run leaves open, and change the predicted step by what it brings."""
        return made

    def kept_plan(self, run: "Run", plan: Plan) -> Plan:
        """The plan as the run keeps its rows: by which memory is told."""
        return plan

    def change_step(self, run: "Run", plan: Plan, step: "JobStep", numbers: int) -> "JobStep":
        """The predicted step with what the run's settings make of it. numbers: of gradients that cross ranks."""
        return step

    def change_told_step(self, run: "Run", plan: Plan, ranks: int, step: "JobStep") -> "JobStep":
        """The step as it is told once all is decided. ranks: that train."""
        return step

    def bytes_of_number(self, run: "Run") -> int | None:
        """Of a weight of dense layers, where it is not of fp32."""
        return None

    def more_bytes(self, run: "Run", plan: Plan) -> int:
        """What it holds of memory at the peak of a step beside tables, batch and layers."""
        return 0

    def layer_state(self, run: "Run", numbers: int) -> int | None:
        """Bytes that its step keeps beside so many numbers of dense layers, where it trains them itself; else None."""
        return None

    def change_memory(
        self, run: "Run", plan: Plan, memory: Sequence["RankMemory"], activations: int
    ) -> Sequence["RankMemory"]:
        """What each rank holds (RankMemory), where parts of it are not there at once. activations: bytes of a rank."""
        return memory

    def told(self, run: "Run", told: RunFacts) -> Sequence[SystemTold]:
        """What a run has of it, and what that does to bytes and time, where `decide` has not said so."""
        return ()

    def switches(self, run: "Run") -> "Sequence[Switch]":
        """What a run could switch on of it and has not yet: `recsmith advise` prices a dry run with each."""
        return ()

    def notes(self, run: "Run", source: "BatchSource", steps: int | None) -> Sequence[str]:
        """Lines of a dry run beside those. steps: of the run, where they are known."""
        return ()

    def steps_notes(self, run: "Run", source: "BatchSource", ranks: int) -> Sequence[str]:
        """Lines of a dry run, and of a job as it begins, where its steps are other than so many batches each."""
        return ()
