"""Adds reads of tables on disk to the graph of a step: before the lookup, or beside the step before.

TorchRec's prefetch pipeline asks for the rows of the next batch when the forward pass of this one is done, and needs
them at the next lookup. So backward, update and everything before the next lookup run at the same time as the fetch,
and a step takes `forward + max(rest, fetch)`. With other pipelines, a lookup waits for all of its rows.
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
_BACKWARD = re.compile(r"Backward\d*$")  # suffix of the names that autograd gives to operators of the backward pass


def with_fetches(graph: Graph, plan: Plan | None, batch: int | None = None) -> tuple[Graph, tuple[str, ...]]:
    """The graph of a step with its reads from disk, and a note on them; unchanged if the plan has no table on disk.

    plan: the plan of the tables that are looked up; its workload names the pipeline. batch: samples per rank, instead
    of the plan's.

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
    """The graph whose ranks fetch for these seconds. ahead: whether rows are fetched during the step before."""
    times = walk(graph)
    tapes: list[Tape] = []
    for tape, own, fetch in zip(graph.ranks, times.ranks, seconds, strict=True):
        lookup = next((i for i, event in enumerate(tape) if event.term == LOOKUPS[0]), None)
        if lookup is None or not fetch:
            tapes.append(tape)
        elif ahead:
            left = max(0.0, fetch - own.begin[lookup])  # work before the next lookup overlaps with the fetch, too
            asked = Event(Kind.LAUNCH, 0.0, TERM, TERM, left, DISK)
            waited = Event(Kind.SYNC, 0.0, TERM, TERM, 0.0, DISK)
            back = _backward(tape, lookup)
            tapes.append((*tape[:back], asked, *tape[back:], waited))
        else:
            tapes.append((*tape[:lookup], Event(Kind.HOST, fetch, TERM, TERM), *tape[lookup:]))
    return replace(graph, ranks=tuple(tapes))


def _backward(tape: Tape, lookup: int) -> int:
    """The index at which the backward pass begins: the first operator of autograd after the lookup."""
    for place in range(lookup, len(tape)):
        event = tape[place]
        if event.kind == Kind.HOST and event.term == "T1" and _BACKWARD.search(event.label.rpartition(THEN)[2]):
            return place
    return len(tape)
