"""Runs a step of layers by a schedule: forward and backward passes of all sub-arrays, one action after the other.

On a GPU, activations are copied to the host and back on streams of their own, through pinned memory. On a CPU this
would save nothing, and schedules for a CPU contain no such copies.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.utils._pytree import tree_map

from recsmith.prediction.activations.graph import Action
from recsmith.prediction.activations.scheduler import ArraySchedule
from recsmith.training.systems.arrays.scheduling.profiling import TracedStep

Gradient = Callable[[int, torch.Tensor], torch.Tensor]  # (index of a sub-array, its logits) -> gradient of the loss


class HostCopies:
    """Offloaded activations on a CPU, where host memory is the device's: plain copies, made immediately."""

    def leave(self, value: Any) -> Any:
        """A copy that can be fetched later."""
        return tree_map(torch.clone, value)

    def left(self, kept: Any) -> None:
        """Do nothing: the copy was made immediately."""

    def fetch(self, kept: Any) -> Any:
        """A copy of what was offloaded."""
        return tree_map(torch.clone, kept)

    def fetched(self) -> None:
        """Do nothing: the copy was made immediately."""


class StreamedCopies:
    """Activations offloaded to pinned host memory; each direction has a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.up, self.down = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.ends: dict[int, Any] = {}  # events that end the copies to the host

    def leave(self, value: Any) -> Any:
        """Begin a copy to the host."""
        self.up.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.up):
            kept = tree_map(lambda each: _like(each, "cpu").copy_(each, non_blocking=True), value)
            self.ends[id(kept)] = self.up.record_event()
        return kept

    def left(self, kept: Any) -> None:
        """Have later computation wait for the copy to the host, so that it may reuse the activation's memory."""
        torch.cuda.current_stream(self.device).wait_event(self.ends[id(kept)])

    def fetch(self, kept: Any) -> Any:
        """Begin a copy from the host."""
        value = tree_map(lambda each: _like(each, self.device), kept)
        self.down.wait_stream(torch.cuda.current_stream(self.device))
        self.down.wait_event(self.ends.pop(id(kept)))
        with torch.cuda.stream(self.down):
            tree_map(lambda to, each: to.copy_(each, non_blocking=True), value, kept)
        return value

    def fetched(self) -> None:
        """Have later computation wait for copies from the host, so that it may read them."""
        torch.cuda.current_stream(self.device).wait_stream(self.down)


def _like(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    pinned = device == "cpu"
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device, pin_memory=pinned)


@dataclass
class SubArray:
    """A sub-array while its step runs. values: results of operations, by number. host: offloaded results."""

    step: TracedStep
    inputs: dict[fx.Node, Any]
    values: dict[int, Any] = field(default_factory=dict[int, Any])
    host: dict[int, Any] = field(default_factory=dict[int, Any])

    def __post_init__(self) -> None:
        """Index operations by node, and by the storage that their results use."""
        self.number = {node: place for place, node in enumerate(self.step.nodes)}
        self.of_storage: defaultdict[int | None, list[int]] = defaultdict(list)
        for place, each in enumerate(self.step.graph.operations):
            self.of_storage[each.storage].append(place)

    def value(self, node: fx.Node) -> Any:
        """The value of a node: an input, an attribute, or the result of an operation that has run."""
        if node in self.number:
            return self.values[self.number[node]]
        return getattr(self.step.module, str(node.target)) if node.op == "get_attr" else self.inputs[node]

    def run(self, number: int) -> None:
        """Run an operation and keep its result. number: of the operation."""
        node: Any = self.step.nodes[number]
        args, kwargs = map_arg((node.args, node.kwargs), self.value)
        self.values[number] = node.target(*args, **kwargs)

    def forget(self, storage: int) -> None:
        """Release all results that use a storage."""
        for each in self.of_storage[storage]:
            self.values.pop(each, None)


def run_schedule(
    schedule: ArraySchedule, steps: Sequence[TracedStep], inputs: Sequence[Sequence[torch.Tensor]], gradient: Gradient,
    copies: HostCopies | StreamedCopies,
) -> list[list[torch.Tensor]]:  # fmt: skip
    """Logits and gradients of each sub-array. inputs: weights, pooled vectors and dense features of each."""
    arrays = [
        SubArray(step, dict(zip(step.inputs, each, strict=False))) for step, each in zip(steps, inputs, strict=True)
    ]
    with torch.no_grad():
        for place, action in schedule.actions:
            array = arrays[place]
            above = array.step.inputs[-1]
            if action.at >= array.step.graph.first_backward and above not in array.inputs:
                array.inputs[above] = gradient(place, array.value(array.step.results[0]))
            _do(array, action, copies)
    return [[array.value(node) for node in array.step.results] for array in arrays]


def _do(array: SubArray, action: Action, copies: HostCopies | StreamedCopies) -> None:
    what, number, _ = action
    if what == "run":
        array.run(number)
    elif what == "free":
        array.forget(number)
    elif what == "offload":
        array.host[number] = copies.leave(array.values[number])
    elif what == "left":
        copies.left(array.host[number])
        array.forget(number)
    elif what == "fetch":
        array.values[number] = copies.fetch(array.host.pop(number))
    else:
        copies.fetched()
