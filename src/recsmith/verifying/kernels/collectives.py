"""The all-to-alls of plans: of simulated links, or between local ranks where this machine has as many as a plan.

Legend: P plans, V visits, W ranks; the last axis is forward, backward.
"""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from recsmith._types import Floats
from recsmith.hardware import load_links
from recsmith.jobs.launch import launch
from recsmith.jobs.machine import free_cores
from recsmith.measuring.comm.exchanges import Exchange
from recsmith.plans import Plan
from recsmith.sharding import Collective

START_S = 120.0  # seconds, more than a job takes to start and to end
EXCHANGE_S = 30.0  # seconds, more than an exchange of one visit takes


def exchanges_of(plan: Plan) -> tuple[Exchange, Exchange]:
    """What the ranks of a plan exchange forward and backward, all fusion groups in one call each."""
    width = np.zeros(plan.cluster.world_size, dtype=np.int64)
    for shard in plan.shards():
        width[shard.rank] += shard.columns[1] - shard.columns[0]
    together = (0.0,) * len(width)
    forward, backward = (
        Exchange(
            number=0,
            forward=is_forward,
            batch_size=plan.workload.batch_size,
            width=tuple(width.tolist()),
            skew_s=together,
        )
        for is_forward in (True, False)
    )
    return forward, backward


def not_measured(plan: Plan, hardware: str) -> str:
    """Why the exchanges of a plan are not measured beside this hardware; nothing where they are."""
    ranks = plan.cluster.world_size
    unmeasured = next(
        (each for each in plan.placements if each.kind.forward != (Collective("all_to_all", "world"),)), None
    )
    if plan.cluster.replication is not None:
        return "the synchronisation of replicas is not measured"
    if ranks < 2:
        return "one rank exchanges nothing"
    if is_simulated(hardware):
        links = load_links(hardware).cluster(ranks)
        if (links.links, links.local_world_size) != (plan.cluster.links, plan.cluster.local_world_size):
            return f"the plan's cluster has other links than {hardware}, or other hosts"
    elif ranks > (devices := _devices(hardware)):
        return f"{ranks} ranks outnumber the {'cores' if hardware == 'cpu' else 'GPUs'} that may be used, {devices}"
    if unmeasured is not None:
        return f"{unmeasured.sharding_type} (table '{unmeasured.table}') does more than all-to-alls"
    if plan.workload.comm_bytes is not None:
        return f"comm_bytes is {list(plan.workload.comm_bytes)}, and fp32 is what is measured"
    narrow = next((kind for kind in plan.workload.comm_dtypes if kind not in (None, "fp32")), None)
    if narrow is not None:
        return f"comm_dtype is {narrow}, and fp32 is what is measured"
    return ""


def is_simulated(hardware: str) -> bool:
    """Whether its all-to-alls are simulated, so that each rank begins the forward one when it is ready."""
    return hardware.startswith("simulated:")


def _devices(hardware: str) -> int:
    if hardware.partition(":")[0] != "cuda":
        return free_cores()
    import torch

    return torch.cuda.device_count()


def measure_collectives(plans: Sequence[Plan], visits: int) -> list[Floats]:
    """Seconds of the exchanges of plans of equally many ranks, P arrays (V, W, 2): medians of each visit.

    Raises:
        MissingExtra: PyTorch is missing.
        RecSmithError: a rank failed.
    """
    exchanges = [asdict(each) for plan in plans for each in exchanges_of(plan)]
    ranks = plans[0].cluster.world_size
    limit = START_S + EXCHANGE_S * visits * len(exchanges)
    words = {"exchanges": exchanges, "visits": visits}
    found = launch("recsmith.measuring.comm.rank_worker:measure_exchanges", words, ranks=ranks, timeout_s=limit)
    seconds = np.array(found, dtype=np.float64).reshape(ranks, visits, len(plans), 2)
    return list(seconds.transpose(2, 1, 0, 3))
