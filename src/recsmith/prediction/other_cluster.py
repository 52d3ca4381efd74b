"""Carries a step over to another cluster, in proportion to the figures of both.

Collectives take what their links take, as cost model `analytic` counts bytes (costs/collectives.py). All kernels
but products of matrices move memory, so they take as much less time as its bandwidth is higher. Products and overheads
stay, for no figure of a cluster says how fast they are: add a what-if for them.
"""

from dataclasses import replace

from recsmith.clusters import Cluster
from recsmith.costs.collectives import seconds_per_byte
from recsmith.errors import UsageError
from recsmith.prediction.graph import Collective, Event, Graph, Kind
from recsmith.prediction.what_if import Latency
from recsmith.sharding import Collective as Call

SCALED = "gemm"  # the kind of kernels whose time is not one of moving memory
CALLS = {
    name: Call(name, "world")
    for name in ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")  # all others go as an all-gather
}


def on_cluster(graph: Graph, old: Cluster, new: Cluster, latency: Latency) -> tuple[Graph, str]:
    """The graph of a step on `old` as it would be on `new`, and a sentence that says what was changed.

    Raises:
        UsageError: the clusters have other numbers of ranks than the step, or are of other kinds of device.
    """
    ranks = len(graph.ranks)
    if (old.world_size, new.world_size) != (ranks, ranks):
        raise UsageError(
            f"the step has {ranks} ranks, the plan's cluster {old.world_size} and --cluster {new.world_size}; a step "
            "is carried over to as many devices: plan for them, and describe the model (recsmith predict MODEL)"
        )
    if old.device.kind != new.device.kind:
        raise UsageError(
            f"the step is of {old.device.name} ({old.device.kind}) and --cluster of {new.device.name} "
            f"({new.device.kind}); a step is carried over between devices of one kind: capture one there"
        )
    memory = old.device.hbm_bandwidth / new.device.hbm_bandwidth
    links = {name: _of_links(call, new) / _of_links(call, old) for name, call in CALLS.items()} if ranks > 1 else {}
    meetings = tuple(_collective(each, links, latency) for each in graph.collectives)
    tapes = tuple(tuple(_event(event, memory) for event in tape) for tape in graph.ranks)
    said = f"memory {1 / memory:.3g} times as fast"
    if links:
        said += f", links {1 / links['all_to_all']:.3g} times (all-to-all) and {1 / links['all_reduce']:.3g} times"
    note = (
        f"carried over to {new.device.name} by the figures of both clusters: {said}; products of matrices and "
        "overheads as they were"
    )
    return replace(graph, ranks=tapes, collectives=meetings, measured_s=None), note


def _of_links(call: Call, cluster: Cluster) -> float:
    """Seconds per byte, above 0 also where no byte leaves a device."""
    return max(seconds_per_byte(call, cluster), 1e-18)


def _event(event: Event, memory: float) -> Event:
    if event.kind not in (Kind.RUN, Kind.LAUNCH) or event.term == SCALED:
        return event
    if event.kind == Kind.RUN:
        return event._replace(seconds=event.seconds * memory)
    return event._replace(work_s=event.work_s * memory)


def _collective(made: Collective, links: dict[str, float], latency: Latency) -> Collective:
    fixed = min(made.seconds, latency(made))
    factor = links.get(made.name, links.get("all_gather", 1.0))
    return replace(made, seconds=fixed + (made.seconds - fixed) * factor)
