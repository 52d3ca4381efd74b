"""What verifying plans finds, as nouns. Legend: V visits, W ranks."""

from recsmith._types import noun
from recsmith.measuring.intervals import Interval
from recsmith.measuring.references import Factor


@noun
class RankKernels:
    """Seconds of a rank's kernels, medians over visits; predicted_s with the machine's factor."""

    rank: int
    forward_s: float
    backward_s: float
    predicted_s: float

    @property
    def measured_s(self) -> float:
        """Forward and backward."""
        return self.forward_s + self.backward_s

    @property
    def error(self) -> float | None:
        """Predicted over measured - 1; None of a rank that does nothing."""
        return self.predicted_s / self.measured_s - 1 if self.measured_s else None


@noun
class PlanSteps:
    """A plan as it was measured.

    steps_s: of each visit (V,); median: their median; predicted_s: with the machine's factor.
    collectives: why the exchanges are the cost model's, or nothing where they were measured.
    tau: Kendall's, of ranks by measured and predicted kernels; None where they cannot be ranked.
    slower: than the plan with the least prediction, paired; None of that plan itself.
    """

    name: str
    digest: str
    steps_s: tuple[float, ...]
    median: Interval
    predicted_s: float
    collectives: str
    ranks: tuple[RankKernels, ...]
    tau: float | None
    slower: Interval | None

    @property
    def error(self) -> float:
        """Predicted over measured - 1."""
        return self.predicted_s / self.median.value - 1


@noun
class Verification:
    """Plans in the order they were given. winner: the place of the one predicted best. tau: of plans, of three or more.

    alike: whether all have the same tables, batch and ranks, so that their steps do equal work.
    probe_moved: slowest probe of a visit over the fastest - 1.
    """

    hardware: str
    device: str
    versions: str
    cluster: str
    cost_model: str
    factor: Factor
    visits: int
    complete: bool
    alike: bool
    probe_moved: float
    plans: tuple[PlanSteps, ...]
    winner: int
    tau: float | None
