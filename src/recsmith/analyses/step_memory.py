"""The memory of a plan over the phases of a step, for `recsmith explain --memory`."""

from dataclasses import dataclass

from recsmith.clusters import Cluster
from recsmith.errors import UsageError
from recsmith.files import Source
from recsmith.plans import Plan, load_plan
from recsmith.problems import footprint_of, problem_holding, problem_of
from recsmith.problems.dense_bytes import DenseBytes
from recsmith.problems.memory_schedule import MemorySchedule
from recsmith.problems.plain_reserve import kept_estimate, plain_dense
from recsmith.problems.stashing import StashedBytes, schedule_of, stashed_of
from recsmith.units import format_size


@dataclass(frozen=True)
class StepMemory:
    """The memory schedule of a plan, the bytes of stashed tables, and the bytes of dense layers.

    source: the source of `dense`, in words.
    """

    plan: Plan
    schedule: MemorySchedule
    rests: StashedBytes | None
    dense: DenseBytes
    source: str

    @property
    def stated(self) -> Cluster:
        """The plan's cluster with the whole requested reserve, also if phases keep different parts of it free."""
        asked = problem_of(self.plan).constraints.stash
        if asked is None or asked.dense is None:
            return self.plan.cluster
        dense = asked.dense
        whole = dense.fixed + dense.gradients + dense.activations + dense.temporaries
        return self.plan.cluster.with_memory(reserve_bytes=whole)


def step_memory(
    plan: Plan | Source, dense: DenseBytes | None = None, source: str = "the run's own layers"
) -> StepMemory:
    """The memory in use on each rank in each phase of a step.

    Args:
        plan: a Plan, or its file.
        dense: bytes of the model without its tables. By default those that the plan was made with: its own record if
            tables may be stashed, the estimate of a plain DLRM, or the stated reserve, which is then in use in every
            phase.
        source: the source of `dense`, in words.

    Raises:
        UsageError: the plan was made in TorchRec's accounting, which knows no phases.
    """
    plan = load_plan(plan)
    problem = problem_of(plan)
    if problem.constraints.memory != "real":
        raise UsageError("the plan was made in TorchRec's accounting, which tells no phases apart; plan without it")
    wider = problem_holding(problem, plan.placements)
    footprint = footprint_of(wider, plan.placements)
    known, source = (dense, source) if dense is not None else dense_bytes_of(plan)
    return StepMemory(
        plan=plan, schedule=schedule_of(wider, plan.placements, footprint, known),
        rests=stashed_of(wider, plan.placements, footprint), dense=known, source=source,
    )  # fmt: skip


def with_dense(memory: StepMemory, dense: DenseBytes) -> StepMemory:
    """The memory of the same plan's step with other bytes of dense layers."""
    return step_memory(memory.plan, dense)


def dense_bytes_of(plan: Plan) -> tuple[DenseBytes, str]:
    """The bytes that a plan was made to leave to dense layers, and their source in words."""
    stashing = problem_of(plan).constraints.stash
    if stashing is not None and stashing.dense is not None:
        return stashing.dense, _made_for(plan, stashing.dense)
    estimate, found = kept_estimate(plan.workload, plan.cluster), plain_dense(plan.workload, plan.cluster)
    if estimate is not None and found is not None:
        return found, f"of {estimate.layers}, estimated"
    reserve = plan.cluster.reserve_bytes or 0
    on_cpu = plan.cluster.device.kind == "cpu"
    words = "the stated reserve, taken to be alive in every phase" if reserve else "none: no reserve was stated"
    return DenseBytes(fixed=reserve, batch_apart=on_cpu), words


def _made_for(plan: Plan, dense: DenseBytes) -> str:
    """The source of dense bytes in words, for a plan with stashed tables, whose reserve differs from phase to phase."""
    always, beside = format_size(dense.fixed), format_size(dense.activations)
    kept = format_size(plan.cluster.reserve_bytes or 0)
    words = f"as the plan was made for: {always} always, and {beside} of activations"
    return f"{words}; tables leave {kept} free in other phases"
