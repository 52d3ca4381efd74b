"""Results of verifying plans: by a whole job of one plan, or by the kernels of several.

Legend: V visits, W ranks, P plans.
"""

from typing import Literal

from recsmith._types import noun
from recsmith.measuring.statistics import Interval
from recsmith.plans import Plan


@noun
class RankMeasure:
    """A rank's step, measured (medians) and predicted, and the peak memory of its embeddings.

    shards_bytes: by the plan's `real` accounting; base_bytes: its batch, outputs and gradients. The sum is
    predicted_bytes.
    """

    rank: int
    forward_s: float
    backward_s: float
    step_s: float
    predicted_s: float
    shards_bytes: int
    base_bytes: int
    peak_bytes: int

    @property
    def predicted_bytes(self) -> int:
        """Bytes that the rank should allocate for embeddings at the peak of a step."""
        return self.shards_bytes + self.base_bytes


@noun
class JobProgress:
    """The current stage of a verification; step: number of the step, among `steps` warm-up or timed ones."""

    stage: Literal["starting", "warming up", "training", "comparing"]
    ranks: int
    step: int = 0
    steps: int = 0


@noun
class JobVerification:
    """Measurements of each rank of a plan that trained in a TorchRec job, with the predictions."""

    plan: Plan
    steps: int
    ranks: tuple[RankMeasure, ...]

    @property
    def worst_memory(self) -> float:
        """The largest difference of measured from predicted memory, as a share of the measured."""
        return max(abs(rank.predicted_bytes / max(rank.peak_bytes, 1) - 1) for rank in self.ranks)


@noun
class MachineFactor:
    """Measured over predicted seconds: the median of some samples with its interval, and the quartiles."""

    median: Interval
    quartiles: tuple[float, float]
    samples: int


@noun
class RankKernels:
    """Seconds of a rank's kernels, medians over visits; predicted_s includes the machine's factor."""

    rank: int
    forward_s: float
    backward_s: float
    predicted_s: float

    @property
    def measured_s(self) -> float:
        """Measured seconds, forward and backward."""
        return self.forward_s + self.backward_s

    @property
    def error(self) -> float | None:
        """Relative error: predicted seconds / measured seconds - 1; None for a rank without work."""
        return self.predicted_s / self.measured_s - 1 if self.measured_s else None


@noun
class RankExchange:
    """Seconds of a rank's simulated all-to-alls from its own start, medians over visits; forward includes its wait.

    ready_s: when the rank begins the forward one. predicted_s, predicted_backward_s: of the learned model, for the same
    starts.
    """

    rank: int
    ready_s: float
    forward_s: float
    predicted_s: float
    backward_s: float
    predicted_backward_s: float

    @property
    def error(self) -> float:
        """Relative error of the forward all-to-all: predicted seconds / simulated seconds - 1."""
        return self.predicted_s / self.forward_s - 1


@noun
class PlanSteps:
    """The step of a plan, computed from measured kernels, and the predicted step.

    step: of the medians of its ranks over visits. steps_s: of each visit by itself (V,): in each visit the most
    disturbed rank is the slowest, so these are longer. predicted_s: with the machine's factor. collectives: why the
    exchanges are the cost model's, or '' if they were measured. tau: Kendall's, of ranks by measured and predicted
    kernels; None if they cannot be ranked. slower: relative difference to the step of each plan, in the same visits
    (P,). exchanges: on simulated links, with the predictions of a learned model; empty elsewhere.
    """

    name: str
    digest: str
    step: Interval
    steps_s: tuple[float, ...]
    predicted_s: float
    collectives: str
    ranks: tuple[RankKernels, ...]
    tau: float | None
    slower: tuple[Interval, ...]
    exchanges: tuple[RankExchange, ...] = ()

    @property
    def error(self) -> float:
        """Relative error: predicted seconds / measured seconds - 1."""
        return self.predicted_s / self.step.value - 1


@noun
class KernelVerification:
    """Plans whose kernels were measured, in the order they were given.

    winner: index of the plan with the best prediction. tau: of plans by measured and predicted steps, of three or more.
    alike: whether all have the same tables, batch and cluster, so that their steps do equal work. probe_moved: slowest
    probe of a visit over the fastest - 1.
    """

    hardware: str
    device: str
    versions: str
    cluster: str
    cost_model: str
    factor: MachineFactor
    visits: int
    complete: bool
    alike: bool
    probe_moved: float
    plans: tuple[PlanSteps, ...]
    winner: int
    tau: float | None

    def slower(self, plan: PlanSteps) -> Interval | None:
        """Relative difference of a plan's step to that of the plan with the best prediction; None for that plan."""
        return None if plan is self.plans[self.winner] else plan.slower[self.winner]
