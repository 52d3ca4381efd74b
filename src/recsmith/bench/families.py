"""Families of tasks that a run may have: those of the NeuroShard paper, and those of learned planners.

sharding    rows <devices>x<largest dim> (tasks.py)
learned     rows <devices>x<tables>, of the half of the pool that trains no policy (learning/policies/tasks.py)
"""

from collections.abc import Sequence
from typing import Literal

from recsmith.bench.tasks import DrawnTasks, Task, TaskRow, draw_tasks, parse_rows
from recsmith.errors import UsageError
from recsmith.learning.policies.tasks import SizeRow, draw_placement_tasks, parse_size

Family = Literal["sharding", "learned"]
LEARNED_ROWS = tuple(
    str(SizeRow(devices=devices, tables=tables)) for devices in (2, 4, 8) for tables in (20, 50, 100, 200)
)
"""The grid of the DreamShard paper: 20 to 200 tables, 2 to 8 devices."""


def parse_family_rows(family: Family, words: Sequence[str]) -> tuple[TaskRow | SizeRow, ...]:
    """The rows of words, in order; UsageError for a word that is none, or for none at all."""
    if family == "sharding":
        return parse_rows(words)
    if not words:
        raise UsageError("no rows are named; write <devices>x<tables>, such as 4x50")
    sizes: list[SizeRow] = sorted({parse_size(word) for word in words}, key=_size)
    return tuple(sizes)


def _size(row: SizeRow) -> tuple[int, int]:
    return row.devices, row.tables


def draw_family_tasks(family: Family, word: str, number: int, seed: int, device: str, global_batch: int) -> DrawnTasks:
    """The first `number` tasks of a row that are not degenerate."""
    if family == "sharding":
        return draw_tasks(parse_rows([word])[0], number, seed, device, global_batch)
    drawn = draw_placement_tasks(parse_size(word), number, seed, device, global_batch)
    tasks = tuple(
        Task(row=task.row, attempt=task.attempt, workload=task.workload, cluster=task.cluster) for task in drawn.tasks
    )
    return DrawnTasks(row=drawn.row, tasks=tasks, degenerate=drawn.degenerate, infeasible=0)
