"""A step that is put together from layers: each adds its operators now, and those of backward when that is asked for.

The operators and their order are those that torch 2.13 runs on CPU under DistributedDataParallel with plain SGD, as its
profiler shows them.
"""

from collections.abc import Callable
from typing import NamedTuple

from recsmith.prediction.graph import Kernel, Kind

FLOAT = 4  # bytes
FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20  # bytes of gradients that DistributedDataParallel reduces at once
GRADIENT = "torch::autograd::AccumulateGrad"


class Meet(NamedTuple):
    """The start of a collective (ISSUE), or a wait for it (AWAIT)."""

    kind: Kind
    collective: int


Part = Kernel | Meet


class Op(NamedTuple):
    """An operator of the top level and what it does, in order."""

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
        """Add operators that do no work: 'view to' are aten::view and aten::to."""
        for name in names.split():
            self.op(f"aten::{name}")

    def then_backward(self, call: Callable[[], None]) -> None:
        """Add operators in backward, before those of what was added earlier."""
        self._backward.append(call)

    def backward(self) -> None:
        """Add the operators of backward."""
        while self._backward:
            self._backward.pop()()

    def start(self, name: str, size: float) -> Meet:
        """A collective that begins."""
        self.collectives.append((name, size))
        return Meet(Kind.ISSUE, len(self.collectives) - 1)

    def gradient(self, elements: int) -> None:
        """The gradient of a parameter is ready; where a bucket is full, it is reduced over ranks."""
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
        """Reduce what is left, wait for all gradients, and step plain SGD. copied: buckets are copied to gradients."""
        if self._bucket:
            self._reduce()
        for place, _ in enumerate(self.parameters):
            waits = [Meet(Kind.AWAIT, each) for each in self._buckets] if place == 0 else []
            self.op("aten::as_strided", *waits)
        for elements in self.parameters:
            if copied:
                self.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", moved("copy", elements, elements))
            else:
                self.arrange("select item")
        for elements in reversed(self.parameters):
            self.op("aten::add_", moved("elementwise", 2 * elements, elements, 2))


def moved(kind: str, read: float, written: float, pieces: float = 1, *, run: float = 0, way: float = 0) -> Kernel:
    """A kernel that moves so many elements of fp32. run, way: as operators.py has them."""
    return Kernel(kind, (FLOAT * float(read), FLOAT * float(written), float(pieces), float(run), float(way)))


def summed(rows: float, columns: float) -> Kernel:
    """A sum over rows."""
    return moved("reduction", rows * columns, columns, rows, run=columns)


def gemm(batch: int, m: int, k: int, n: int, left: int = 0, right: int = 0) -> Kernel:
    """A product."""
    return Kernel("gemm", (float(batch), float(m), float(k), float(n), float(left), float(right)))
