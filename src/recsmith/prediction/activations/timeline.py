"""Simulates the step of fused arrays one after the other: its actions in order, its peak memory, its seconds.

While the backward pass of one array waits for an activation, operations of the next array's forward pass are run, as
far as memory allows (the paper's multiplexer, section 4.2.2). Copies to the host and back have a link each, and run in
order.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from recsmith.prediction.activations.graph import Action, TrainingGraph

Actions = tuple[list[Action], list[Action]]  # actions of a forward and of a backward pass


@dataclass
class Timeline:
    """The simulated actions so far. peak_at: the operation of each array at the time of the peak of memory.

    link: bytes per second to the host, and the same back. stalled_s: seconds of waiting for copies. again_s: seconds of
    operations that ran before.
    """

    graphs: Sequence[TrainingGraph]
    limit: float = math.inf
    link: float = math.inf
    actions: list[tuple[int, Action]] = field(default_factory=list[tuple[int, Action]])
    live: int = 0
    peak: int = 0
    peak_at: dict[int, int] = field(default_factory=dict[int, int])
    seconds: float = 0.0
    stalled_s: float = 0.0
    again_s: float = 0.0
    copied_s: float = 0.0
    _at: dict[int, int] = field(default_factory=dict[int, int])
    _up: float = 0.0  # time from which on each link is free
    _down: float = 0.0
    _leaving: deque[tuple[float, int, int]] = field(default_factory=deque[tuple[float, int, int]])
    _arriving: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])

    def do(self, array: int, action: Action) -> None:
        """Simulate one action of an array."""
        what, number, at = action
        operation = self.graphs[array].operations[number]
        self._at[array] = at
        if what == "run":
            self._make(operation.nbytes)
            self.seconds += operation.seconds
            self.again_s += operation.seconds if number != at else 0.0
        elif what == "free":
            self.live -= operation.nbytes
        elif what == "offload":
            self._up = max(self._up, self.seconds) + self._copy(operation.nbytes)
            self._leaving.append((self._up, array, number))
        elif what == "fetch":
            self._let_leave(array, number)
            self._make(operation.nbytes)
            self._down = max(self._down, self.seconds) + self._copy(operation.nbytes)
            self._arriving[array, number] = self._down
        else:
            self._wait(self._arriving.pop((array, number)))
        self.actions.append((array, action))

    def missing_s(self, array: int, number: int) -> float:
        """Seconds until a fetched activation has arrived."""
        return self._arriving[array, number] - self.seconds

    @property
    def link_is_free(self) -> bool:
        """Whether no fetch is under way."""
        return self._down <= self.seconds

    def _make(self, nbytes: int) -> None:
        while self._leaving and (self._leaving[0][0] <= self.seconds or self.live + nbytes > self.limit):
            self._left()
        self.live += nbytes
        if self.live > self.peak:
            self.peak, self.peak_at = self.live, dict(self._at)

    def _left(self) -> None:
        """End the oldest copy to the host, and free its memory."""
        ended, array, number = self._leaving.popleft()
        self._wait(ended)
        self.live -= self.graphs[array].operations[number].nbytes
        self.actions.append((array, Action("left", number, number)))

    def _let_leave(self, array: int, number: int) -> None:
        while any(each[1:] == (array, number) for each in self._leaving):
            self._left()

    def _copy(self, nbytes: int) -> float:
        self.copied_s += nbytes / self.link
        return nbytes / self.link

    def _wait(self, until: float) -> None:
        self.stalled_s += max(0.0, until - self.seconds)
        self.seconds = max(self.seconds, until)


def played(graphs: Sequence[TrainingGraph], passes: Sequence[Actions], limit: float, link: float) -> Timeline:
    """The step of arrays one after the other. passes: the actions of each array."""
    line = Timeline(graphs, limit, link)
    waiting = [deque(forward) for forward, _ in passes]
    for array, (_, backward) in enumerate(passes):
        while waiting[array]:
            line.do(array, waiting[array].popleft())
        _backward(line, array, backward, waiting[array + 1] if array + 1 < len(passes) else deque())
    return line


def _backward(line: Timeline, array: int, actions: list[Action], following: deque[Action]) -> None:
    """A backward pass; activations are fetched ahead of their use, during the next array's forward pass."""
    graph = line.graphs[array]
    changes = [_change(graph, each) for each in actions]
    own = list(accumulate(changes, initial=0))  # bytes of the array before each action, relative to the start
    before, others = line.live, 0  # others: bytes besides `before + own`: fetched ahead, and of the next array
    fetches = deque((place, each) for place, each in enumerate(actions) if each.what == "fetch")
    for place, action in enumerate(actions):
        while fetches and line.link_is_free:
            use, each = fetches[0]
            size, most = graph.operations[each.number].nbytes, max(own[place : use + 1])
            if use > place and before + others + size + most > line.limit:
                break
            fetches.popleft()
            line.do(array, each)
            others += size
        if action.what != "fetch":
            line.do(array, action)
            continue
        if fetches and fetches[0][0] == place:  # the link was not free before
            line.do(array, fetches.popleft()[1])
        else:
            others -= graph.operations[action.number].nbytes
        most = max(own[place + 1 :])
        while following and line.missing_s(array, action.number) > 0:
            change = _change(line.graphs[array + 1], following[0])
            if before + others + change + most > line.limit:
                break
            line.do(array + 1, following.popleft())
            others += change
        line.do(array, Action("fetched", action.number, action.at))


def _change(graph: TrainingGraph, action: Action) -> int:
    """Bytes that an action adds; those of an offloaded storage count until the copy has ended."""
    nbytes = graph.operations[action.number].nbytes
    return {"run": nbytes, "fetch": nbytes, "free": -nbytes}.get(action.what, 0)
