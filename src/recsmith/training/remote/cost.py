"""What tables on servers cost a step, and how slow one trainer must be for them to pay; without torch.

A trainer pulls each distinct row of its batch and pushes a gradient as large, with eight bytes for its id. As many rows
are distinct as of ids that are drawn evenly, at most: ids that repeat more make fewer.

Of W trainers that take t seconds a step, one F times as slow: a synchronous job takes F t a step of all of them. With
leases, and c seconds of a step for the servers, all together take (W - 1) / (t + c) + 1 / (F t + c) batches a second.
"""

import numpy as np

from recsmith._types import noun
from recsmith.plans import Plan
from recsmith.units import format_size, format_time

ID_BYTES, NUMBER_BYTES = 8, 4
MOST_SLOW = 100.0  # times; one as slow as that is no trainer


@noun
class RemoteCost:
    """Of a step on servers: rows of a trainer, its bytes, the bytes of pooled vectors in their place; seconds.

    seconds: that all trainers' bytes take through the links of the servers, one after the other, and three calls.
    """

    rows: float
    trainer_bytes: float
    planned_bytes: float
    seconds: float


def remote_cost(plan: Plan, batch_size: int, trainers: int) -> RemoteCost:
    """The cost of a job whose servers have a plan. batch_size: samples of a trainer and step."""
    rows = moved = pooled = 0.0
    for table in plan.workload.tables:
        lookups = batch_size * sum(each.pooling_factor * (each.num_poolings or 1) for each in table.features)
        even = table.num_embeddings * -np.expm1(lookups * np.log1p(-1 / max(2, table.num_embeddings)))
        distinct = min(float(even), float(table.num_embeddings), lookups)
        rows += distinct
        moved += distinct * (2 * NUMBER_BYTES * table.embedding_dim + ID_BYTES)
        pooled += 2 * NUMBER_BYTES * batch_size * table.embedding_dim * len(table.features)
    links, servers = plan.cluster.links, plan.cluster.world_size
    seconds = moved * trainers / servers / links.intra_host_bandwidth + 3 * (links.intra_host_latency_s or 0.0)
    return RemoteCost(
        rows=rows, trainer_bytes=moved, planned_bytes=pooled * (trainers - 1) / trainers, seconds=float(seconds)
    )


def pays_from(trainers: int, step_s: float, servers_s: float) -> float | None:
    """How many times as slow one trainer must be for leases to train more samples a second; None: it never pays."""
    if trainers < 2:
        return None

    def gain(slow: float) -> float:
        together = (trainers - 1) / (step_s + servers_s) + 1 / (slow * step_s + servers_s)
        return together * slow * step_s / trainers

    low, high = 1.0, MOST_SLOW
    if gain(high) <= 1:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) > 1 else (middle, high)
    return high


def remote_lines(plan: Plan, batch_size: int, trainers: int, step_s: float) -> list[str]:
    """What servers would bring, for people. step_s: of a planned step, as far as it is predicted."""
    cost, shards = remote_cost(plan, batch_size, trainers), len(plan.shards())
    factor = pays_from(trainers, step_s, cost.seconds)
    pays = "it pays at no speed of one trainer" if factor is None else (
        f"with a staleness it pays where one trainer is at least {factor:.1f} times as slow as the others"
    )  # fmt: skip
    return [
        f"remote: {plan.cluster.world_size} servers hold {shards} shards; a trainer pulls and pushes about "
        f"{cost.rows:,.0f} rows a step at most, {format_size(round(cost.trainer_bytes))} with ids (pooled vectors of a "
        f"planned job: {format_size(round(cost.planned_bytes))})",
        f"servers add about {format_time(cost.seconds)} to a step by the plan's links, of which the planned job waits "
        f"for {format_time(step_s)} of embeddings; {pays}",
    ]
