"""Models of single kernels: a roofline, which a small network corrects by a bounded factor.

    seconds = (latency + bytes / bandwidth + operations / peak) * exp(BEND * tanh(network(inputs) / BEND))

Beyond the measured range, inputs of the network are clipped and its factor is bounded, so the roofline decides. Lin et
al. (HiPC 2022) predict the logarithm of seconds by a network alone.

The prediction also depends on how cold a kernel's data is. A product of two tensors of 1 MB takes 21 µs right after
another one, and 57 µs if 64 MB passed through a cache of 32 MB in between. So kernels are measured after other data has
passed, and predicted by the bytes that pass in a step. For lookups these are all data of the step, since a step uses a
row of a table once. For other kernels they are the geometric mean of the kernel's own data and all data of the step,
since some of its tensors were made by the kernel before, and others (weights, outputs kept for the backward pass) long
ago.

Legend: K kernels of one kind, x inputs, w figures of work.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.prediction.graph import KernelShape, Tape
from recsmith.prediction.operators import WAYS

WORK = ("call", "bytes", "operations")
FLOAT_BYTES = 4
VECTORS = (8, 16)  # floats of a vector of 256 and 512 bits
LEARNED = ("gemm", "interaction", "transpose", "concat", "copy", "elementwise", "exponential", "reduction", "softmax",
           "normalisation", "sparse", "embedding_forward", "embedding_backward")  # fmt: skip


def figures_of(kind: str) -> int:
    """Number of figures in the shape of a kind (operators.py)."""
    return 6 if kind == "gemm" or kind.startswith("embedding") else 5


def inputs_of(kind: str, shapes: Floats, between: Floats) -> Floats:
    """Inputs (K, x) from shapes (K, figures), which operators.py describes: logarithms of figures and work, and flags.

    between (K,): bytes that pass between two uses of a kernel's data. Flags give the kernel's `way`, and whether its
    rows are whole vectors of the processor, for which code is faster.
    """
    work = np.log(np.column_stack([work_of(kind, shapes)[:, 1:], between]) + 1)
    if kind == "gemm":
        return np.concatenate([np.log(shapes[:, :4] + 1), work, shapes[:, 4:6], _whole(shapes[:, 2:4])], axis=1)
    ways = (shapes[:, -1:] == np.arange(1, WAYS)).astype(np.float64)
    if kind.startswith("embedding"):
        return np.concatenate([_lookup_inputs(shapes), work, ways], axis=1)
    return np.concatenate([np.log(shapes[:, :-1] + 1), work, ways, _whole(shapes[:, 3:4])], axis=1)


def _lookup_inputs(shapes: Floats) -> Floats:
    """Inputs of lookups, per table: bags, ids of a bag, columns and rows; then tables, and bytes of the rows read."""
    tables, ids, bags, columns, elements = np.maximum(shapes[:, :5].T, 1.0)
    width, rows = columns / tables, np.maximum(elements / columns, 1.0)
    touched = rows * tables * -np.expm1(-ids / tables / rows)  # distinct rows among ids that are drawn evenly
    figures = (tables, bags / tables, ids / bags, width, rows, touched * width, ids / touched)
    return np.concatenate([np.log(np.stack(figures, axis=1) + 1), _whole(width[:, None])], axis=1)


def _whole(extents: Floats) -> Floats:
    """Flags (K, e * widths): whether extents (K, e) are multiples of each number of floats in VECTORS."""
    return np.concatenate([(extents % width == 0) & (extents > 0) for width in VECTORS], axis=1).astype(np.float64)


def work_of(kind: str, shapes: Floats) -> Floats:
    """Calls, bytes and operations (K, w) of kernels with these shapes."""
    if kind == "gemm":
        batch, m, k, n = shapes[:, :4].T
        size, operations = FLOAT_BYTES * batch * (m * k + k * n + m * n), 2 * batch * m * k * n
    elif kind.startswith("embedding"):
        tables, ids, bags, columns = shapes[:, :4].T
        width = columns / np.maximum(tables, 1)
        passes = 1 if kind == "embedding_forward" else 3  # backward, a gradient is read, and a row read and written
        size = 8 * ids + FLOAT_BYTES * width * (passes * ids + bags)
        operations = width * ids
    else:
        size, operations = shapes[:, 0] + shapes[:, 1], shapes[:, 0] / FLOAT_BYTES
    return np.stack([np.ones(len(shapes)), size, operations], axis=1)


def shapes_of(kernels: Sequence[KernelShape]) -> Floats:
    """Shapes (K, figures) of kernels of one kind."""
    return np.array([kernel.shape for kernel in kernels], dtype=np.float64)


def geometric_error(predicted: Floats, measured: Floats) -> float:
    """Geometric mean of relative errors [Lin et al.]: exp(mean(log(error))); each error counts as 0.01 % at least."""
    off = np.abs(predicted / measured - 1)
    return float(np.exp(np.log(np.maximum(off, 1e-4)).mean()))


BEND = 1.5  # the network changes a roofline by a factor of at most e ** BEND = 4.5
REACH = 3.0  # standard deviations at which inputs are clipped
LAYERS = 3


@dataclass(frozen=True)
class KernelModel:
    """The model of a kind: log cost of each figure of work (w,), inputs' centre and spread (x,), and layers."""

    kind: str
    base: Floats
    centre: Floats
    spread: Floats
    layers: tuple[tuple[Floats, Floats], ...]

    def seconds(self, shapes: Floats, between: Floats) -> Floats:
        """Seconds (K,) of kernels of shapes (K, figures), with `between` (K,) bytes of other data before each."""
        flow = np.clip((inputs_of(self.kind, shapes, between) - self.centre) / self.spread, -REACH, REACH)
        for weight, bias in self.layers[:-1]:
            flow = np.maximum(flow @ weight.T + bias, 0.0)
        weight, bias = self.layers[-1]
        bent = BEND * np.tanh((flow @ weight.T + bias)[:, 0] / BEND)
        return self.roofline(shapes) * np.exp(bent)

    def roofline(self, shapes: Floats) -> Floats:
        """Seconds (K,) without the network's factor."""
        return work_of(self.kind, shapes) @ np.exp(self.base)


