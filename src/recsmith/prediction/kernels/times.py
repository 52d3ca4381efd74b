"""The kernels that a seed measures, and the file of their times (no torch here).

Kinds are measured in turn, with figures that are evenly distributed in their logarithms. `recsmith measure kernels`
writes the file, and `recsmith learn kernels` reads it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._types import Source, noun
from recsmith.errors import UsageError, check_rules
from recsmith.files import check_schema, decode, dump_json, encode, read_json, source_text, write_text
from recsmith.prediction.kernels import figures_of
from recsmith.prediction.operators import KINDS

LEAST_SECONDS = 1e-9  # the shortest valid time of a kernel or a collective
TIMES_SCHEMA = "recsmith/kernel-times/1"


@noun
class KernelTime:
    """A kernel and its seconds. shape: as prediction/operators.py defines it; between: bytes that passed before."""

    kind: str
    shape: tuple[float, ...]
    seconds: float
    between: float = 0.0

    def __post_init__(self) -> None:
        figures = figures_of(self.kind)
        check_rules(
            None if self.kind in KINDS else f"kind '{self.kind}' is not known; known are {', '.join(KINDS)}",
            None if len(self.shape) == figures and all(0 <= each < 1e18 for each in self.shape)
            else f"a kernel of kind {self.kind} has {figures} figures of 0 or more",
            None if 0 <= self.between < 1e18 else f"bytes between two runs are {self.between}; they must be 0 or more",
            None if LEAST_SECONDS <= self.seconds < 1e6
            else f"a kernel took {self.seconds} seconds; it must be a nanosecond or more",
        )  # fmt: skip


@noun
class CollectiveTime:
    """A collective and its seconds on the rank that arrived last."""

    name: str
    ranks: int
    bytes: float
    seconds: float

    def __post_init__(self) -> None:
        check_rules(
            None
            if LEAST_SECONDS <= self.seconds < 1e6
            else f"{self.name} took {self.seconds} seconds; it must be a nanosecond or more",
            None if 0 < self.bytes < 1e18 else f"bytes of {self.name} are {self.bytes}; they must be above 0",
        )


@noun
class KernelMeasurements:
    """Times measured on a device. cases: number of measured cases, including those that something disturbed."""

    device: str
    versions: str
    seed: int
    kernels: tuple[KernelTime, ...]
    collectives: tuple[CollectiveTime, ...] = ()
    cases: int = 0


def load_times(source: Source) -> KernelMeasurements:
    """The kernel times in a file; UsageError or CorruptFile if it holds none."""
    name = source_text(source, "kernel times")
    raw: Any = read_json(name)
    if not isinstance(raw, dict):
        raise UsageError(f"'{name}' holds no kernel times; `recsmith measure kernels` makes them")
    return decode(KernelMeasurements, check_schema(raw, TIMES_SCHEMA, name), name)


def save_times(times: KernelMeasurements, target: Path) -> None:
    """Write a file of kernel times, completely or not at all."""
    write_text(str(target), dump_json({"schema": TIMES_SCHEMA, **encode(times)}))


TURNS = ("gemm", "elementwise", "gemm", "concat", "gemm", "transpose", "reduction", "interaction", "gemm", "copy",
         "exponential", "softmax", "gemm", "embedding", "normalisation", "sparse", "elementwise",
         "embedding")  # fmt: skip
VECTOR = 16  # floats of a vector of the processor
BETWEEN = (2**18, 2**26)  # bytes: from data that fits into the nearest caches to twice a last cache of 32 MiB
MOST_IDS, MOST_ROWS = 400_000, 2_000_000  # limits of ids and rows of all tables of a lookup together


@noun
class KernelSizes:
    """The largest kernels that are measured. flops: of a product; rows: of its left side; elements: of a tensor."""

    flops: float
    rows: int
    elements: float


OF_A_CPU = KernelSizes(flops=2e9, rows=16_384, elements=4e6)  # larger products take a tenth of a second of a core
OF_A_GPU = KernelSizes(flops=2e12, rows=65_536, elements=1e8)
LEAST_ELEMENTS = 64  # fewest elements of a tensor


@noun
class KernelCase:
    """A kernel to measure. figures: sizes from which its kind builds the tensors; way: which of its operators is run.

    between: bytes of other data that pass before each run.
    """

    kind: str
    figures: tuple[int, ...]
    way: int
    between: int


def draw_case(seed: int, number: int, sizes: KernelSizes = OF_A_CPU) -> KernelCase:
    """The case with this number."""
    draws = np.random.default_rng((seed, number))
    kind = TURNS[number % len(TURNS)]
    way, between = int(draws.integers(0, 6)), _evenly(draws, *BETWEEN)
    figures = _figures(kind, draws, sizes)
    return KernelCase(kind=kind, figures=figures, way=way % 3 if kind == "gemm" else way, between=between)


def _evenly(draws: np.random.Generator, low: float, high: float) -> int:
    """A whole number whose logarithm is drawn evenly."""
    return max(1, round(float(np.exp(draws.uniform(np.log(low), np.log(high))))))


def _figures(kind: str, draws: np.random.Generator, sizes: KernelSizes) -> tuple[int, ...]:
    def between(low: float, high: float) -> int:
        return _evenly(draws, low, high)

    def extent(low: float, high: float) -> int:
        """Draw an extent as in real models: half are whole vectors of the processor, for which code is faster."""
        found = between(low, high)
        return max(VECTOR, found - found % VECTOR) if draws.random() < 0.5 else found

    if kind == "gemm":
        while True:
            batch = between(2, 4096) if draws.random() < 0.25 else 1
            figures = (batch, *((extent(4, 128), extent(4, 128), extent(4, 128)) if batch > 1
                                else (extent(8, sizes.rows), extent(4, 2048), extent(1, 2048))))  # fmt: skip
            if 2.0 * np.prod(figures) <= sizes.flops:
                return figures
    if kind == "embedding":
        tables, width = between(1, 24), 4 * -(-extent(4, 128) // 4)
        bags = between(32, 8192)
        pooling = min(between(1, 40), max(1, MOST_IDS // (tables * bags)))
        return tables, width, bags, pooling, between(100, MOST_ROWS // tables)
    total = between(LEAST_ELEMENTS, sizes.elements)
    if kind == "interaction":
        features = between(4, 40)
        return max(1, total // features**2), features
    columns = extent(4, 1024)
    pieces = between(2, 32) if kind == "concat" else between(2, 64)
    return max(2, total // columns), columns, pieces


def usual(seconds: Sequence[float]) -> float:
    """The lower quartile of repeated times: other processes only add to them, so the median is less accurate."""
    ordered = sorted(seconds)
    return ordered[(len(ordered) - 1) // 4]
