"""The kernels that a seed measures: kinds in turn, figures spread evenly in their logarithms (no torch here)."""

import numpy as np

from recsmith._types import noun

KINDS = ("gemm", "elementwise", "gemm", "concat", "gemm", "transpose", "reduction", "interaction", "gemm", "copy",
         "exponential", "softmax", "gemm", "embedding", "normalisation", "sparse", "elementwise",
         "embedding")  # fmt: skip
MOST_FLOPS = 2e9  # of a product; larger ones take a tenth of a second of a core
VECTOR = 16  # floats
ELEMENTS = (64, 4e6)  # of a tensor
BETWEEN = (2**18, 2**26)  # bytes: from what stays in the nearest caches to twice a last cache of 32 MiB
MOST_IDS, MOST_ROWS = 400_000, 2_000_000  # of all tables of a lookup


@noun
class KernelCase:
    """A kernel to measure. figures: what its kind needs to build the tensors; way: which of its operators.

    between: bytes of other data that pass before each run.
    """

    kind: str
    figures: tuple[int, ...]
    way: int
    between: int


def draw_case(seed: int, number: int) -> KernelCase:
    """The case of a number."""
    draws = np.random.default_rng((seed, number))
    kind = KINDS[number % len(KINDS)]
    way, between = int(draws.integers(0, 6)), _evenly(draws, *BETWEEN)
    figures = _figures(kind, draws)
    return KernelCase(kind=kind, figures=figures, way=way % 3 if kind == "gemm" else way, between=between)


def _evenly(draws: np.random.Generator, low: float, high: float) -> int:
    """A whole number whose logarithm is drawn evenly."""
    return max(1, round(float(np.exp(draws.uniform(np.log(low), np.log(high))))))


def _figures(kind: str, draws: np.random.Generator) -> tuple[int, ...]:
    def between(low: float, high: float) -> int:
        return _evenly(draws, low, high)

    def extent(low: float, high: float) -> int:
        """As models have them: half of all are whole vectors of the processor, for which code is faster."""
        found = between(low, high)
        return max(VECTOR, found - found % VECTOR) if draws.random() < 0.5 else found

    if kind == "gemm":
        while True:
            batch = between(2, 4096) if draws.random() < 0.25 else 1
            figures = (batch, *((extent(4, 128), extent(4, 128), extent(4, 128)) if batch > 1
                                else (extent(8, 16384), extent(4, 2048), extent(1, 2048))))  # fmt: skip
            if 2.0 * np.prod(figures) <= MOST_FLOPS:
                return figures
    if kind == "embedding":
        tables, width = between(1, 24), 4 * -(-extent(4, 128) // 4)
        bags = between(32, 8192)
        pooling = min(between(1, 40), max(1, MOST_IDS // (tables * bags)))
        return tables, width, bags, pooling, between(100, MOST_ROWS // tables)
    total = between(*ELEMENTS)
    if kind == "interaction":
        features = between(4, 40)
        return max(1, total // features**2), features
    columns = extent(4, 1024)
    pieces = between(2, 32) if kind == "concat" else between(2, 64)
    return max(2, total // columns), columns, pieces
