"""When a run that measures ends."""

from recsmith._types import noun
from recsmith.errors import UsageError


@noun
class Limit:
    """A run ends after budget_s seconds, or once its folder holds so many samples; whichever comes first.

    samples: steady samples of compute measurements, exchanges of comm measurements.

    Raises:
        UsageError: neither is given, or nothing can be measured within it.
    """

    budget_s: float | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        """Check that there is one, and that something can be done within it."""
        if self.budget_s is None and self.samples is None:
            raise UsageError("nothing says when to stop; give a --budget such as 20m, or a number of --samples")
        if self.budget_s is not None and self.budget_s <= 0:
            raise UsageError(
                f"the budget is {self.budget_s:g} s, in which nothing can be measured; give for example 20m"
            )
        if self.samples is not None and self.samples < 1:
            raise UsageError(f"{self.samples} samples are none; ask for at least 1")

    def reached(self, samples: int, elapsed_s: float) -> bool:
        """Whether a run ends: samples are those of its folder, elapsed_s its seconds up to now."""
        enough = self.samples is not None and samples >= self.samples
        return enough or (self.budget_s is not None and elapsed_s >= self.budget_s)
