"""What is given up, and how many members run at once: schedules are right, and stay within their limit."""

import math
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith.errors import NoPlanFound
from recsmith.prediction.activations.graph import GraphOperation, TrainingGraph
from recsmith.prediction.activations.scheduler import ArraySchedule, partitions, scheduled

LINK = 1e6  # bytes a second


def layers(sizes: Sequence[int], seconds: float = 1e-3) -> TrainingGraph:
    """A chain of products and activations, and its backward pass: each product reads the activation before it."""
    operations: list[GraphOperation] = []

    def add(inputs: Sequence[int], nbytes: int, takes: float, *, forward: bool, storage: int | None = None) -> int:
        place = len(operations)
        operations.append(GraphOperation(tuple(inputs), place if nbytes else storage, nbytes, takes, forward=forward))
        return place

    made: list[int] = []
    views: list[int] = []
    for size in sizes:
        product = add(made[-1:], size, seconds, forward=True)
        made.append(add([product], size, seconds / 10, forward=True))
        views.append(add(made[-1:], 0, 0.0, forward=True, storage=made[-1]))
    logits = add([made[-1]], 4, seconds / 10, forward=True)
    above, outputs = logits, [logits]
    for place in reversed(range(len(sizes))):
        above = add([above, views[place]], sizes[place], seconds, forward=False)
        outputs.append(add([above, *made[place - 1 : place]], 8, seconds, forward=False))
    return TrainingGraph(tuple(operations), frozenset(outputs))


def checked(schedule: ArraySchedule, graphs: Sequence[TrainingGraph], limit: float) -> None:
    """Do the actions on numbers: each reads what is there, results are right, and memory is as it was said."""
    values: list[dict[int, Any]] = [{} for _ in graphs]
    right: list[list[Any]] = []
    for graph in graphs:
        found: list[Any] = []
        for number, each in enumerate(graph.operations):
            found.append(hash((number, *(found[other] for other in each.inputs))))
        right.append(found)
    live, peak, host, coming = 0, 0, set[tuple[int, int]](), set[tuple[int, int]]()
    for array, (what, number, _) in schedule.actions:
        graph, here = graphs[array], values[array]
        operation = graph.operations[number]
        if what == "run":
            assert not any((array, graph.operations[each].storage) in coming for each in operation.inputs)
            assert number not in here or not operation.nbytes
            here[number] = hash((number, *(here[each] for each in operation.inputs)))
        elif what == "offload":
            assert here[number] == right[array][number]
            host.add((array, number))
        elif what == "fetch":
            assert (array, number) in host
            assert not any(graph.operations[each].storage == number for each in here)
            coming.add((array, number))
            here[number] = right[array][number]
        elif what == "fetched":
            coming.remove((array, number))
        if what in ("free", "left"):
            values[array] = {each: value for each, value in here.items() if graph.operations[each].storage != number}
        live += {"run": 1, "fetch": 1, "free": -1, "left": -1}.get(what, 0) * operation.nbytes
        peak = max(peak, live)
    assert peak == schedule.peak_bytes <= limit
    for array, graph in enumerate(graphs):
        assert {each: values[array][each] for each in graph.outputs} == {
            each: right[array][each] for each in graph.outputs
        }
    assert live == sum(graph.operations[each].nbytes for graph in graphs for each in graph.kept)


@st.composite
def random_graphs(draw: st.DrawFn) -> TrainingGraph:
    """Any forward pass, and a backward pass that reads any of it."""
    forward, backward = draw(st.integers(2, 9)), draw(st.integers(1, 9))
    operations: list[GraphOperation] = []
    for place in range(forward + backward):
        inputs = draw(st.lists(st.integers(0, place - 1), max_size=3, unique=True)) if place else []
        view = bool(inputs) and draw(st.integers(0, 3)) == 0
        storage = operations[inputs[0]].storage if view else place
        nbytes = 0 if view else draw(st.integers(1, 100))
        seconds = draw(st.sampled_from([0.0, 1e-6, 1e-4]))
        operations.append(GraphOperation(
            tuple(sorted(inputs)), storage, nbytes, seconds, forward=place < forward,
            repeats=draw(st.integers(0, 5)) > 0,
        ))  # fmt: skip
    outputs = draw(st.sets(st.integers(forward, forward + backward - 1), min_size=1))
    return TrainingGraph(tuple(operations), frozenset({forward - 1, *outputs}))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 4), st.floats(0.3, 1.0), st.sampled_from([None, LINK]))
