"""The tables of a run: the gains of every row, and of all rows together, for each reference."""

import statistics
from collections.abc import Iterator, Mapping

from recsmith._types import noun
from recsmith.bench.gains import ESTIMATES, REFERENCE, Resampled, RowGains, Verdict, row_gains, steps_of, verdict
from recsmith.bench.journal_lines import MeasuredVisit
from recsmith.bench.sharding import BenchResults
from recsmith.bench.tasks import DrawnTasks

ALL = "all"  # name of the row that holds the tasks of all rows


@noun
class GainTable:
    """Gains of a reference: of every row, and of all rows together, by each of ESTIMATES."""

    reference: str
    rows: dict[str, tuple[RowGains, ...]]

    @property
    def main_rows(self) -> tuple[RowGains, ...]:
        """The rows by the first of ESTIMATES."""
        return self.rows[ESTIMATES[0]]

    def verdict(self, estimate: str) -> Verdict:
        """The verdict from all rows but that of all together."""
        return verdict([row for row in self.rows[estimate] if row.row != ALL], self.reference)


def references(results: BenchResults) -> tuple[str, ...]:
    """The planners that others are compared with: auto and the family's under any cost model, or the run's first."""
    own = ("neuroshard",) if results.settings.family == "sharding" else ("dreamshard", "autoshard")
    names = [word for name in (REFERENCE, *own) for word in results.settings.planners if word.split("@")[0] == name]
    return tuple(names or results.settings.planners[:1])


def tables_of(results: BenchResults) -> tuple[GainTable, ...]:
    """The tables of what was measured, one for each reference."""
    visits = {name: found for row in results.drawn for name, found in _visits(results, row)}
    least = min(map(len, visits.values()), default=0)  # of all tasks as many visits as the task with the fewest has
    steps = {each: {name: steps_of(found[:least], each) for name, found in visits.items()} for each in ESTIMATES}
    return tuple(
        GainTable(reference=name, rows={each: _rows(results, found, name) for each, found in steps.items()})
        for name in references(results)
    )


def _visits(results: BenchResults, row: DrawnTasks) -> Iterator[tuple[str, list[MeasuredVisit]]]:
    """The visits of each task that was visited."""
    for task in row.tasks:
        found = [results.measured.get((task.name, visit)) for visit in range(results.settings.visits)]
        if found[0] is not None:
            yield task.name, [each for each in found if each is not None]


def _rows(results: BenchResults, steps: Mapping[str, Mapping[str, Resampled]], reference: str) -> tuple[RowGains, ...]:
    """The gains of every row, and of all tasks."""
    groups = [(str(row.row), [task.name for task in row.tasks]) for row in results.drawn]
    if len(groups) > 1:
        groups.append((ALL, [name for _, names in groups for name in names]))
    planners = results.settings.planners
    return tuple(
        row_gains(row, [steps[name] for name in names if name in steps], reference, planners) for row, names in groups
    )


def planning_medians(results: BenchResults) -> dict[str, float]:
    """Median CPU seconds of planning a task, by planner; NaN of a planner that has planned none."""
    spent: dict[str, list[float]] = {word: [] for word in results.settings.planners}
    for each in results.attempts.values():
        spent[each.planner].append(each.plan_s)
    return {word: statistics.median(seconds) if seconds else float("nan") for word, seconds in spent.items()}
