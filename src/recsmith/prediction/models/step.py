"""Builds a step from layers: each adds its forward operators now, and its backward operators when those are built.

The operators and their order are those that torch 2.13 runs on CPU under DistributedDataParallel with plain SGD, as its
profiler shows them.

Legend: B rows, i columns in, o columns out.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from recsmith.prediction.graph import KernelShape, Kind

FLOAT = 4  # bytes
FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20  # bytes of gradients that DistributedDataParallel reduces at once
GRADIENT = "torch::autograd::AccumulateGrad"


class CollectiveMark(NamedTuple):
    """The start of a collective (ISSUE), or a wait for it (AWAIT)."""

    kind: Kind
    collective: int


Part = KernelShape | CollectiveMark


class Op(NamedTuple):
    """An operator of the top level, with its kernels and collectives in order."""

    name: str
    parts: tuple[Part, ...] = ()


class Step:
    """The operators of a rank's step so far, its collectives (name, bytes), and its parameters' elements."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.collectives: list[tuple[str, float]] = []
        self.parameters: list[int] = []
        self._backward: list[Callable[[], None]] = []
        self._bucket, self._buckets = 0, list[int]()

    def op(self, name: str, *parts: Part) -> None:
        """Add an operator."""
        self.ops.append(Op(name, parts))

    def arrange(self, names: str) -> None:
        """Add operators that do no work: 'view to' adds aten::view and aten::to."""
        for name in names.split():
            self.op(f"aten::{name}")

    def then_backward(self, call: Callable[[], None]) -> None:
        """Register a function that adds backward operators; later registrations run first."""
        self._backward.append(call)

    def backward(self) -> None:
        """Add the operators of the backward pass."""
        while self._backward:
            self._backward.pop()()

    def start(self, name: str, size: float) -> CollectiveMark:
        """Start a collective of `size` bytes; returns its mark."""
        self.collectives.append((name, size))
        return CollectiveMark(Kind.ISSUE, len(self.collectives) - 1)

    def gradient(self, elements: int) -> None:
        """Add the gradient of a parameter; a full bucket of gradients is reduced over ranks."""
        self.parameters.append(elements)
        self.op(GRADIENT, moved("elementwise", 2 * elements, elements, 2))
        self._bucket += elements * FLOAT
        if self._bucket >= (BUCKET if self._buckets else FIRST_BUCKET):
            self._reduce()

    def _reduce(self) -> None:
        last = next(i for i in reversed(range(len(self.ops))) if self.ops[i].name == GRADIENT and self.ops[i].parts)
        begun = self.start("all_reduce", self._bucket)
        self.ops[last] = self.ops[last]._replace(parts=(*self.ops[last].parts, begun))
        self._buckets.append(begun.collective)
        self._bucket = 0

    def finish(self, *, copied: bool) -> None:
        """Reduce the last gradients, wait for all, and step plain SGD. copied: buckets are copied to gradients."""
        if self._bucket:
            self._reduce()
        for place, _ in enumerate(self.parameters):
            waits = [CollectiveMark(Kind.AWAIT, each) for each in self._buckets] if place == 0 else []
            self.op("aten::as_strided", *waits)
        for elements in self.parameters:
            if copied:
                self.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", moved("copy", elements, elements))
            else:
                self.arrange("select item")
        for elements in reversed(self.parameters):
            self.op("aten::add_", moved("elementwise", 2 * elements, elements, 2))


def moved(kind: str, read: float, written: float, pieces: float = 1, *, run: float = 0, way: float = 0) -> KernelShape:
    """A kernel that moves these elements of fp32. run, way: as operators.py defines them."""
    return KernelShape(kind, (FLOAT * float(read), FLOAT * float(written), float(pieces), float(run), float(way)))


def summed(rows: float, columns: float) -> KernelShape:
    """A sum over rows."""
    return moved("reduction", rows * columns, columns, rows, run=columns)


