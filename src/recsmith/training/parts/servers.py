"""What a run with its tables on servers refuses, and where; without torch."""

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recsmith._components import parsed
from recsmith._install import RAY
from recsmith.errors import MissingExtra, UsageError, check_rules
from recsmith.jobs.machine import is_loopback
from recsmith.plans import Plan
from recsmith.training.collectives import collectives_of
from recsmith.training.parts.rows import NarrowTables, SplitHalves, TablesInFile
from recsmith.training.parts.run import (
    BACKGROUND,
    BF16_PRODUCTS,
    COMPRESSION,
    COPIED,
    GPU,
    AheadOfBatches,
    Deduplicated,
    FactoredLayers,
    FewerUnits,
    InPeriods,
    LayersByStep,
    Messages,
    NarrowLayers,
    OwnStep,
    OwnTables,
    PlannedTables,
    Sequences,
    TableOptimizer,
    is_among,
)
from recsmith.training.parts.towers import TowersOfHosts
from recsmith.training.run import Run, names_component
from recsmith.training.settings.remote import OPTIMIZERS_OF_SERVERS

PLACE = "remote.json"  # in the folder of a run, while its servers are there
NOT_WITH_SERVERS: tuple[Any, ...] = (
    COMPRESSION, BACKGROUND, BF16_PRODUCTS, Deduplicated, FewerUnits, InPeriods, LayersByStep, NarrowLayers,
    FactoredLayers, OwnStep, OwnTables, TowersOfHosts, AheadOfBatches, SplitHalves, TablesInFile,
)  # fmt: skip


@dataclass(frozen=True)
class TablesOnServers:
    """Tables on processes beside the trainers."""

    label: str = "remote"

    def refuses(self, other: Any, /) -> str | None:
        """What servers do not hold, update or send yet, and what steps, tables and checkpoints of trainers have not."""
        if is_among(other, NOT_WITH_SERVERS):
            return f"{other.label} does not go with remote yet; leave one of them out"
        if other is GPU:
            return "remote is for CPUs, since PyTorch discourages its RPC on GPUs; leave it out there"
        if isinstance(other, Sequences):
            return f"table '{other.table}' has pooling none, which remote does not have yet; leave remote out"
        if isinstance(other, NarrowTables):
            return f"remote keeps tables in fp32, and table '{other.table}' has {other.data_type}; give it fp32"
        if isinstance(other, TableOptimizer) and other.name not in OPTIMIZERS_OF_SERVERS:
            return (
                f"optimizers.sparse.name is {other.name}, and servers have {', '.join(OPTIMIZERS_OF_SERVERS)}; use one "
                "of these, or leave remote out"
            )
        if isinstance(other, Messages):
            return _refused_messages(other.comms)
        if isinstance(other, PlannedTables):
            copied = [each.table for each in other.plan.placements if each.sharding_type == COPIED]
            return _copied(min(copied)) if copied else None
        return None


def _refused_messages(comms: Any) -> str | None:
    named = parsed(comms, "comms")[0] if names_component(comms) else "quantised"
    made: Any = None if named != "quantised" else collectives_of(comms)
    codec = named if made is None else next((each for each in (made.forward, made.backward) if each != "fp32"), None)
    if codec is None:
        return None
    return f"comms: {codec} does not go with remote yet, whose rows cross in fp32; leave comms out"


def _copied(table: str) -> str:
    return (
        f"remote keeps each row on one server, and the plan copies table {table} to every rank; use a plan without "
        "data_parallel, or leave remote out"
    )


def check_remote(run: Run, *, launched: bool) -> None:
    """Refuse a run whose servers cannot be started. launched: whether a launcher has started this process.

    Raises:
        UsageError: it asks for what servers do not have.
        MissingExtra: the backend is not installed, or this PyTorch lacks it.
    """
    remote = run.remote
    if remote is None:
        return
    check_rules(
        "a launcher started this job, and remote starts its servers and trainers itself; run `recsmith train` once, "
        "without the launcher"
        if launched
        else None,
        f"remote.staleness is {remote.staleness}, under which batches are leased one by one, and data.batch_changes "
        "come after steps; leave one of them out"
        if remote.staleness and run.data.batch_changes
        else None,
        "remote does not go with array yet; leave one of them out" if run.array is not None else None,
        "remote does not go with capture yet; leave one of them out" if run.capture is not None else None,
    )
    if remote.backend == "ray" and find_spec("ray") is None:
        raise MissingExtra(f"`remote.backend: ray` needs Ray: {RAY}; or write backend: sockets")
    if remote.backend == "rpc":
        import torch

        if not hasattr(torch._C, "_rpc_init"):  # as torch.distributed.rpc.is_available looks
            raise MissingExtra(
                "`remote.backend: rpc` needs a PyTorch that is built with RPC, and this one is not; install one that "
                "is, or write backend: sockets"
            )


def check_servers(plan: Plan) -> None:
    """UsageError where a server would hold nothing. plan: of as many ranks as there are servers."""
    shards = plan.shards()
    idle = plan.cluster.world_size - len({each.rank for each in shards})
    if idle:
        raise UsageError(
            f"remote.servers is {plan.cluster.world_size}, and the plan has {len(shards)} shards, so that {idle} of "
            f"them would hold none; give at most {plan.cluster.world_size - idle}, or a plan that splits tables further"
        )


def listening_line(run: Run) -> list[str]:
    """Where the servers of a run listen, where other machines can reach it."""
    remote = run.remote
    if remote is None or remote.address is None or remote.backend == "ray":
        return []
    host, _, port = remote.address.rpartition(":")
    if is_loopback(host):
        return []
    if remote.backend == "rpc":
        return [f"servers meet at {remote.address}, which other machines reach: its store asks nobody for a password"]
    ports = f"port {port}" if remote.servers == 1 else f"ports {port} to {int(port) + remote.servers - 1}"
    return [
        f"servers listen at {host}, {ports}, which other machines reach: they answer whoever has the key of the job "
        f"(in '{remote_file(run.output)}' while it runs), and what crosses is not encrypted"
    ]


def remote_file(output: str) -> Path:
    """The file that tells this user's processes where the servers of a run are, while the job runs."""
    return Path(output) / PLACE


def can_share(run: Run, trainers: int) -> bool:
    """Whether so many trainers can share each step of a run evenly."""
    try:
        run.data.batch_sizes(trainers)
    except UsageError:
        return False
    return True


def shares_line(run: Run, trainers: int) -> list[str]:
    """Which numbers of trainers a run can have, where not each will do, for people."""
    able = [each for each in range(1, trainers + 1) if can_share(run, each)]
    if len(able) == trainers:
        return []
    return [
        f"{', '.join(map(str, able))} of {trainers} trainers can share data.global_batch_size "
        f"{run.data.global_batch_size} evenly; where so many are left as cannot, the last of them wait"
    ]


def run_of_servers(run: Run, trainers: int, servers: int) -> Run:
    """The run as its servers plan for it: they look up as many samples as the trainers train on."""
    samples = run.data.local_batch_size(trainers) * trainers
    data = replace(run.data, batch_size=-(-samples // servers), global_batch_size=None, batch_changes=())
    return replace(run, data=data)
