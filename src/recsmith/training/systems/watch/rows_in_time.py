"""Whether tables with unbounded ids will have enough rows: rank 0 counts, and all ranks get the result."""

from dataclasses import replace
from typing import Any

import torch.distributed as dist

from recsmith.data import Batch
from recsmith.streaming.job_signals import ROWS, Finding
from recsmith.streaming.table_growth import TableGrowth
from recsmith.training.job.job import TrainingJob
from recsmith.training.systems.watch.looking import gathered
from recsmith.training.watchers.protocol import Seen


def too_few_rows(seen: Seen, samples: Batch, growth: TableGrowth, every: int) -> list[Finding]:
    """Tables that will run out of rows, checked every `every` steps. Every rank must call this at each look."""
    rank = dist.get_rank()
    if rank == 0:
        growth.add(seen.step, {name: bags.values for name, bags in samples.ids.items()})
    if seen.step % every:
        return []
    asks = growth.asks(seen.step, seen.job.total_steps) if rank == 0 else []
    gone = evicted_shares(seen.job)
    mine = [(each.table, each.because(seen.step, gone.get(each.table))) for each in asks]
    counts = gathered(mine, seen.job.agreement.group)[0]
    return [Finding(step=seen.step, kind=ROWS, of=of, because=because) for of, because in counts]


def growth_of(job: TrainingJob, every: int) -> TableGrowth | None:
    """The growth of a job's tables with unbounded ids; None if it has none.

    A system's part of the job may define them: its method `dynamic_tables(job)` returns, by table name, how ids get
    rows.
    """
    rules = _said(job, "dynamic_tables")
    tables = [replace(each, dynamic=rules[each.name]) for each in job.plan.workload.tables if each.name in rules]
    return TableGrowth(tables, every, dist.get_world_size()) if tables else None


def evicted_shares(job: TrainingJob) -> dict[str, float]:
    """The share of lookups that took another id's row, by table, over all ranks. Every rank must call this."""
    return _said(job, "evicted_shares")


def _said(job: TrainingJob, question: str) -> dict[str, Any]:
    """The answers to a question, by table, from all parts of systems in a job that have such a method."""
    known: list[Any] = [each for each in job.attached.values() if hasattr(each, question)]
    return {name: answer for each in known for name, answer in getattr(each, question)(job).items()}
