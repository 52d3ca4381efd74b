"""Whether the rows of tables of ids without end will be enough: rank 0 counts, and all ranks hear of it."""

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
    """Tables whose rows will not be enough, asked every so many steps; called on every rank at each look."""
    rank = dist.get_rank()
    if rank == 0:
        growth.add(seen.step, {name: bags.values for name, bags in samples.ids.items()})
    if seen.step % every:
        return []
    asks = growth.asks(seen.step, seen.job.total_steps) if rank == 0 else []
    gone = evicted_shares(seen.job)
    mine = [(each.table, each.because(seen.step, gone.get(each.table))) for each in asks]
    told = gathered(mine, seen.job.agreement.group)[0]
    return [Finding(step=seen.step, kind=ROWS, of=of, because=because) for of, because in told]


def growth_of(job: TrainingJob, every: int) -> TableGrowth | None:
    """What watches the tables of ids without end of a job; None where it has none.

    What is attached to a job may say them: `dynamic_tables(job)` gives how ids get the rows of each, by its name.
    """
    rules = _said(job, "dynamic_tables")
    tables = [replace(each, dynamic=rules[each.name]) for each in job.plan.workload.tables if each.name in rules]
    return TableGrowth(tables, every, dist.get_world_size()) if tables else None


def evicted_shares(job: TrainingJob) -> dict[str, float]:
    """The share of a table's lookups that took the row of another id, by table, of all ranks; asked on all of them."""
    return _said(job, "evicted_shares")


def _said(job: TrainingJob, question: str) -> dict[str, Any]:
    """What the parts that systems have in a job answer, of those that know the question, by table."""
    known: list[Any] = [each for each in job.attached.values() if hasattr(each, question)]
    return {name: answer for each in known for name, answer in getattr(each, question)(job).items()}