def gemm(batch: int, m: int, k: int, n: int, left: int = 0, right: int = 0) -> KernelShape:
    """A matrix product."""
    return KernelShape("gemm", (float(batch), float(m), float(k), float(n), float(left), float(right)))


def linear(step: Step, rows: int, inward: int, outward: int, *, first: bool = False, folded: bool = False) -> None:
    """A linear layer (B, i) -> (B, o). first: its input needs no gradient. folded: inputs have more than two axes."""
    step.op("aten::linear", gemm(1, rows, inward, outward, 0, 1))

    def backward() -> None:
        inputs = [] if first else [gemm(1, rows, outward, inward)]
        weights = gemm(1, outward, rows, inward, int(outward > 1))
        if folded:
            step.op("ViewBackward0")
        step.op("AddmmBackward0", *inputs, weights, summed(rows, outward))
        step.gradient(outward)
        step.op("TBackward0")
        step.gradient(inward * outward)
        if folded:
            step.op("ViewBackward0")

    step.then_backward(backward)


def plain_product(step: Step, rows: int, inward: int, outward: int, extra: tuple[KernelShape, ...] = ()) -> None:
    """A linear layer without bias. extra: last kernels of its backward pass, such as sums of gradients."""
    step.op("aten::linear", gemm(1, rows, inward, outward, 0, 1))

    def backward() -> None:
        step.op("MmBackward0", gemm(1, outward, rows, inward, 1), gemm(1, rows, outward, inward), *extra)
        step.op("TBackward0")
        step.gradient(inward * outward)

    step.then_backward(backward)


def relu(step: Step, elements: int) -> None:
    """A rectifier."""
    step.op("aten::relu", moved("elementwise", elements, elements, way=2))
    step.then_backward(lambda: step.op("ReluBackward0", moved("elementwise", 2 * elements, elements, 2, way=2)))


def perceptron(step: Step, rows: int, sizes: tuple[int, ...], *, first: bool = False, last_relu: bool = False) -> None:
    """Linear layers with a rectifier between them, and after the last one if last_relu."""
    for place, (inward, outward) in enumerate(pairwise(sizes)):
        linear(step, rows, inward, outward, first=first and place == 0)
        if last_relu or place < len(sizes) - 2:
            relu(step, rows * outward)


def loss(step: Step, rows: int) -> None:
    """Binary cross entropy of logits (B, 1), and the start of the backward pass."""
    step.arrange("squeeze")

    def small(read: int) -> KernelShape:
        return moved("elementwise", read * rows, rows, read)

    logs = moved("exponential", rows, rows)
    step.op("aten::binary_cross_entropy_with_logits", logs, moved("copy", 0, rows), small(2), small(2), small(2),
            moved("reduction", rows, 1, rows, run=rows), small(1))  # fmt: skip
    step.op("aten::ones_like", moved("copy", 0, 1))
    step.op("BinaryCrossEntropyWithLogitsBackward0", logs, small(2), small(1), small(1))
    step.op("SqueezeBackward1")


def layer_norm(step: Step, rows: int, width: int, *, adds: bool) -> None:
    """A normalisation of (B, width). adds: its input's gradient is added to that of a shortcut."""
    whole = rows * width
    step.op("aten::layer_norm", moved("normalisation", whole + 2 * width, whole, 3, run=width))

    def backward() -> None:
        sums = [moved("elementwise", 2 * whole, whole, 2)] if adds else []
        step.op("NativeLayerNormBackward0", moved("normalisation", 2 * whole + 2 * rows + 2 * width, whole, 6,
                                                     run=width, way=1), *sums)  # fmt: skip
        step.gradient(width)
        step.gradient(width)

    step.then_backward(backward)


def shortcut(step: Step, elements: int) -> None:
    """A sum with an earlier output."""
    step.op("aten::add", moved("elementwise", 2 * elements, elements, 2))
    step.then_backward(lambda: step.op("AddBackward0"))
