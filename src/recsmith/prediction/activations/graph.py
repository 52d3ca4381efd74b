"""The training step of models that are fused into one, as a graph: inputs, results and costs of each operation.

The operations of the forward pass come before those of the backward pass, each after its inputs. Memory belongs to
storages: a view has the storage of the operation that made it.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

Way = Literal["swap", "recompute"]  # treatment of an activation that is not kept
Ways = Mapping[int, Way]  # treatment by the operation that makes the activation


@dataclass(frozen=True)
class GraphOperation:
    """An operation; its index in the graph identifies it.

    inputs: operations whose results it reads; weights and batches are left out. storage: the operation that made the
    memory of its result; None for a view of a weight or of a batch. nbytes: bytes of memory that it allocates. repeats:
    whether it gives the same result when run again, which random numbers do not.
    """

    inputs: tuple[int, ...]
    storage: int | None
    nbytes: int
    seconds: float
    forward: bool
    repeats: bool = True


@dataclass(frozen=True)
class TrainingGraph:
    """A forward and a backward pass. outputs: operations whose results are kept: logits and gradients."""

    operations: tuple[GraphOperation, ...]
    outputs: frozenset[int]

    @cached_property
    def first_backward(self) -> int:
        """The index at which the backward pass begins."""
        return sum(each.forward for each in self.operations)

    @cached_property
    def seconds(self) -> float:
        """Seconds of the step if all activations are kept."""
        return sum(each.seconds for each in self.operations)

    @cached_property
    def kept(self) -> frozenset[int]:
        """Storages that are never given up: those of outputs."""
        found = {self.operations[each].storage for each in self.outputs}
        return frozenset(each for each in found if each is not None)

    @cached_property
    def uses(self) -> dict[int, tuple[int, int]]:
        """For each activation that may be given up: its last use in the forward and its first in the backward pass."""
        last, first = dict[int, int](), dict[int, int]()
        for number, each in enumerate(self.operations):
            read = {self.operations[other].storage for other in each.inputs} | {each.storage}
            for storage in read - {None}:
                if each.forward:
                    last[storage] = number  # type: ignore[index]
                else:
                    first.setdefault(storage, number)  # type: ignore[arg-type]
        return {each: (end, first[each]) for each, end in last.items() if each in first and each not in self.kept}

    @cached_property
    def ends(self) -> list[float]:
        """Seconds after which each operation has ended."""
        total, found = 0.0, list[float]()
        for each in self.operations:
            total += each.seconds
            found.append(total)
        return found

    def inactive_s(self, storage: int) -> float:
        """Seconds in which an activation is not used (the paper's inactive time, section 4.1)."""
        last, first = self.uses[storage]
        return self.ends[first - 1] - self.ends[last]

    def to_run(self, wanted: int, available: set[int], ways: Ways) -> list[int]:
        """Operations to run or fetch, in order, before an operation of the backward pass can read the wanted one."""
        found, left = set[int](), [wanted]
        while left:
            number = left.pop()
            if number in available or number in found:
                continue
            found.add(number)
            if ways.get(number) != "swap":
                left += self.operations[number].inputs
        return sorted(found)

    def survivors(self, ways: Ways) -> set[int]:
        """Operations of the forward pass whose results are in memory in the backward pass.

        An intermediate result that the backward pass does not read is dropped, and computed again if a recomputed
        activation needs it; a result that does not repeat is kept.
        """
        lives = {
            storage for storage in {each.storage for each in self.operations[: self.first_backward]} - {None}
            if storage not in ways and (storage in self.uses or storage in self.kept or not self._repeats(storage))
        }  # fmt: skip
        return {
            number for number, each in enumerate(self.operations[: self.first_backward])
            if each.storage is None or each.storage in lives
        }  # fmt: skip

    def again_s(self, ways: Ways) -> float:
        """Seconds of all operations that are computed again."""
        available, total = self.survivors(ways), 0.0
        for number in range(self.first_backward, len(self.operations)):
            for read in self.operations[number].inputs:
                again = self.to_run(read, available, ways)
                available.update(again)
                total += sum(self.operations[each].seconds for each in again if ways.get(each) != "swap")
            available.add(number)
        return total

    def _repeats(self, storage: int | None) -> bool:
        return storage is None or self.operations[storage].repeats


What = Literal["run", "free", "offload", "left", "fetch", "fetched"]


class Action(NamedTuple):
    """run an operation; free, offload or fetch a storage; wait until it has left, or until it is fetched.

    at: the operation of the graph for which the action is taken.
    """

    what: What
    number: int
    at: int


def actions_of(graph: TrainingGraph, ways: Ways) -> tuple[list[Action], list[Action]]:
    """(actions of the forward pass, of the backward pass). A fetched storage is awaited at its first use."""
    forward = [Action("run", number, number) for number in range(graph.first_backward)]
    backward, available = list[Action](), graph.survivors(ways)
    for number in range(graph.first_backward, len(graph.operations)):
        for read in graph.operations[number].inputs:
            for each in graph.to_run(read, available, ways):
                backward.append(Action("fetch" if ways.get(each) == "swap" else "run", each, number))
                available.add(each)
        backward.append(Action("run", number, number))
        available.add(number)
    ending = _last_uses(graph, [*forward, *backward], len(forward), ways)
    return _with_ends(forward, ending, 0), _with_ends(backward, ending, len(forward))


def _last_uses(graph: TrainingGraph, actions: list[Action], backward: int, ways: Ways) -> dict[int, list[Action]]:
    """Storages that are given up after each index of the list of actions."""
    last: dict[int, int] = {}
    ending: defaultdict[int, list[Action]] = defaultdict(list)

    def ended(storage: int) -> None:
        place = last.pop(storage)
        leaves = ways.get(storage) == "swap" and place < backward
        ending[place].append(Action("offload" if leaves else "free", storage, actions[place].at))

    for place, (what, number, _) in enumerate(actions):
        operation = graph.operations[number]
        if operation.storage == number and number in last:  # the storage is made or fetched once more
            ended(number)
        touched = {operation.storage}
        if what == "run":
            touched |= {graph.operations[each].storage for each in operation.inputs}
        last |= {storage: place for storage in touched if storage is not None}
    for storage in [*last]:
        if storage not in graph.kept:
            ended(storage)
    return ending


def _with_ends(actions: list[Action], ending: dict[int, list[Action]], first: int) -> list[Action]:
    return [each for place, action in enumerate(actions) for each in (action, *ending[first + place])]
