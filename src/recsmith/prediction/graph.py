"""The execution graph of a step: what every rank does in order, and the collectives at which ranks meet.

A rank is a tape of events of its host thread. Work that the host hands over runs elsewhere: kernels on the streams of a
device, collectives on lanes of their own (threads of gloo, a stream of NCCL). On CPU, kernels run on the host thread.

Terms of time are T1 to T5 (overheads), the kind of a kernel, or the name of a collective.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from recsmith._types import record
from recsmith.errors import UsageError


class Kind(IntEnum):
    """What an event of the host thread is.

    HOST: the host is busy with an overhead. RUN: it runs a kernel itself. LAUNCH: it launches a kernel on a stream.
    ISSUE: it hands over a collective, which begins once what `stream` has is done. AWAIT: it waits for a collective.
    STREAM_AWAIT: a stream does. SYNC: the host waits for a stream.
    """

    HOST = 0
    RUN = 1
    LAUNCH = 2
    ISSUE = 3
    AWAIT = 4
    STREAM_AWAIT = 5
    SYNC = 6


LAUNCHING = "T4"  # the term of a launch
DISK = "disk"  # the stream of what comes from a disk, which is no kernel


class KernelShape(NamedTuple):
    """What a kernel works on. kind, shape: as operators.py has them.

    between: bytes that the step moves from one use of the kernel's data to the next (kernels/__init__.py).
    share: which part of it this launch is, where an operator launches several.
    """

    kind: str
    shape: tuple[float, ...]
    between: float = 0.0
    share: float = 1.0


class Event(NamedTuple):
    """A stretch of a host thread. seconds: of the host; work_s: of what it launches; collective: place in the graph.

    kernel: of RUN and LAUNCH, where its shape is known.
    """

    kind: Kind
    seconds: float
    term: str
    label: str
    work_s: float = 0.0
    stream: str = ""
    collective: int = -1
    kernel: KernelShape | None = None

    @property
    def is_kernel(self) -> bool:
        """Whether it runs or launches a kernel."""
        return self.kind in (Kind.RUN, Kind.LAUNCH) and self.stream != DISK

    @property
    def host_term(self) -> str:
        """Of the host's own seconds: a launch has the term of its kernel."""
        return LAUNCHING if self.kind == Kind.LAUNCH else self.term


def with_seconds(event: Event, seconds: float) -> Event:
    """A kernel that takes so long, wherever it runs."""
    return event._replace(work_s=seconds) if event.kind == Kind.LAUNCH else event._replace(seconds=seconds)


@record
class CollectiveRun:
    """A meeting of ranks: it begins when the last of them has come, and takes as long on each.

    bytes: the most that a rank sends or receives (of all_reduce: of the reduced tensor).
    """

    name: str
    bytes: float
    seconds: float
    ranks: tuple[int, ...]


Tape = tuple[Event, ...]


@record
class Graph:
    """A step of all ranks. lanes: collectives that a rank runs at a time; measured_s: of the steps it was read from."""

    ranks: tuple[Tape, ...]
    collectives: tuple[CollectiveRun, ...]
    lanes: int = 1
    measured_s: float | None = None
    batch_size: int | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on streams."""
        return any(event.kind == Kind.LAUNCH and event.is_kernel for tape in self.ranks for event in tape)

    def kernels(self) -> Iterator[tuple[int, Event]]:
        """(rank, event) of every kernel."""
        for rank, tape in enumerate(self.ranks):
            yield from ((rank, event) for event in tape if event.is_kernel)


def check_graph(graph: Graph) -> None:
    """Refuse a graph whose ranks can never finish.

    Raises:
        UsageError: a rank issues its collectives in another order, not at all or twice, or waits for one before that.
    """
    for rank, tape in enumerate(graph.ranks):
        joined = [i for i, each in enumerate(graph.collectives) if rank in each.ranks]
        issued: dict[int, None] = {}
        for event in tape:
            if event.kind is Kind.ISSUE:
                issued[event.collective if event.collective not in issued else -1] = None
            elif event.collective >= 0 and event.collective not in issued:
                raise UsageError(
                    f"rank {rank} waits for collective {event.collective} before it starts it; ranks do not match"
                )
        if list(issued) != joined:
            raise UsageError(
                f"rank {rank} starts collectives {list(issued)[:8]}, the other ranks expect {joined[:8]} of it; "
                "capture the same step of every rank"
            )
