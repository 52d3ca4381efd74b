"""What models of kernels are told: the logarithms of a kernel's figures, and the work that bounds its time from below.

Legend: K kernels of one kind, x inputs, w figures of work.
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats
from recsmith.prediction.graph import Kernel

WORK = ("call", "bytes", "operations")
FLOAT_BYTES = 4
LEARNED = ("gemm", "interaction", "transpose", "concat", "copy", "elementwise", "exponential", "reduction", "softmax",
           "normalisation", "sparse", "embedding_forward", "embedding_backward")  # fmt: skip


def inputs_of(kind: str, shapes: Floats) -> Floats:
    """Inputs (K, x) of shapes (K, figures), which operators.py describes."""
    logs = np.log(shapes[:, :4] + 1 if kind == "gemm" else shapes + 1)
    work = np.log(work_of(kind, shapes)[:, 1:] + 1)
    return np.concatenate([logs, work, shapes[:, 4:6]] if kind == "gemm" else [logs, work], axis=1)


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
