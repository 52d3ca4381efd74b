"""Means with 95 % intervals by Student's t: what benchmarks of training say of several seeds."""

import statistics
from collections.abc import Sequence

STUDENT = (  # at 95 %, 1 to 14 degrees of freedom
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
)  # fmt: skip


def mean_within(values: Sequence[float]) -> tuple[float, float | None]:
    """(mean, half of its 95 % interval by Student's t); None for a single value."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    t = STUDENT[min(len(values) - 2, len(STUDENT) - 1)]
    return mean, t * statistics.stdev(values) / len(values) ** 0.5
