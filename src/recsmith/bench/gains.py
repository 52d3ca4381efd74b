"""Gains of one planner over the others: how much longer their steps take, over a row of tasks, with intervals.

A gain is planner / reference - 1 of the seconds of a task's step, and of a row the mean over its tasks. The step is
estimated from a task's visits in three ways (ESTIMATES):

    median      a rank takes its median over visits, forward and backward each; collectives are as priced
    fastest     a rank takes its fastest visit instead: what slows a whole visit down does not count
    kernels     as median, without the collectives, which are not measured

Intervals are bootstrapped: tasks are drawn with replacement, and for medians the visits of each task, the same visits
for all planners.

Legend: T tasks, V visits, W ranks, B resamples.
"""

from collections.abc import Mapping, Sequence
from zlib import crc32

import numpy as np

from recsmith._types import Floats, noun
from recsmith.bench.journal_lines import MeasuredVisit
from recsmith.measuring.intervals import Interval, draw_visits, interval
from recsmith.verifying.kernels.steps import resampled_steps

RESAMPLES = 4_000  # B: trade-off, more make the ends of intervals steadier and take longer
LEAST_TASKS = 5  # behind an interval that tells plans apart: of fewer, resampled tasks are too often the same
Resampled = Floats
"""Seconds of a step as measured, and behind them those of B resamples (1 + B,)."""

CLASSIC = ("size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy")  # the paper's baselines
REFERENCE = "auto"  # the planner that others are compared with
ESTIMATES = ("median", "fastest", "kernels")  # of a step; see the module. The first is the main one


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
        return self._enough and self.interval is not None and self.interval.low > 0

    @property
    def worse(self) -> bool:
        """Whether the reference is significantly worse."""
        return self._enough and self.interval is not None and self.interval.high < 0

    @property
    def _enough(self) -> bool:
        """Whether there are enough tasks for the interval to mean something."""
        return self.tasks >= LEAST_TASKS


@noun
class RowGains:
    """Gains of a row of tasks: of a reference over the other planners.

    tasks: that were measured. step_s: of the reference, mean over its tasks.
    """

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
    """Where a reference is significantly worse, and where it is significantly better.

    worse: (row, planner) where it is significantly worse. better: rows where it is significantly better than the best
    classic greedy, of `rows` that have one.
    """

    reference: str
    worse: tuple[tuple[str, str], ...]
    better: tuple[str, ...]
    rows: int


def row_gains(row: str, tasks: Sequence[Mapping[str, Resampled]], reference: str, planners: Sequence[str]) -> RowGains:
    """The gains of a row's tasks, each given by the steps of its plans (`steps_of`)."""
    own = [float(each[reference][0]) for each in tasks if reference in each]
    gains = tuple(_gain(tasks, reference, planner) for planner in planners if planner != reference)
    return RowGains(row=row, reference=reference, tasks=len(tasks), step_s=_mean(own), gains=gains)


def steps_of(visits: Sequence[MeasuredVisit], estimate: str) -> dict[str, Resampled]:
    """Seconds of the step of each planner's plan from the visits of a task, by one of ESTIMATES."""
    drawn = np.zeros((1 + RESAMPLES, 1), dtype=np.int64)
    if estimate != "fastest":
        seed = crc32(visits[0].task.encode())
        drawn = np.vstack([np.arange(len(visits)), draw_visits(len(visits), seed, RESAMPLES)])
    drawn, place = np.unique(np.sort(drawn, axis=1), axis=0, return_inverse=True)  # few are distinct
    found: dict[str, Resampled] = {}
    for planner in visits[0].kernels:
        kernels = np.stack([visit.kernels[planner] for visit in visits])  # (V, W, 2)
        if estimate == "fastest":
            kernels = kernels.min(axis=0, keepdims=True)
        comm = np.broadcast_to(0.0 if estimate == "kernels" else visits[0].comm[planner], kernels.shape)
        found[planner] = resampled_steps(kernels, comm, drawn)[place.reshape(-1)]
    return found


def _gain(found: Sequence[Mapping[str, Resampled]], reference: str, planner: str) -> Gain:
    pairs = [(each[planner], each[reference]) for each in found if planner in each and reference in each]
    if not pairs:
        return Gain(planner=planner, tasks=0)
    ratios = np.array([mine / other - 1 for mine, other in pairs])
    mean = _mean([float(mine[0]) for mine, _ in pairs])
    return Gain(planner=planner, tasks=len(pairs), interval=mean_of_tasks(ratios), step_s=mean)


def mean_of_tasks(ratios: Floats, seed: int = 0) -> Interval:
    """The mean over tasks of ratios (T, 1 + B), measured and resampled, and percentiles with tasks resampled too."""
    tasks, count = len(ratios), ratios.shape[1] - 1
    drawn = np.random.default_rng(seed).integers(0, tasks, (tasks, count))
    means = ratios[drawn, np.arange(1, count + 1)].mean(axis=0)  # (T, B) -> (B,)
    return interval(float(ratios[:, 0].mean()), means)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def verdict(rows: Sequence[RowGains], reference: str) -> Verdict:
    """The verdict on a reference from the gains of all rows."""
    greedy = {row.row: row.best_greedy for row in rows}
    return Verdict(
        reference=reference,
        worse=tuple((row.row, gain.planner) for row in rows for gain in row.gains if gain.worse),
        better=tuple(name for name, best in greedy.items() if best and best.better),
        rows=sum(best is not None for best in greedy.values()),
    )
