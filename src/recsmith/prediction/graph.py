"""The execution graph of a step: the events of every rank in order, and the collectives at which ranks meet.

A rank is a tape of events of its host thread. Work that the host hands over runs elsewhere: kernels on the streams of a
device, collectives on lanes of their own (threads of gloo, a stream of NCCL). On CPU, kernels run on the host thread.
The term of an event says what its time is counted as: T1 to T5 (overheads), the kind of a kernel, or the name of a
collective.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from recsmith._types import record
from recsmith.errors import UsageError


class Kind(IntEnum):
    """The kind of an event of the host thread.

    HOST: the host is busy with an overhead. RUN: the host runs a kernel itself. LAUNCH: the host launches a kernel on a
    stream. ISSUE: the host starts a collective, which begins once the work on `stream` is done. AWAIT: the host waits
    for a collective. STREAM_AWAIT: a stream waits for a collective. SYNC: the host waits for a stream.
    """

    HOST = 0
    RUN = 1
    LAUNCH = 2
    ISSUE = 3
    AWAIT = 4
    STREAM_AWAIT = 5
    SYNC = 6


LAUNCHING = "T4"  # the term of a kernel launch
DISK = "disk"  # the stream of reads from a disk, which are no kernels


class KernelShape(NamedTuple):
    """The size of the work of a kernel. kind, shape: as operators.py defines them.

    between: bytes that the step moves from one use of the kernel's data to the next (kernels/__init__.py). share: the
    part of an operator's work that this launch does, if the operator launches several kernels.
    """

    kind: str
    shape: tuple[float, ...]
    between: float = 0.0
    share: float = 1.0


class Event(NamedTuple):
    """An event of a host thread. seconds: time on the host. work_s: seconds of the work that it launches.

    collective: index of a collective in the graph. kernel: the kernel of RUN and LAUNCH, if its shape is known.
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
        """Whether the event runs or launches a kernel."""
        return self.kind in (Kind.RUN, Kind.LAUNCH) and self.stream != DISK

    @property
    def host_term(self) -> str:
        """The term of the host's own seconds: T4 for a launch, whose own term is that of its kernel."""
        return LAUNCHING if self.kind == Kind.LAUNCH else self.term


def with_seconds(event: Event, seconds: float) -> Event:
    """A kernel event that takes the given seconds, whether it runs on the host or on a stream."""
    return event._replace(work_s=seconds) if event.kind == Kind.LAUNCH else event._replace(seconds=seconds)


@record
class CollectiveRun:
    """A collective of a step: it begins when its last rank has arrived, and takes the same seconds on each rank.

    bytes: the most that a rank sends or receives (of all_reduce: the bytes of the reduced tensor).
    """

    name: str
    bytes: float
    seconds: float
    ranks: tuple[int, ...]


Tape = tuple[Event, ...]


@record
class Graph:
    """A step of all ranks. lanes: number of collectives that a rank can run at a time.

    measured_s: measured seconds of the steps that the graph was made from.
    """

    ranks: tuple[Tape, ...]
    collectives: tuple[CollectiveRun, ...]
    lanes: int = 1
    measured_s: float | None = None
    batch_size: int | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on the streams of a device."""
        return any(event.kind == Kind.LAUNCH and event.is_kernel for tape in self.ranks for event in tape)

    def kernels(self) -> Iterator[tuple[int, Event]]:
        """(rank, event) of every kernel."""
        for rank, tape in enumerate(self.ranks):
            yield from ((rank, event) for event in tape if event.is_kernel)


def check_graph(graph: Graph) -> None:
    """Raise UsageError for a graph whose ranks can never finish.

    Raises:
        UsageError: a rank issues its collectives in another order than the others, omits or repeats one, or waits for
            one that it has not issued.
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
