"""Changes a step before it is predicted: what-ifs of faster links, kernels and overheads, and another cluster.

    link=2x             links twice as fast: the time of a collective beyond its latency is halved
    kernel:gemm=0.5x    products take half their time; kernel=0.5x: all kernels. Formulas have kinds of their own
    comm:all_reduce=2x  all-reduces take twice their time
    bytes:all_reduce=0.01x  all-reduces have a hundredth of their bytes: their time beyond the latency follows
    overhead=0          no overheads; overhead:T1=0.5x: half of T1

Another cluster changes a step in proportion to the figures of both. Collectives take the time of their links, with
bytes counted as by cost model `analytic` (costs/collectives.py). All kernels but products of matrices move memory, so
their time is divided by the ratio of the memory bandwidths. Products and overheads are unchanged, for no figure of a
cluster says how fast they are: add a what-if for them.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.costs.collectives import seconds_per_byte
from recsmith.errors import UsageError
from recsmith.prediction.graph import CollectiveRun, Event, Graph, Kind, with_seconds
from recsmith.prediction.overheads import TERMS, is_overhead
from recsmith.sharding import Collective as Call

EXAMPLE = "write for example link=2x,kernel:gemm=0.5x,overhead=0"
LARGEST = 1e6  # factor; larger ones are taken for mistakes, and so are links slower by more
_FACTOR = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?)x|0")


@noun
class WhatIf:
    """One change of a step.

    of: link, kernel, comm, bytes or overhead. name: name of the changed kind ('' for all). factor: of speed, bytes or
    time.
    """

    of: str
    name: str = ""
    factor: float


def parse_what_ifs(text: str) -> tuple[WhatIf, ...]:
    """The changes that a text names, such as 'link=2x,overhead=0'.

    Raises:
        UsageError: a part names nothing known or has no valid factor, a link has no speed, or a change is given twice.
    """
    made = tuple(_parsed(part.strip()) for part in text.split(",") if part.strip())
    twins = [(each.of, each.name) for each in made]
    twin = next((key for key in twins if twins.count(key) > 1), None)
    if twin is not None:
        raise UsageError(f"--what-if changes '{':'.join(filter(None, twin))}' twice; give each change once")
    if not made:
        raise UsageError(f"--what-if is empty; {EXAMPLE}")
    return made


def _parsed(text: str) -> WhatIf:
    key, _, value = text.partition("=")
    of, _, name = key.partition(":")
    known = {"link": (), "kernel": None, "comm": None, "bytes": None, "overhead": TERMS}
    if of not in known:
        raise UsageError(f"--what-if '{text[:60]}' changes nothing that is known ({', '.join(known)}); {EXAMPLE}")
    names = known[of]
    if name and names is not None and name not in names:
        raise UsageError(f"--what-if '{text[:60]}': known of {of} are {', '.join(names) or 'no names'}; {EXAMPLE}")
    match = _FACTOR.fullmatch(value)
    if match is None:
        raise UsageError(f"--what-if '{text[:60]}' has no factor such as 2x or 0.5x, or 0; {EXAMPLE}")
    factor = float(match[1] or 0)
    if factor > LARGEST or (of == "link" and factor < 1 / LARGEST):
        raise UsageError(
            f"--what-if '{text[:60]}': a factor is at most {LARGEST:g}, and a link's at least {1 / LARGEST:g}; "
            f"{EXAMPLE}"
        )
    return WhatIf(of=of, name=name, factor=factor)


Latency = Callable[[CollectiveRun], float]  # seconds of a collective that no faster link saves


def apply_what_ifs(graph: Graph, what_ifs: tuple[WhatIf, ...], latency: Latency) -> Graph:
    """The graph after all changes; UsageError for a change of something that the step does not have."""
    for what_if in what_ifs:
        _check_named(graph, what_if)
        tapes = tuple(tuple(_event(event, what_if) for event in tape) for tape in graph.ranks)
        meetings = tuple(_collective(each, what_if, latency) for each in graph.collectives)
        graph = replace(graph, ranks=tapes, collectives=meetings)
    return graph


def _check_named(graph: Graph, what_if: WhatIf) -> None:
    kernels = {event.term for _, event in graph.kernels()}
    overheads = {event.term for tape in graph.ranks for event in tape if is_overhead(event)} & set(TERMS)
    meetings = {made.name for made in graph.collectives}
    names = {"kernel": kernels, "overhead": overheads}.get(what_if.of, meetings)
    if what_if.name and what_if.name not in names:
        raise UsageError(
            f"--what-if '{what_if.of}:{what_if.name}' changes nothing of this step, which has "
            f"{', '.join(sorted(names)) or 'none'}; name what it has, or leave the change out"
        )


def _event(event: Event, what_if: WhatIf) -> Event:
    if what_if.of == "overhead" and is_overhead(event) and what_if.name in ("", event.term):
        return event._replace(seconds=event.seconds * what_if.factor)
    if what_if.of == "kernel" and event.is_kernel and what_if.name in ("", event.term):
        return with_seconds(event, (event.work_s if event.kind == Kind.LAUNCH else event.seconds) * what_if.factor)
    return event


def _collective(made: CollectiveRun, what_if: WhatIf, latency: Latency) -> CollectiveRun:
    if what_if.of == "comm" and what_if.name in ("", made.name):
        return replace(made, seconds=made.seconds * what_if.factor)
    if what_if.of == "link" or (what_if.of == "bytes" and what_if.name in ("", made.name)):
        fixed = min(made.seconds, latency(made))
        factor = 1 / what_if.factor if what_if.of == "link" else what_if.factor
        return replace(made, seconds=fixed + (made.seconds - fixed) * factor)
    return made


SCALED = "gemm"  # the kind of kernels whose time is not spent on moving memory
CALLS = {
    name: Call(name, "world")
    for name in ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")  # all others count as an all-gather
}


def on_cluster(graph: Graph, old: Cluster, new: Cluster, latency: Latency) -> tuple[Graph, str]:
    """The graph of a step on `old`, scaled to `new`, and a sentence that says what was changed.

    Raises:
        UsageError: the clusters have other numbers of ranks than the step, or are of other kinds of device.
    """
    check_carried(len(graph.ranks), old, new)
    memory = old.device.hbm_bandwidth / new.device.hbm_bandwidth
    calls = CALLS if old.world_size > 1 else {}
    links = {name: _of_links(call, new) / _of_links(call, old) for name, call in calls.items()}
    meetings = tuple(_carried(each, links, latency) for each in graph.collectives)
    tapes = tuple(tuple(_carried_event(event, memory) for event in tape) for tape in graph.ranks)
    said = f"memory {1 / memory:.3g} times as fast"
    if links:
        said += f", links {1 / links['all_to_all']:.3g} times (all-to-all) and {1 / links['all_reduce']:.3g} times"
    note = (
        f"carried over to {new.device.name} by the figures of both clusters: {said}; products of matrices and "
        "overheads as they were"
    )
    return replace(graph, ranks=tapes, collectives=meetings, measured_s=None), note


def check_carried(ranks: int, old: Cluster, new: Cluster) -> None:
    """Raise UsageError unless a step of this many ranks can be scaled from the old cluster to the new one."""
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


def _of_links(call: Call, cluster: Cluster) -> float:
    """Seconds per byte; above 0 even if no byte leaves a device."""
    return max(seconds_per_byte(call, cluster), 1e-18)


def _carried_event(event: Event, memory: float) -> Event:
    if event.kind not in (Kind.RUN, Kind.LAUNCH) or event.term == SCALED:
        return event
    return with_seconds(event, (event.work_s if event.kind == Kind.LAUNCH else event.seconds) * memory)


def _carried(made: CollectiveRun, links: dict[str, float], latency: Latency) -> CollectiveRun:
    fixed = min(made.seconds, latency(made))
    factor = links.get(made.name, links.get("all_gather", 1.0))
    return replace(made, seconds=fixed + (made.seconds - fixed) * factor)
