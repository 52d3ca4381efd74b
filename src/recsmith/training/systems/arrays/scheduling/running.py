"""A step of layers, done as a schedule says: forward and backward passes of all sub-arrays, one action after the other.

On a GPU, activations leave and come back on streams of their own, through pinned memory. On a CPU they would only be
copied, and schedules there have none of it.
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

Gradient = Callable[[int, torch.Tensor], torch.Tensor]  # (place of a sub-array, its logits) -> that of the loss


class HostCopies:
    """Activations in the memory of the host, when it is that of the device: copies, made at once."""

    def leave(self, value: Any) -> Any:
        """What is fetched later."""
        return tree_map(torch.clone, value)

    def left(self, kept: Any) -> None:
        """Wait until it has left."""

    def fetch(self, kept: Any) -> Any:
        """What it was."""
        return tree_map(torch.clone, kept)

    def fetched(self) -> None:
        """Wait for what was fetched."""


class StreamedCopies:
    """Activations in pinned memory of the host; each direction has a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.up, self.down = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.ends: dict[int, Any] = {}  # of copies to the host

    def leave(self, value: Any) -> Any:
        """Begin a copy to the host."""
        self.up.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.up):
            kept = tree_map(lambda each: _like(each, "cpu").copy_(each, non_blocking=True), value)
            self.ends[id(kept)] = self.up.record_event()
        return kept

    def left(self, kept: Any) -> None:
        """What is computed next may use its memory."""
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
        """What is computed next may read it."""
        torch.cuda.current_stream(self.device).wait_stream(self.down)


def _like(tensor: torch.Tensor, device: Any) -> torch.Tensor:
    pinned = device == "cpu"
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device, pin_memory=pinned)


@dataclass
class SubArray:
    """A fused array while its step is run. values: of operations, by their number; host: what was copied."""

    step: TracedStep
    inputs: dict[fx.Node, Any]
    values: dict[int, Any] = field(default_factory=dict[int, Any])
    host: dict[int, Any] = field(default_factory=dict[int, Any])

    def __post_init__(self) -> None:
        """Find which operations have the memory of which."""
        self.number = {node: place for place, node in enumerate(self.step.nodes)}
        self.of_storage: defaultdict[int | None, list[int]] = defaultdict(list)
        for place, each in enumerate(self.step.graph.operations):
            self.of_storage[each.storage].append(place)

    def value(self, node: fx.Node) -> Any:
        """Of a node, whose operation has been run."""
        if node in self.number:
            return self.values[self.number[node]]
        return getattr(self.step.module, str(node.target)) if node.op == "get_attr" else self.inputs[node]

    def run(self, number: int) -> None:
        """Run an operation."""
        node: Any = self.step.nodes[number]
        args, kwargs = map_arg((node.args, node.kwargs), self.value)
        self.values[number] = node.target(*args, **kwargs)

    def forget(self, storage: int) -> None:
        """Let go of all that lies in a storage."""
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
