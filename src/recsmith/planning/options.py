"""How to search: the options that `plan`, `compare`, `sweep` and the drop-in planner share."""

from typing import TypedDict

from recsmith._types import noun
from recsmith.planners import Budget
from recsmith.problems import Space


class SearchWords(TypedDict, total=False):
    """The keyword arguments of `SearchOptions`, for functions that pass them on."""

    cost_model: str | None
    seed: int
    iterations: int | None
    time_limit_s: float | None
    space: Space | None


@noun
class SearchOptions:
    """How to search, and among what.

    cost_model: a name, or `neural:<name or file>`; the default one for None. seed: of planners that draw at random.
    iterations, time_limit_s: how long to search; the first is reproducible, the second marks the result truncated.
    space: the types, widths and kernels to choose from; all that TorchRec runs for None.
    """

    cost_model: str | None = None
    seed: int = 0
    iterations: int | None = None
    time_limit_s: float | None = None
    space: Space | None = None

    @property
    def budget(self) -> Budget:
        """How long a planner may search; UsageError where that leaves no time."""
        return Budget(iterations=self.iterations, time_limit_s=self.time_limit_s)
