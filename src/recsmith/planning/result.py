"""What a search returns: the plan, which is reproducible, and how the run went, which is not."""

from recsmith._types import noun
from recsmith.plans import Plan


@noun
class Result:
    """A plan with seconds, iterations and whether a limit cut the search short.

    members: the parts that finished of a search made of several; the plan is no worse than any of theirs. left_out:
    what the search would have done besides with an extra that is not installed, or with the module that a C compiler
    builds, in words for a report.
    """

    plan: Plan
    elapsed_s: float
    iterations: int
    truncated: bool = False
    members: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
