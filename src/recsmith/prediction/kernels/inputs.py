"""What models of kernels are told: the logarithms of a kernel's figures, and the work that bounds its time from below.

Legend: K kernels of one kind, x inputs, w figures of work.
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats
from recsmith.prediction.graph import Kernel
from recsmith.prediction.operators import WAYS

WORK = ("call", "bytes", "operations")
FLOAT_BYTES = 4
VECTORS = (8, 16)  # floats of a vector of 256 and 512 bits
LEARNED = ("gemm", "interaction", "transpose", "concat", "copy", "elementwise", "exponential", "reduction", "softmax",
           "normalisation", "sparse", "embedding_forward", "embedding_backward")  # fmt: skip


def figures_of(kind: str) -> int:
    """How many figures a shape of a kind has (operators.py)."""
    return 6 if kind == "gemm" or kind.startswith("embedding") else 5


def inputs_of(kind: str, shapes: Floats, between: Floats) -> Floats:
    """Inputs (K, x) of shapes (K, figures), which operators.py describes: logarithms of figures and work, and flags.

    between (K,): bytes that pass between two uses of a kernel's data (caches.py). Flags say which way a kernel is, and
    whether its rows are whole vectors of the processor, for which code is faster.
    """
    work = np.log(np.column_stack([work_of(kind, shapes)[:, 1:], between]) + 1)
    if kind == "gemm":
        return np.concatenate([np.log(shapes[:, :4] + 1), work, shapes[:, 4:6], _whole(shapes[:, 2:4])], axis=1)
    ways = (shapes[:, -1:] == np.arange(1, WAYS)).astype(np.float64)
    if kind.startswith("embedding"):
        return np.concatenate([_lookup_inputs(shapes), work, ways], axis=1)
    return np.concatenate([np.log(shapes[:, :-1] + 1), work, ways, _whole(shapes[:, 3:4])], axis=1)


def _lookup_inputs(shapes: Floats) -> Floats:
    """Of a table: bags, ids of a bag, columns and rows; tables; and the bytes of the rows that ids touch."""
    tables, ids, bags, columns, elements = np.maximum(shapes[:, :5].T, 1.0)
    width, rows = columns / tables, np.maximum(elements / columns, 1.0)
    touched = rows * tables * -np.expm1(-ids / tables / rows)  # of ids that are drawn evenly
    figures = (tables, bags / tables, ids / bags, width, rows, touched * width, ids / touched)
    return np.concatenate([np.log(np.stack(figures, axis=1) + 1), _whole(width[:, None])], axis=1)


def _whole(extents: Floats) -> Floats:
    """Whether extents (K, e) are multiples of so many floats (K, e * widths)."""
    return np.concatenate([(extents % width == 0) & (extents > 0) for width in VECTORS], axis=1).astype(np.float64)


def work_of(kind: str, shapes: Floats) -> Floats:
    """Calls, bytes and operations (K, w) of shapes."""
    if kind == "gemm":
        batch, m, k, n = shapes[:, :4].T
        size, operations = FLOAT_BYTES * batch * (m * k + k * n + m * n), 2 * batch * m * k * n
    elif kind.startswith("embedding"):
        tables, ids, bags, columns = shapes[:, :4].T
        width = columns / np.maximum(tables, 1)
        passes = 1 if kind == "embedding_forward" else 3  # a gradient is read, and a row read and written
        size = 8 * ids + FLOAT_BYTES * width * (passes * ids + bags)
        operations = width * ids
    else:
        size, operations = shapes[:, 0] + shapes[:, 1], shapes[:, 0] / FLOAT_BYTES
    return np.stack([np.ones(len(shapes)), size, operations], axis=1)


def shapes_of(kernels: Sequence[Kernel]) -> Floats:
    """Shapes (K, figures) of kernels of one kind."""
    return np.array([kernel.shape for kernel in kernels], dtype=np.float64)


def geometric_error(predicted: Floats, measured: Floats) -> float:
    """The geometric mean of relative errors [Lin et al.]: exp(mean(log(error))), of errors of 0.01 % at least."""
    off = np.abs(predicted / measured - 1)
    return float(np.exp(np.log(np.maximum(off, 1e-4)).mean()))
