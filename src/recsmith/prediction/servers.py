"""The cost of tables on servers in a step, and how slow one trainer must be for them to pay; without torch.

W trainers; in seconds for a batch: t of an ordinary trainer, F t of one that is F times as slow, c added by servers

A trainer pulls each distinct row of its batch and pushes a gradient of the same size, with eight bytes for its id. The
number of distinct rows is that of ids drawn evenly: an upper limit, since ids that repeat more give fewer.

A synchronous job takes F t for a step of W batches, and c more if its tables are on servers. With leases of batches
(docs/remote.md) the other trainers take W - 1 batches in t + c. While the slow one holds a batch, for F t + c, they are
at most s steps ahead of it, which are s W batches. So all together take the smaller of (W - 1) / (t + c) + 1 / (F t +
c) and (s W + 1) / (F t + c) batches per second.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from recsmith._types import noun
from recsmith.plans import Plan
from recsmith.streaming.causes import LATE
from recsmith.units import counted, format_size, format_time

ID_BYTES, NUMBER_BYTES = 8, 4
# By backend: bytes per second of a server with its work on them, on two cores with two trainers; and seconds of a call,
# of which a step has three. Measured (docs/remote.md), except for ray, which is assumed to be as slow as rpc.
SERVER_RATE = {"sockets": 270e6, "rpc": 28e6, "ray": 28e6}
CALL_S = {"sockets": 0.06e-3, "rpc": 0.8e-3, "ray": 0.8e-3}
MOST_SLOW = 100.0  # slowness of a trainer up to which servers are considered


@noun
class RemoteCost:
    """A step on servers: rows and bytes of a trainer, the bytes of pooled vectors in a planned job, and seconds.

    seconds: time of all trainers' bytes through the servers, one after the other, at the measured rate of a server or
    that of a slower link, and of three calls.
    """

    rows: float
    trainer_bytes: float
    planned_bytes: float
    seconds: float


def remote_cost(
    plan: Plan, batch_size: int, trainers: int, servers: int | None = None, backend: str = "sockets"
) -> RemoteCost:
    """The cost of servers in a step of a job whose servers have a plan.

    batch_size: samples of a trainer and step. servers: their number, if not the plan's number of ranks. backend: how
    calls are sent.
    """
    rows = moved = pooled = 0.0
    for table in plan.workload.tables:
        lookups = batch_size * sum(each.pooling_factor * (each.num_poolings or 1) for each in table.features)
        even = table.num_embeddings * -np.expm1(lookups * np.log1p(-1 / max(2, table.num_embeddings)))
        distinct = min(float(even), float(table.num_embeddings), lookups)
        rows += distinct
        moved += distinct * (2 * NUMBER_BYTES * table.embedding_dim + ID_BYTES)
        vectors = batch_size * len(table.features) if table.pooled else lookups
        pooled += 2 * NUMBER_BYTES * vectors * table.embedding_dim
    links, servers = plan.cluster.links, servers or plan.cluster.world_size
    rate = min(links.intra_host_bandwidth, SERVER_RATE[backend])
    call = max(links.intra_host_latency_s or 0.0, CALL_S[backend])
    seconds = moved * trainers / servers / rate + 3 * call
    return RemoteCost(
        rows=rows, trainer_bytes=moved, planned_bytes=pooled * (trainers - 1) / trainers, seconds=float(seconds)
    )


@noun
class SlowTrainer:
    """A synchronous job of several trainers in which all wait for the one of this rank.

    others_s, own_s: seconds of own work in a step, of the other trainers and of the slow one (t and F t in the rule).
    servers_s: seconds that servers add to a step (c). served: whether its tables are on servers already.
    """

    trainers: int
    rank: int
    others_s: float
    own_s: float
    servers_s: float
    served: bool = False

    @property
    def times(self) -> float:
        """How many times as slow as the others the trainer is: F."""
        return self.own_s / self.others_s

    def gain(self, staleness: int | None = None) -> float:
        """Samples per second with leases, as a multiple of those without. staleness: s; None: without a limit."""
        slow = self.own_s + self.servers_s
        together = (self.trainers - 1) / (self.others_s + self.servers_s) + 1 / slow
        most = math.inf if staleness is None else (staleness * self.trainers + 1) / slow
        return min(together, most) * (slow if self.served else self.own_s) / self.trainers

    @property
    def staleness(self) -> int:
        """The smallest staleness with the full gain."""
        return next(each for each in range(1, 2 + math.ceil(self.times)) if self.gain(each) >= self.gain() * (1 - 1e-9))

    def __str__(self) -> str:
        """In a line, how slow the trainer is, and whether servers would pay."""
        gain, staleness = self.gain(), self.staleness
        then = f"remote with staleness {staleness} would bring {gain:.2f} times the samples/s, predicted of these times"
        return (
            f"trainer {self.rank} is {self.times:.1f} times as slow as the others, which wait: a step takes "
            f"{format_time(self.own_s)} there and {format_time(self.others_s)} elsewhere, beside "
            f"{format_time(self.servers_s)} for servers; {then}" + ("" if gain > 1 else ", so it does not pay")
        )


def slow_trainer(
    step_s: float, own_s: Sequence[float], servers_s: float, *, served: bool = False
) -> SlowTrainer | None:
    """The trainer that all wait for, if it makes a step more than a quarter longer; else None.

    step_s: seconds of a step, the same for all. own_s: for each trainer, seconds of the step in which it does its own
    work and waits for no other; the excess of the slow one over the others is what holds them up. servers_s: c; a part
    of the step if its tables are on servers (served).
    """
    if len(own_s) < 2 or not step_s > 0:
        return None
    slow = max(range(len(own_s)), key=own_s.__getitem__)
    late = own_s[slow] - median([*own_s[:slow], *own_s[slow + 1 :]])
    own = step_s - (servers_s if served else 0.0)
    if late <= LATE * step_s or own <= late:
        return None
    return SlowTrainer(
        trainers=len(own_s), rank=slow, others_s=own - late, own_s=own, servers_s=servers_s, served=served
    )


def slow_trainer_of(event: dict[str, Any]) -> SlowTrainer | None:
    """As `slow_trainer`, from an event in the log of a run."""
    return slow_trainer(event["step_s"], event["own_s"], event["servers_s"], served=event["served"])


def pays_from(trainers: int, step_s: float, servers_s: float) -> float | None:
    """How many times as slow one trainer must be for leases to train more samples per second; None: they never pay."""
    if trainers < 2:
        return None
    alike = SlowTrainer(trainers=trainers, rank=0, others_s=step_s, own_s=step_s, servers_s=servers_s)

    def gain(slow: float) -> float:
        return replace(alike, own_s=slow * step_s).gain()

    low, high = 1.0, MOST_SLOW
    if gain(high) <= 1:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) > 1 else (middle, high)
    return high


def pays_line(trainers: int, step_s: float, servers_s: float) -> str:
    """A line that says from which slowness on leases pay. step_s: of a step in which no trainer waits for servers."""
    factor = pays_from(trainers, step_s, servers_s)
    if factor is None:
        return "it pays at no speed of one trainer"
    return f"with a staleness it pays where one trainer is at least {factor:.1f} times as slow as the others"


def moved_line(cost: RemoteCost) -> str:
    """A line that says what a trainer sends and receives."""
    return (
        f"a trainer pulls and pushes about {cost.rows:,.0f} rows a step at most, "
        f"{format_size(round(cost.trainer_bytes))} with ids (pooled vectors of a planned job: "
        f"{format_size(round(cost.planned_bytes))})"
    )


def remote_lines(
    plan: Plan, batch_size: int, trainers: int, *, embeddings_s: float, step_s: float, backend: str = "sockets"
) -> list[str]:
    """Lines on the effect of servers. step_s: seconds of a planned step. embeddings_s: its part for tables."""
    cost, shards = remote_cost(plan, batch_size, trainers, backend=backend), len(plan.shards())
    servers = plan.cluster.world_size
    return [
        f"remote: {counted(servers, 'server')} {'holds' if servers == 1 else 'hold'} {counted(shards, 'shard')}; "
        f"{moved_line(cost)}",
        f"servers add about {format_time(cost.seconds)} to a step, at the rate of a server on two cores, of which the "
        f"planned job waits for {format_time(embeddings_s)} of embeddings; {pays_line(trainers, step_s, cost.seconds)}",
    ]


def servers_line(
    plan: Plan, servers: int, *, batch_size: int, step_s: float, exchanges_s: float, own_s: Sequence[float]
) -> str:
    """A line on the cost of servers for a predicted step, and on their gain.

    Args:
        plan: the plan of the predicted step.
        servers: number of servers.
        batch_size: samples of a trainer and step.
        step_s: seconds of the step.
        exchanges_s: the part of it that waits for rows of other ranks, which would come from servers.
        own_s: the part of it that is each rank's own work.
    """
    trainers = plan.cluster.world_size
    cost = remote_cost(plan, batch_size, trainers, servers)
    served, slow = step_s - exchanges_s + cost.seconds, slow_trainer(step_s, own_s, cost.seconds)
    pays = pays_line(trainers, step_s, cost.seconds) if slow is None else str(slow)
    return (
        f"{servers} {'server' if servers == 1 else 'servers'}: {moved_line(cost)}; a synchronous step takes "
        f"{format_time(served)} instead of {format_time(step_s)}, {step_s / served:.2f} times the samples/s, "
        f"predicted; {pays}"
    )
