"""The table of a run: figures of every row beside one planner and another, and as plain data."""

import statistics
from collections.abc import Sequence

from recsmith._types import noun
from recsmith.bench.book import Measured
from recsmith.bench.gains import REFERENCE, Figures, Verdict, figures, verdict
from recsmith.bench.sharding import Outcome
from recsmith.files import Raw, encode

SCHEMA = "recsmith/bench-sharding-result/1"
ALL = "all"
PARTS = ("step", "kernels")


@noun
class Table:
    """Figures of every row, and of all together, beside a reference: of steps, and of their kernels alone."""

    reference: str
    step: tuple[Figures, ...]
    kernels: tuple[Figures, ...]

    def of(self, part: str) -> tuple[Figures, ...]:
        """The figures of one of PARTS."""
        return self.step if part == "step" else self.kernels

    def verdict(self, part: str) -> Verdict:
        """What the rows come to, without that of all together."""
        return verdict([row for row in self.of(part) if row.row != ALL], self.reference)


def references(outcome: Outcome) -> tuple[str, ...]:
    """What planners stand beside: auto first, where it takes part, then neuroshard; both under any cost model."""
    names = [
        word for name in (REFERENCE, "neuroshard") for word in outcome.settings.planners if word.split("@")[0] == name
    ]
    return tuple(names or outcome.settings.planners[:1])


def table_of(outcome: Outcome, reference: str) -> Table:
    """The table of what was measured."""
    groups = [(str(row.row), _measured(outcome, [task.name for task in row.tasks])) for row in outcome.drawn]
    if len(groups) > 1:
        groups.append((ALL, [task for _, tasks in groups for task in tasks]))
    planners = outcome.settings.planners
    step, kernels = (
        tuple(figures(name, tasks, reference, planners, kernels_only=only) for name, tasks in groups)
        for only in (False, True)
    )
    return Table(reference=reference, step=step, kernels=kernels)


def _measured(outcome: Outcome, names: Sequence[str]) -> list[Measured]:
    return [outcome.measured[name] for name in names if name in outcome.measured]


def planning(outcome: Outcome) -> dict[str, float]:
    """Median CPU seconds of each planner."""
    spent: dict[str, list[float]] = {word: [] for word in outcome.settings.planners}
    for each in outcome.attempts.values():
        spent[each.planner].append(each.plan_s)
    return {word: statistics.median(seconds) if seconds else float("nan") for word, seconds in spent.items()}


def outcome_to_raw(outcome: Outcome) -> Raw:
    """Plain data of a run: schema recsmith/bench-sharding-result/1."""
    tables = [table_of(outcome, name) for name in references(outcome)]
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
                **{part: [encode(row) for row in table.of(part)] for part in PARTS},
                "verdict": {part: encode(table.verdict(part)) for part in PARTS},
            }
            for table in tables
        ],
    }
