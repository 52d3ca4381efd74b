"""Times the embedding kernels of a running model on this rank, forward and backward, step by step.

Hooks on the lookups of TorchRec's sharded modules time the forward kernels; hooks on FBGEMM's nodes in the autograd
graph time the fused backward. On a GPU the times come from events in the stream, so no call waits for the device.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn
from torchrec.distributed.types import ShardedModule

LOOKUP = "LookupFunction"  # part of the names of FBGEMM's autograd nodes, such as SplitLookupFunction_adagrad_Op_pt2
DEEPEST = 16  # most autograd nodes between a lookup's output and FBGEMM's node: concatenations and casts are few


class KernelTimer:
    """Seconds of a model's embedding kernels on this rank. `step` closes a step; `remove` removes the hooks.

    forward, backward: seconds of each closed step.
    """

    def __init__(self, model: nn.Module) -> None:
        self.forward: list[float] = []
        self.backward: list[float] = []
        self._spans: dict[str, list[_Timing]] = {"forward": [], "backward": []}
        self._open: list[_Timing] = []
        self._handles: list[Any] = []
        for lookup in _lookups(model):
            self._handles.append(lookup.register_forward_pre_hook(self._begin_forward))
            self._handles.append(lookup.register_forward_hook(self._end_forward))

    @property
    def lookups(self) -> int:
        """Number of lookup modules that are timed; each is a group of fused kernels."""
        return len(self._handles) // 2

    def step(self, keep: bool = True) -> None:
        """Close a step: record the sum of its kernels' seconds, or discard them if `keep` is False."""
        if keep:
            self.forward.append(sum(span.seconds() for span in self._spans["forward"]))
            self.backward.append(sum(span.seconds() for span in self._spans["backward"]))
        for spans in self._spans.values():
            spans.clear()

    def remove(self) -> None:
        """Remove the hooks; training then continues without any overhead."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _begin_forward(self, _: nn.Module, __: object) -> None:
        self._open.append(_Timing())

    def _end_forward(self, _: nn.Module, __: object, output: object) -> None:
        span = self._open.pop()
        span.end()
        self._spans["forward"].append(span)
        for node in _kernel_nodes(output):
            self._watch_backward(node)

    def _watch_backward(self, node: Any) -> None:
        begun: list[_Timing] = []

        def begin(_: object) -> None:
            begun.append(_Timing())

        def end(_: object, __: object) -> None:
            begun[-1].end()
            self._spans["backward"].append(begun[-1])

        node.register_prehook(begin)
        node.register_hook(end)


class _Timing:
    """A time span on this rank's device, from the object's creation to `end`."""

    def __init__(self) -> None:
        self._mark: Callable[[], Any] = _event if torch.cuda.is_available() else time.perf_counter
        self._begin = self._end = self._mark()

    def end(self) -> None:
        """End the span."""
        self._end = self._mark()

    def seconds(self) -> float:
        """Length of the span in seconds; on a GPU this waits for its end."""
        if isinstance(self._begin, float):
            return cast(float, self._end) - self._begin
        self._end.synchronize()
        return self._begin.elapsed_time(self._end) / 1e3


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _lookups(model: nn.Module) -> Iterator[nn.Module]:
    """The modules of a sharded model that call FBGEMM, each once."""
    for module in model.modules():
        if isinstance(module, ShardedModule):
            yield from cast(list[nn.Module], getattr(module, "_lookups", ()))


def _kernel_nodes(output: object) -> list[Any]:
    """FBGEMM's autograd nodes that a lookup's output was computed by."""
    found: list[Any] = []
    nodes = {tensor.grad_fn for tensor in _tensors(output) if tensor.grad_fn is not None}
    for _ in range(DEEPEST):
        found += [node for node in nodes if LOOKUP in node.name()]
        nodes = {
            behind
            for node in nodes
            if LOOKUP not in node.name()
            for behind, _ in node.next_functions
            if behind is not None
        }
    return list(dict.fromkeys(found))


def _tensors(output: object) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    items: list[object] = []
    if isinstance(output, list | tuple):
        items = list(cast(tuple[object, ...], output))
    return [tensor for item in items for tensor in _tensors(item)]
