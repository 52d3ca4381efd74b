"""What towers saved in a job: bytes of pooled vectors that left a host, compared with those of plain tables."""

from typing import Any

import torch.distributed as dist

from recsmith.training.collectives import collectives_of
from recsmith.training.job.job import TrainingJob, over_ranks
from recsmith.training.stores.protocol import towers_in
from recsmith.units import format_size

FP32_BYTES = 4


def brought_line(job: TrainingJob) -> str:
    """Say how many bytes of pooled vectors left a host in an average step. Every rank must call this."""
    tables: Any = next(tables for _, tables in towers_in(job.sharded.model))
    exchange, name = tables.hosts, f"towers of ratio {tables.ratio}"
    if exchange is None:
        return f"{name}: all were on one host, where nothing crosses hosts: the model alone is another"
    ways = collectives_of(job.run.comms).bytes_per_value()
    forward, backward = (FP32_BYTES if each is None else each for each in ways)
    mine = round((exchange.forward * forward + exchange.backward * backward) / max(exchange.steps, 1))
    sent = over_ranks(mine, dist.ReduceOp.SUM) / job.plan.cluster.hosts
    return (
        f"{name}: {format_size(sent)} of pooled vectors left a host in a step, where those of plain tables are "
        f"{format_size(sent * tables.ratio)}"
    )
