"""Gains of one planner over the others: how much longer their steps take, over a row of tasks, with intervals.

The gain on a task is planner / reference - 1 of the seconds of its step; the gain on a row is the mean over its tasks.
The step is estimated from a task's visits in three ways (ESTIMATES):

    median      each rank counts with its median over visits, forward and backward each; collectives are as priced
    fastest     each rank counts with its fastest visit instead, so that visits slowed down as a whole do not count
    kernels     as median, without the collectives, which are not measured

Intervals are bootstrapped: tasks are drawn with replacement, and for medians the visits of each task, the same visits
for all planners.

Legend: T tasks, V visits, W ranks, B resamples.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from zlib import crc32

import numpy as np

from recsmith._types import Floats, noun
from recsmith.bench.journal import MeasuredVisit
from recsmith.bench.sharding import BenchResults
from recsmith.learning.policies.tasks import PlacementTasks
from recsmith.measuring.statistics import Interval, draw_visits, interval
from recsmith.verifying.steps import resampled_steps

RESAMPLES = 4_000  # B: trade-off, more make the ends of intervals steadier and take longer
LEAST_TASKS = 5  # fewest for an interval that can separate plans: with fewer, resampled tasks are too often the same
Resampled = Floats
"""Seconds of a step as measured, and behind them those of B resamples (1 + B,)."""

CLASSIC = ("size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy")  # the paper's baselines
REFERENCE = "auto"  # the planner with which others are compared
ESTIMATES = ("median", "fastest", "kernels")  # estimates of a step; see the module. The first is the main one


@noun
class Gain:
    """Relative excess of a planner's steps over the reference's, over the tasks for which both have a plan.

    interval: None if there is no such task. step_s: of the planner, mean over those tasks.
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
        """Whether there are enough tasks for a meaningful interval."""
        return self.tasks >= LEAST_TASKS


@noun
class RowGains:
    """Gains of a row of tasks: of a reference over the other planners.

    tasks: number of measured tasks. step_s: of the reference, mean over its tasks.
    """

    row: str
    reference: str
    tasks: int
    step_s: float | None
    gains: tuple[Gain, ...]

    @property
    def best_greedy(self) -> Gain | None:
        """The gain over the classic greedy planner whose steps are shortest compared with the reference's."""
        some = [gain for gain in self.gains if gain.planner in CLASSIC and gain.interval]
        return min(some, key=lambda gain: gain.interval.value if gain.interval else 0.0, default=None)


@noun
class GainVerdict:
    """Rows in which a reference is significantly worse, and rows in which it is significantly better.

    worse: (row, planner) pairs in which it is significantly worse. better: rows in which it is significantly better
    than the best classic greedy, of `rows` that have one.
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
    """The mean over tasks of ratios (T, 1 + B), measured and resampled; its interval also resamples tasks."""
    tasks, count = len(ratios), ratios.shape[1] - 1
    drawn = np.random.default_rng(seed).integers(0, tasks, (tasks, count))
    means = ratios[drawn, np.arange(1, count + 1)].mean(axis=0)  # (T, B) -> (B,)
    return interval(float(ratios[:, 0].mean()), means)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def verdict(rows: Sequence[RowGains], reference: str) -> GainVerdict:
    """The verdict on a reference from the gains of all rows."""
    greedy = {row.row: row.best_greedy for row in rows}
    return GainVerdict(
        reference=reference,
        worse=tuple((row.row, gain.planner) for row in rows for gain in row.gains if gain.worse),
        better=tuple(name for name, best in greedy.items() if best and best.better),
        rows=sum(best is not None for best in greedy.values()),
    )


ALL = "all"  # name of the row with the tasks of all rows


@noun
class GainTable:
    """Gains of a reference: of every row, and of all rows together, by each of ESTIMATES."""

    reference: str
    rows: dict[str, tuple[RowGains, ...]]

    @property
    def main_rows(self) -> tuple[RowGains, ...]:
        """The rows by the first of ESTIMATES."""
        return self.rows[ESTIMATES[0]]

    def verdict(self, estimate: str) -> GainVerdict:
        """The verdict from all rows except the one of all tasks."""
        return verdict([row for row in self.rows[estimate] if row.row != ALL], self.reference)


def references(results: BenchResults) -> tuple[str, ...]:
    """The planners with which others are compared: auto and the family's under any cost model, or the run's first."""
    own = ("neuroshard",) if results.settings.family == "sharding" else ("dreamshard", "autoshard")
    names = [
        planner for name in (REFERENCE, *own) for planner in results.settings.planners if planner.split("@")[0] == name
    ]
    return tuple(names or results.settings.planners[:1])


def tables_of(results: BenchResults) -> tuple[GainTable, ...]:
    """The gain tables of the measurements, one for each reference."""
    visits = {name: found for row in results.drawn for name, found in _visits(results, row)}
    least = min(map(len, visits.values()), default=0)  # visits of the task with the fewest, which are used of all tasks
    steps = {each: {name: steps_of(found[:least], each) for name, found in visits.items()} for each in ESTIMATES}
    return tuple(
        GainTable(reference=name, rows={each: _rows(results, found, name) for each, found in steps.items()})
        for name in references(results)
    )


def _visits(results: BenchResults, row: PlacementTasks) -> Iterator[tuple[str, list[MeasuredVisit]]]:
    """(task, its visits) for each task that was visited."""
    for task in row.tasks:
        found = [results.measured.get((task.name, visit)) for visit in range(results.settings.visits)]
        if found[0] is not None:
            yield task.name, [each for each in found if each is not None]


def _rows(results: BenchResults, steps: Mapping[str, Mapping[str, Resampled]], reference: str) -> tuple[RowGains, ...]:
    """The gains of every row, and of all tasks together."""
    groups = [(str(row.row), [task.name for task in row.tasks]) for row in results.drawn]
    if len(groups) > 1:
        groups.append((ALL, [name for _, names in groups for name in names]))
    planners = results.settings.planners
    return tuple(
        row_gains(row, [steps[name] for name in names if name in steps], reference, planners) for row, names in groups
    )


def planning_medians(results: BenchResults) -> dict[str, float]:
    """Median CPU seconds of planning a task, by planner; NaN for a planner without an attempt."""
    spent: dict[str, list[float]] = {planner: [] for planner in results.settings.planners}
    for each in results.attempts.values():
        spent[each.planner].append(each.plan_s)
    return {planner: statistics.median(seconds) if seconds else float("nan") for planner, seconds in spent.items()}


def row_gaps(results: BenchResults, row: PlacementTasks) -> dict[str, float]:
    """The mean gap of each planner over a row's tasks: seconds by the cost model / bound - 1.

    Planners that search under another cost model, and tasks without a bound, are left out; only a row's first tasks
    have bounds (bench/sharding.py).
    """
    found: dict[str, float] = {}
    for planner in results.settings.planners:
        gaps = [gap for task in row.tasks if (gap := _gap(results, task.name, planner)) is not None]
        if gaps and "@" not in planner:
            found[planner] = sum(gaps) / len(gaps)
    return found


def _gap(results: BenchResults, task: str, planner: str) -> float | None:
    attempt, bound = results.attempts.get((task, planner)), results.bounds.get(task, 0.0)
    return attempt.model_s / bound - 1 if attempt and attempt.model_s and bound > 0 else None
