"""What is done, one action after the other, in the step of one fused array when some of its activations are given up.

A result is freed after its last use. A recomputed one is freed after its last use in the forward pass, and made once
more just before the backward pass needs it.
"""

from collections import defaultdict
from typing import Literal, NamedTuple

from recsmith.training.arrays.scheduling.graph import TrainingGraph, Ways

What = Literal["run", "free", "offload", "left", "fetch", "fetched"]


class Action(NamedTuple):
    """run an operation; free, offload or fetch a storage; wait until it has left, or until it is fetched.

    at: the operation of the graph for which it is done.
    """

    what: What
    number: int
    at: int


def actions_of(graph: TrainingGraph, ways: Ways) -> tuple[list[Action], list[Action]]:
    """(of the forward pass, of the backward pass). A fetched storage is waited for where it is used first."""
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
    """Storages that are given up after each place of the list."""
    last: dict[int, int] = {}
    ending: defaultdict[int, list[Action]] = defaultdict(list)

    def ended(storage: int) -> None:
        place = last.pop(storage)
        leaves = ways.get(storage) == "swap" and place < backward
        ending[place].append(Action("offload" if leaves else "free", storage, actions[place].at))

    for place, (what, number, _) in enumerate(actions):
        operation = graph.operations[number]
        if operation.storage == number and number in last:  # it is made or fetched once more
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