def test_no_schedule_is_above_its_limit(data: st.DataObject, members: int, share: float, link: float | None) -> None:
    graphs = {size: data.draw(random_graphs()) for size in range(1, members + 1)}
    whole = scheduled(lambda _, size: graphs[size], partitions([members], members), math.inf, link=link)
    limit = whole.peak_bytes * share
    try:
        found = scheduled(lambda _, size: graphs[size], partitions([members]), limit, link=link)
    except NoPlanFound:
        return
    checked(found, [graphs[size] for _, size in found.parts], limit)


@pytest.mark.parametrize(
    ("ways", "link", "words"),
    [
        (("recompute",), None, "computed again"),
        (("swap",), LINK, "copied to the host"),
        (("swap", "recompute"), LINK, ""),
    ],
)
def test_deep_layers_take_less_when_activations_are_given_up(ways: Any, link: float | None, words: str) -> None:
    graph = layers([1000] * 12)
    whole = scheduled(lambda *_: graph, partitions([2], 1), math.inf, link=link)
    limit = 0.7 * whole.peak_bytes
    found = scheduled(lambda *_: graph, partitions([2], 1), limit, link=link, ways=ways)
    checked(found, [graph] * 2, limit)
    assert any(found.ways[part] for part in found.parts)
    assert words in found.line(limit)
    assert found.seconds >= whole.seconds
    assert found.seconds - found.stalled_s - found.again_s == pytest.approx(whole.seconds)


def test_copies_hide_behind_the_next_forward_pass_and_the_better_way_is_taken() -> None:
    graph = layers([1000] * 12)
    limit = 0.7 * scheduled(lambda *_: graph, partitions([2], 1), math.inf, link=None).peak_bytes
    slow, fast = 3e4, 3e6
    kinds: list[Any] = [("swap",), ("recompute",), ("swap", "recompute")]
    took = {
        (ways, link): scheduled(lambda *_: graph, partitions([2], 1), limit, link=link, ways=ways)
        for ways in kinds for link in (slow, fast)
    }  # fmt: skip
    for link in (slow, fast):
        both = took[("swap", "recompute"), link].seconds
        assert both <= min(took[("swap",), link].seconds, took[("recompute",), link].seconds) * (1 + 1e-9)
    assert took[("swap",), fast].seconds < took[("recompute",), fast].seconds < took[("swap",), slow].seconds
    order = [array for array, action in took[("swap",), slow].actions if action.what == "run"]
    assert order != sorted(order)  # the second forward pass begins while the first backward pass waits


def test_partitions_go_from_all_at_once_to_one_at_a_time() -> None:
    assert [[size for _, size in parts] for parts in partitions([8])] == [[8], [4, 4], [3, 3, 2], [2] * 4, [1] * 8]
    assert [*partitions([3, 1])] == [((0, 3), (1, 1)), ((0, 2), (0, 1), (1, 1)), ((0, 1), (0, 1), (0, 1), (1, 1))]
    assert [*partitions([4], 1)] == [((0, 1),) * 4]


def test_memory_for_none_is_refused_with_the_least_that_was_found() -> None:
    graph = layers([1000] * 4)
    with pytest.raises(NoPlanFound, match=r"array.layer_memory is 10 B, and the least .* lower data.batch_size"):
        scheduled(lambda *_: graph, partitions([2]), 10, link=None)


def test_eight_members_are_scheduled_within_seconds() -> None:
    """Of 100 layers each: 500 operations, as many as those of real models."""
    graph = layers([1000] * 100)
    began = time.process_time()
    limit = 0.8 * scheduled(lambda *_: graph, partitions([8], 1), math.inf, link=LINK).peak_bytes
    checked(scheduled(lambda *_: graph, partitions([8], 1), limit, link=LINK), [graph] * 8, limit)
    assert time.process_time() - began < 60
