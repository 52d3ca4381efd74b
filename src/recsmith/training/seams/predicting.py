"""What a system contributes before a run starts: rules for its plan, decisions for `auto`, step, memory, report lines.

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
class SystemLine:
    """A system of a run, as reported. key: key of the run. on: whether it is on. said: gain or cost, in a sentence."""

    key: str
    on: bool
    said: str


def _as_predicted(*said: Any) -> Any:
    """The step unchanged; called with (run, plan, ranks, step)."""
    return said[-1]


@dataclass(frozen=True)
class OpenRun:
    """A run while systems decide what it leaves open, one after the other.

    run: the run so far. parts: its data and model (Unsharded). plan: the plan as given. priced: the plan with the run's
    batch and optimizer. shapes: shapes of the dense parameters. numbers: count of gradient values that are sent between
    ranks. comms: encoding of messages between ranks, so far. step: the predicted step, so far; None if it is not
    predicted. before: the run of the checkpoint that training continues from, whose choices are kept. lines: what was
    decided, and why. lengths: lengths of the histories of the first step, rank by rank, if the model reads histories
    and the step is predicted. ranks: number of training ranks. told_step: function that turns a predicted step of a
    run, a plan and ranks into the step that a dry run reports.
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
    lines: tuple[SystemLine, ...] = ()
    lengths: Ints | None = None
    ranks: int = 1
    told_step: "Callable[[Run, Plan, int, JobStep | None], JobStep | None]" = _as_predicted

    def gain_of(self, step: "JobStep | None") -> float:
        """The fraction of the step time that another step saves, both as a dry run reports them; advice uses it, too.

        It is 0 if steps are not predicted.
        """
        before, after = (self.told_step(self.run, self.priced, self.ranks, each) for each in (self.step, step))
        return gain_of(before.step_s, after.step_s) if before is not None and after is not None else 0.0

    def with_lines(self, key: str, on: bool, said: Iterable[str]) -> "OpenRun":
        """A copy with report lines of a system added."""
        return replace(self, lines=(*self.lines, *(SystemLine(key=key, on=on, said=each) for each in said)))


@dataclass(frozen=True)
class RunFacts:
    """What is known about a decided run: its priced plan, the predicted step, and the memory of each rank.

    step: None if it is not predicted. memory: of each rank. numbers: count of dense weights. ranks: number of training
    ranks. batches: batches of a rank in the whole run, if the run ends with its data and their number is known.
    matrices: number of dense parameters that are matrices.
    """

    plan: Plan
    step: "JobStep | None"
    memory: "Sequence[RankMemory]"
    numbers: int
    ranks: int
    batches: int | None = None
    matrices: int = 0


class Predicting:
    """What a system decides before a run starts, and its effect on the run's time and memory."""

    def plan_rules(self, run: "Run", hosts: int) -> Sequence[TableRule]:
        """Rules that a plan made for the run must keep."""
        return ()

    def run_of_plan(self, run: "Run", ranks: int) -> "tuple[Run, int] | None":
        """(run whose tables are planned, number of devices), if training ranks do not hold the tables; else None."""
        return None

    def needs_step(self, run: "Run") -> bool:
        """Whether its decision depends on the predicted step."""
        return False

    def decide(self, made: OpenRun) -> OpenRun:
        """Decide what the run leaves open, and change the predicted step accordingly."""
        return made

    def kept_plan(self, run: "Run", plan: Plan) -> Plan:
        """The plan with tables as the run stores them, from which memory is predicted."""
        return plan

    def change_step(self, run: "Run", plan: Plan, step: "JobStep", numbers: int) -> "JobStep":
        """The predicted step with the effect of the run's settings. numbers: count of gradient values sent by ranks."""
        return step

    def change_told_step(self, run: "Run", plan: Plan, ranks: int, step: "JobStep") -> "JobStep":
        """The step as it is reported once everything is decided. ranks: number of training ranks."""
        return step

    def bytes_of_number(self, run: "Run") -> int | None:
        """Bytes of a dense weight, if it is not fp32; otherwise None."""
        return None

    def more_bytes(self, run: "Run", plan: Plan) -> int:
        """Bytes that it adds at the peak of a step, in addition to tables, batch and layers."""
        return 0

    def layer_state(self, run: "Run", numbers: int) -> int | None:
        """Bytes of state for `numbers` dense weights, if its step trains them itself; otherwise None."""
        return None

    def change_memory(
        self, run: "Run", plan: Plan, memory: Sequence["RankMemory"], activations: int
    ) -> Sequence["RankMemory"]:
        """The memory of each rank, if parts of it are not held at the same time. activations: bytes of a rank."""
        return memory

    def summary(self, run: "Run", facts: RunFacts) -> Sequence[SystemLine]:
        """What a run uses of the system, with its effect on bytes and time, unless `decide` has reported it."""
        return ()

    def switches(self, run: "Run") -> "Sequence[Switch]":
        """Settings of the system that a run could still switch on: `recsmith advise` prices a dry run with each."""
        return ()

    def notes(self, run: "Run", source: "BatchSource", steps: int | None) -> Sequence[str]:
        """More lines of a dry run. steps: steps of the run, if they are known."""
        return ()

    def steps_notes(self, run: "Run", source: "BatchSource", ranks: int) -> Sequence[str]:
        """Lines for a dry run and the start of a job, if its steps are not a fixed number of batches each."""
        return ()
