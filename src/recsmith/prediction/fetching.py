"""Rows of tables on disk in the graph of a step: fetched before the lookup, or for the next step beside this one.

TorchRec's prefetch pipeline asks for the rows of the next batch when the forward pass of this one is done, and they
must be there at its lookup. So backward, update and all that stands before the next lookup run beside the fetch, and a
step takes `forward + max(rest, fetch)`. Elsewhere a lookup waits for all of its rows.
"""

import re
from dataclasses import replace

from recsmith.costs.fetches import disk_fetches
from recsmith.plans import Plan
from recsmith.prediction.graph import DISK, Event, Graph, Kind, Tape
from recsmith.prediction.host_steps import THEN
from recsmith.prediction.kernels import LOOKUPS
from recsmith.prediction.walk import walk
from recsmith.units import format_time
from recsmith.workloads.workload import AHEAD

TERM = "rows from disk"
_BACKWARD = re.compile(r"Backward\d*$")  # how autograd names what belongs to an operator


def with_fetches(graph: Graph, plan: Plan | None, batch: int | None = None) -> tuple[Graph, tuple[str, ...]]:
    """The graph of a step with what its disks do, and a note on it; as it was where the plan has no table on disk.

    plan: whose tables the graph looks up; its workload says under which pipeline. batch: samples a rank, instead of the
    plan's.

    Raises:
        UsageError: the plan's cluster does not say how fast its disk is.
    """
    found = None if plan is None else disk_fetches(plan, batch)
    if plan is None or found is None:
        return graph, ()
    made = {ahead: _fetching(graph, found.seconds, ahead=ahead) for ahead in (False, True)}
    without, waiting, beside = (format_time(walk(each).step_s) for each in (graph, made[False], made[True]))
    note = (
        f"rows from disk take {format_time(found.longest_s)} of the rank that fetches most; the step takes {without} "
        f"without them, {beside} where they come beside the step before (pipeline {AHEAD}) and {waiting} elsewhere; "
        f"the plan's workload says {plan.workload.pipeline}"
    )
    return replace(made[plan.workload.pipeline == AHEAD], measured_s=None), (note,)


def _fetching(graph: Graph, seconds: tuple[float, ...], *, ahead: bool) -> Graph:
    """The graph whose ranks fetch for so long. ahead: the rows of the next step, beside this one."""
    times = walk(graph)
    tapes: list[Tape] = []
    for tape, own, fetch in zip(graph.ranks, times.ranks, seconds, strict=True):
        lookup = next((i for i, event in enumerate(tape) if event.term == LOOKUPS[0]), None)
        if lookup is None or not fetch:
            tapes.append(tape)
        elif ahead:
            left = max(0.0, fetch - own.begin[lookup])  # what is before the next lookup runs beside it, too
            asked = Event(Kind.LAUNCH, 0.0, TERM, TERM, left, DISK)
            waited = Event(Kind.SYNC, 0.0, TERM, TERM, 0.0, DISK)
            back = _backward(tape, lookup)
            tapes.append((*tape[:back], asked, *tape[back:], waited))
        else:
            tapes.append((*tape[:lookup], Event(Kind.HOST, fetch, TERM, TERM), *tape[lookup:]))
    return replace(graph, ranks=tuple(tapes))


def _backward(tape: Tape, lookup: int) -> int:
    """Where the backward pass begins: at the first operator of autograd after the lookup."""
    for place in range(lookup, len(tape)):
        event = tape[place]
        if event.kind == Kind.HOST and event.term == "T1" and _BACKWARD.search(event.label.rpartition(THEN)[2]):
            return place
    return len(tape)
