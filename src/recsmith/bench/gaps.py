"""Gaps of planners to the bound of each task, by the run's cost model."""

from recsmith.bench.sharding import BenchResults
from recsmith.bench.tasks import DrawnTasks


def row_gaps(results: BenchResults, row: DrawnTasks) -> dict[str, float]:
    """The mean gap of each planner over a row's tasks: seconds by the cost model / bound - 1.

    Planners that search under another cost model, and tasks without a bound, are left out; bounds are sought of a
    row's first tasks (bench/sharding.py).
    """
    found: dict[str, float] = {}
    for word in results.settings.planners:
        gaps = [gap for task in row.tasks if (gap := _gap(results, task.name, word)) is not None]
        if gaps and "@" not in word:
            found[word] = sum(gaps) / len(gaps)
    return found


def _gap(results: BenchResults, task: str, planner: str) -> float | None:
    attempt, bound = results.attempts.get((task, planner)), results.bounds.get(task, 0.0)
    return attempt.model_s / bound - 1 if attempt and attempt.model_s and bound > 0 else None
