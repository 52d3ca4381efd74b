"""What verifying a plan by a job finds."""

from typing import Literal

from recsmith._types import noun
from recsmith.plans import Plan


@noun
class RankMeasure:
    """A rank's step, measured (medians) beside predicted, and the memory of embeddings at its peak.

    shards_bytes: the plan's `real` accounting; base_bytes: its batch, outputs and gradients. The sum is
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
        """What the rank should allocate for embeddings at the peak of a step."""
        return self.shards_bytes + self.base_bytes


@noun
class JobProgress:
    """What of a verification is under way; step: of so many `steps` that warm up, or of those that are timed."""

    stage: Literal["starting", "warming up", "training", "comparing"]
    ranks: int
    step: int = 0
    steps: int = 0


@noun
class JobVerification:
    """What each rank of a plan took when the plan trained in a TorchRec job, beside what was predicted."""

    plan: Plan
    steps: int
    ranks: tuple[RankMeasure, ...]

    @property
    def worst_memory(self) -> float:
        """The largest difference of measured from predicted memory, as a share of the measured."""
        return max(abs(rank.predicted_bytes / max(rank.peak_bytes, 1) - 1) for rank in self.ranks)
