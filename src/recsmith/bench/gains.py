"""What one planner's plans are worth beside the others': figures of a row of tasks, and how sure they are.

A figure says how much longer a planner's steps take than the reference's: of each task the median over visits of
planner / reference - 1, both measured in the same visit; of a row the mean over its tasks. The interval is that of the
bootstrap: tasks are drawn with replacement, and the visits within each.

Legend: T tasks, V visits, W ranks, B resamples.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from recsmith._types import Floats, noun
from recsmith.bench.book import Measured
from recsmith.measuring.intervals import HIGH, LOW, Interval
from recsmith.measuring.steps import step_seconds

RESAMPLES = 4_000
CLASSIC = ("size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy")  # the paper's baselines
REFERENCE = "auto"


@noun
class Gain:
    """How much longer a planner's steps take than the reference's, over the tasks where both have a plan.

    interval: None where there is no such task. step_s: of the planner, mean over those tasks.
    """

    planner: str
    tasks: int
    interval: Interval | None = None
    step_s: float | None = None

    @property
    def better(self) -> bool:
        """Whether the reference is significantly better."""
        return self.interval is not None and self.interval.low > 0

    @property
    def worse(self) -> bool:
        """Whether the reference is significantly worse."""
        return self.interval is not None and self.interval.high < 0


@noun
class Figures:
    """A row beside a reference. step_s: of the reference, mean over its tasks. tasks: that were measured."""

    row: str
    reference: str
    tasks: int
    step_s: float | None
    gains: tuple[Gain, ...]

    @property
    def best_greedy(self) -> Gain | None:
        """The classic greedy whose steps take least longer than the reference's."""
        some = [gain for gain in self.gains if gain.planner in CLASSIC and gain.interval]
        return min(some, key=lambda gain: gain.interval.value if gain.interval else 0.0, default=None)


@noun
class Verdict:
    """What a reference comes to over all rows.

    worse: (row, planner) where it is significantly worse. better: rows where it is significantly better than the best
    classic greedy, of `rows` that have one.
    """

    reference: str
    worse: tuple[tuple[str, str], ...]
    better: tuple[str, ...]
    rows: int


def figures(
    row: str, tasks: Sequence[Measured], reference: str, planners: Sequence[str], *, kernels_only: bool = False
) -> Figures:
    """The figures of tasks. kernels_only: without the collectives, which are priced and not measured."""
    found = [seconds_of(task, kernels_only=kernels_only) for task in tasks]
    own = [float(np.median(each[reference])) for each in found if reference in each]
    gains = tuple(_gain(found, reference, planner) for planner in planners if planner != reference)
    return Figures(row=row, reference=reference, tasks=len(tasks), step_s=_mean(own), gains=gains)


def seconds_of(task: Measured, *, kernels_only: bool = False) -> dict[str, Floats]:
    """Seconds of the step of each planner's plan in each visit (V,)."""
    idle = 0.0 if kernels_only else 1.0
    return {planner: step_seconds(kernels, task.comm[planner] * idle) for planner, kernels in task.kernels.items()}


def _gain(found: Sequence[Mapping[str, Floats]], reference: str, planner: str) -> Gain:
    pairs = [(each[planner], each[reference]) for each in found if planner in each and reference in each]
    if not pairs:
        return Gain(planner=planner, tasks=0)
    ratios = np.array([mine / other - 1 for mine, other in pairs])
    mean = _mean([float(np.median(mine)) for mine, _ in pairs])
    return Gain(planner=planner, tasks=len(pairs), interval=bootstrap_tasks(ratios), step_s=mean)


def bootstrap_tasks(values: Floats, seed: int = 0) -> Interval:
    """The mean over tasks of the medians over visits of values (T, V), and percentiles of resampled ones."""
    tasks, visits = values.shape
    rng = np.random.default_rng(seed)
    task = rng.integers(0, tasks, (RESAMPLES, tasks, 1))
    visit = rng.integers(0, visits, (RESAMPLES, tasks, visits))
    means = np.median(values[task, visit], axis=2).mean(axis=1)  # (B, T, V) -> (B,)
    low, high = np.percentile(means, (LOW, HIGH)).tolist()
    return Interval(value=float(np.median(values, axis=1).mean()), low=low, high=high)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def verdict(rows: Sequence[Figures], reference: str) -> Verdict:
    """What the rows come to."""
    greedy = {row.row: row.best_greedy for row in rows}
    return Verdict(
        reference=reference,
        worse=tuple((row.row, gain.planner) for row in rows for gain in row.gains if gain.worse),
        better=tuple(name for name, best in greedy.items() if best and best.better),
        rows=sum(best is not None for best in greedy.values()),
    )
