"""The table of a run: figures of every row beside one planner and another, and as plain data."""

import statistics
from collections.abc import Iterator, Mapping

from recsmith._types import noun
from recsmith.bench.gains import REFERENCE, WAYS, Figures, Resampled, Verdict, figures, steps_of, verdict
from recsmith.bench.run_store import Measured
from recsmith.bench.sharding import BenchResults
from recsmith.bench.tasks import Drawn
from recsmith.files import Raw, encode

SCHEMA = "recsmith/bench-sharding-result/1"
ALL = "all"


@noun
class GainTable:
    """Figures of every row, and of all together, beside a reference, told in each of WAYS."""

    reference: str
    ways: dict[str, tuple[Figures, ...]]

    def verdict(self, way: str) -> Verdict:
        """What the rows come to, without that of all together."""
        return verdict([row for row in self.ways[way] if row.row != ALL], self.reference)


def references(outcome: BenchResults) -> tuple[str, ...]:
    """What planners stand beside: auto first, where it takes part, then neuroshard; both under any cost model."""
    names = [
        word for name in (REFERENCE, "neuroshard") for word in outcome.settings.planners if word.split("@")[0] == name
    ]
    return tuple(names or outcome.settings.planners[:1])


def tables_of(outcome: BenchResults) -> tuple[GainTable, ...]:
    """The table of what was measured beside each reference."""
    visits = {name: found for row in outcome.drawn for name, found in _visits(outcome, row)}
    least = min(map(len, visits.values()), default=0)  # of all tasks as many visits as the least visited has
    ways = {way: {name: steps_of(found[:least], way) for name, found in visits.items()} for way in WAYS}
    return tuple(
        GainTable(reference=name, ways={way: _rows(outcome, steps, name) for way, steps in ways.items()})
        for name in references(outcome)
    )


def _visits(outcome: BenchResults, row: Drawn) -> Iterator[tuple[str, list[Measured]]]:
    """The visits of each task that was visited."""
    for task in row.tasks:
        found = [outcome.measured.get((task.name, visit)) for visit in range(outcome.settings.visits)]
        if found[0] is not None:
            yield task.name, [each for each in found if each is not None]


def _rows(outcome: BenchResults, steps: Mapping[str, Mapping[str, Resampled]], reference: str) -> tuple[Figures, ...]:
    """The figures of every row, and of all tasks."""
    groups = [(str(row.row), [task.name for task in row.tasks]) for row in outcome.drawn]
    if len(groups) > 1:
        groups.append((ALL, [name for _, names in groups for name in names]))
    planners = outcome.settings.planners
    return tuple(
        figures(row, [steps[name] for name in names if name in steps], reference, planners) for row, names in groups
    )


def planning(outcome: BenchResults) -> dict[str, float]:
    """Median CPU seconds of each planner."""
    spent: dict[str, list[float]] = {word: [] for word in outcome.settings.planners}
    for each in outcome.attempts.values():
        spent[each.planner].append(each.plan_s)
    return {word: statistics.median(seconds) if seconds else float("nan") for word, seconds in spent.items()}


def outcome_to_raw(outcome: BenchResults) -> Raw:
    """Plain data of a run: schema recsmith/bench-sharding-result/1."""
    tables = tables_of(outcome)
    return {
        "schema": SCHEMA,
        "settings": encode(outcome.settings),
        "complete": outcome.complete,
        "device": sorted({task.device for task in outcome.measured.values()}),
        "versions": sorted({task.versions for task in outcome.measured.values()}),
        "measured_s": sum(task.elapsed_s for task in outcome.measured.values()),
        "planned_s": sum(each.plan_s for each in outcome.attempts.values()),
        "plan_cpu_s": {word: seconds for word, seconds in planning(outcome).items() if seconds == seconds},
        "drawn": [
            {"row": str(row.row), "rejected": row.rejected, "degenerate": row.degenerate, "infeasible": row.infeasible}
            for row in outcome.drawn
        ],
        "without_plan": [
            {"task": task, "planner": planner, "error": each.error}
            for (task, planner), each in sorted(outcome.attempts.items())
            if each.error
        ],
        "tables": [
            {
                "reference": table.reference,
                **{way: [encode(row) for row in rows] for way, rows in table.ways.items()},
                "verdict": {way: encode(table.verdict(way)) for way in WAYS},
            }
            for table in tables
        ],
    }