@dataclass(frozen=True)
class Kernels:
    """The kernel models of a machine. factors: factors of a calibration, by kind."""

    models: dict[str, KernelModel]
    factors: dict[str, float]

    def seconds(self, kernels: Sequence[KernelShape]) -> Floats:
        """Seconds (K,) of kernels of any kinds; kinds without a model take the roofline of element-wise operators."""
        found = np.zeros(len(kernels))
        places: dict[str, list[int]] = {}
        for place, kernel in enumerate(kernels):
            places.setdefault(kernel.kind, []).append(place)
        for kind, chosen in places.items():
            shapes, model = shapes_of([kernels[i] for i in chosen]), self.models.get(kind)
            plain, between = self.models["elementwise"], np.array([kernels[i].between for i in chosen])
            found[chosen] = model.seconds(shapes, between) if model else plain.roofline(_moved(kind, shapes))
            found[chosen] *= self.factors.get(kind, 1.0) * np.array([kernels[i].share for i in chosen])
        return found

    def unknown(self, kernels: Sequence[KernelShape]) -> dict[str, int]:
        """Kinds without a model, and the number of kernels of each."""
        kinds = [kernel.kind for kernel in kernels if kernel.kind not in self.models]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def _moved(kind: str, shapes: Floats) -> Floats:
    """Shapes (K, 5) of kernels of which only the bytes are known."""
    size = work_of(kind, shapes)[:, 1]
    read = shapes[:, 0] if figures_of(kind) == 5 else size / 2
    return np.stack([read, size - read, np.ones_like(size), np.zeros_like(size), np.zeros_like(size)], axis=1)


USES = 2  # each result is read by another kernel, so a step has half as much data as its kernels move
LOOKUPS = ("embedding_forward", "embedding_backward")


def within_step(kernels: Sequence[KernelShape]) -> list[KernelShape]:
    """All kernels of a rank's step, each with the bytes that pass between two uses of its data."""
    own = [float(work_of(kernel.kind, shapes_of([kernel]))[0, 1]) * kernel.share for kernel in kernels]
    whole = sum(own) / USES
    return [
        kernel._replace(between=whole if kernel.kind in LOOKUPS else math.sqrt(min(mine, whole) * whole))
        for kernel, mine in zip(kernels, own, strict=True)
    ]


def with_caches(tape: Tape) -> Tape:
    """A rank's tape, each of whose kernels has the bytes that pass between two uses of its data."""
    kernels = iter(within_step([event.kernel for event in tape if event.kernel is not None]))
    return tuple(event if event.kernel is None else event._replace(kernel=next(kernels)) for event in tape)
