"""The kernels that a seed measures: kinds in turn, figures spread evenly in their logarithms (no torch here)."""

import numpy as np

from recsmith._types import noun

KINDS = ("gemm", "elementwise", "gemm", "concat", "gemm", "transpose", "reduction", "interaction", "gemm", "copy",
         "exponential", "softmax", "gemm", "embedding", "normalisation", "sparse", "elementwise",
         "embedding")  # fmt: skip
MOST_FLOPS = 2e9  # of a product; larger ones take a tenth of a second of a core
VECTOR = 16  # floats
ELEMENTS = (64, 4e6)  # of a tensor
MOST_IDS, MOST_ROWS = 400_000, 2_000_000  # of all tables of a lookup


@noun
class KernelCase:
    """A kernel to measure. figures: what its kind needs to build the tensors; way: which of its operators."""

    kind: str
    figures: tuple[int, ...]
    way: int


def draw_case(seed: int, number: int) -> KernelCase:
    """The case of a number."""
    draws = np.random.default_rng((seed, number))
    kind = KINDS[number % len(KINDS)]
    way = int(draws.integers(0, 6))

    def between(low: float, high: float) -> int:
        return max(1, round(float(np.exp(draws.uniform(np.log(low), np.log(high))))))

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
                return KernelCase(kind=kind, figures=figures, way=way % 3)
    if kind == "embedding":
        tables, width = between(1, 24), 4 * -(-extent(4, 128) // 4)
        bags = between(32, 8192)
        pooling = min(between(1, 40), max(1, MOST_IDS // (tables * bags)))
        return KernelCase(kind=kind, figures=(tables, width, bags, pooling, between(100, MOST_ROWS // tables)), way=way)
    total = between(*ELEMENTS)
    if kind == "interaction":
        features = between(4, 40)
        return KernelCase(kind=kind, figures=(max(1, total // features**2), features), way=way)
    columns = extent(4, 1024)
    pieces = between(2, 32) if kind == "concat" else between(2, 64)
    return KernelCase(kind=kind, figures=(max(2, total // columns), columns, pieces), way=way)
