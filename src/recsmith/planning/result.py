"""What a search returns: the plan, which is reproducible, and how the run went, which is not."""

from recsmith._types import noun
from recsmith.plans import Plan


@noun
class Result:
    """A plan with seconds, iterations and whether a limit cut the search short.

    members: the parts of a search made of several that finished, and what was left out for want of an extra; the plan
    is no worse than any of theirs.
    """

    plan: Plan
    elapsed_s: float
    iterations: int
    truncated: bool = False
    members: tuple[str, ...] = ()
