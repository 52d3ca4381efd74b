"""How to search: the options that `plan`, `compare`, `sweep` and the drop-in planner share."""

from typing import TypedDict

from recsmith._types import noun
from recsmith.costs import CostModel
from recsmith.errors import UsageError
from recsmith.planners import Budget
from recsmith.problems import Space

LARGEST_SEED = 2**63


class SearchWords(TypedDict, total=False):
    """The keyword arguments of `SearchOptions`, for functions that pass them on."""

    cost_model: str | CostModel | None
    seed: int
    iterations: int | None
    time_limit_s: float | None
    space: Space | None


@noun
class SearchOptions:
    """How to search, and among what.

    cost_model: a name, `neural:<name or file>`, or an object of your own; the default one for None.
    seed: of planners that draw at random.
    iterations, time_limit_s: how long to search; the first is reproducible, the second marks the result truncated.
    space: the types, widths and kernels to choose from; all that TorchRec runs for None.
    """

    cost_model: str | CostModel | None = None
    seed: int = 0
    iterations: int | None = None
    time_limit_s: float | None = None
    space: Space | None = None

    def __post_init__(self) -> None:
        """Check the seed."""
        if not 0 <= self.seed < LARGEST_SEED:
            raise UsageError(f"seed is {self.seed}; seeds are whole numbers from 0 to 2^63")

    @property
    def budget(self) -> Budget:
        """How long a planner may search; UsageError where that leaves no time."""
        return Budget(iterations=self.iterations, time_limit_s=self.time_limit_s)
