"""The population that sampled tables are drawn from, distilled from a public sharding report.

The figures are in population.yaml; `benchmarks/table_population.py` distils them and shows how well they fit.

Legend: N tables, n tables of a kind, Q quantile levels.
"""

import math
from functools import cache
from importlib import resources
from statistics import NormalDist

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.files import decode, parse_yaml
from recsmith.workloads.table import ELEMENT_BYTES

STRIDES = 1.1673039782614187 ** -np.arange(1.0, 5.0)  # per table, of its kind, dim, rows and pooling: powers of the
# root of x^5 = x + 1 (Roberts' extension of the golden ratio), whose multiples fill the cube evenly
LEAST_POOLING = 1e-3  # ids per sample; the report rounds to three decimals, so its 0.000 stands for less than this
SMALLEST = 2.0**-53  # in place of a uniform number of 0, which has no normal quantile


@noun
class TableKind:
    """Tables of some dims: how many of each the report has, and the quantiles of their rows and pooling factors.

    rows, pooling: (Q,) quantiles at even levels from 0 to 1; between them their logarithms are interpolated.
    correlation: of the Gaussian copula that couples rows and pooling.
    """

    dims: tuple[int, ...]
    tables: tuple[int, ...]
    correlation: float
    rows: tuple[float, ...]
    pooling: tuple[float, ...]

    def draw(self, uniform: Floats) -> Floats:
        """Rows, dims and pooling factors (3, n) from (n, 3) uniform numbers."""
        dims = np.array(self.dims)[_choose(self.tables, uniform[:, 0])]
        rows = np.rint(_quantile(self.rows, uniform[:, 1]))
        pooling = _quantile(self.pooling, _couple(uniform[:, 1], uniform[:, 2], self.correlation))
        return np.stack([rows, dims, np.maximum(np.round(pooling, 3), LEAST_POOLING)])


@noun
class AccessRule:
    """The Zipf exponent of a table, from how often a batch of `batch_size` samples reads its rows on average.

    zipf = intercept - slope * log10(ids of the batch / rows), limited to lowest .. highest. That exponents follow
    the reads per row is assumed, not measured; the numbers are fitted to published counts of whole batches.
    """

    batch_size: int
    intercept: float
    slope: float
    lowest: float
    highest: float

    def zipf(self, rows: Floats, pooling: Floats) -> Floats:
        """Exponents (N,), in steps of 0.001, of rows and pooling factors (N,)."""
        exponents = self.intercept - self.slope * np.log10(self.batch_size * pooling / rows)
        return np.round(np.clip(exponents, self.lowest, self.highest), 3)


@noun
class TablePopulation:
    """The tables of a production model, as distributions that tables are drawn from."""

    source: str
    kinds: tuple[TableKind, ...]
    access: AccessRule

    def draw(self, uniform: Floats) -> Floats:
        """Rows, dims and pooling factors (3, n) from (n, 4) uniform numbers."""
        drawn = np.empty((3, len(uniform)))
        kinds = _choose([sum(kind.tables) for kind in self.kinds], uniform[:, 0])
        for index, kind in enumerate(self.kinds):
            of_kind = kinds == index
            drawn[:, of_kind] = kind.draw(uniform[of_kind, 1:])
        return drawn

    def sample(self, tables: int, seed: int, max_bytes: float = math.inf) -> Floats:
        """Rows, dims and pooling factors (3, N) of the first N tables of a seed that weigh at most max_bytes."""
        shift = np.random.default_rng(seed).random(len(STRIDES))
        sampled, tried = np.empty((3, 0)), 0
        while sampled.shape[1] < tables:
            drawn = self.draw((shift + np.outer(np.arange(tried, tried + tables), STRIDES)) % 1.0)
            light = drawn[0] * drawn[1] * ELEMENT_BYTES["fp32"] <= max_bytes
            sampled, tried = np.concatenate([sampled, drawn[:, light]], axis=1), tried + tables
        return sampled[:, :tables]

    @property
    def least_bytes(self) -> int:
        """fp32 bytes of the smallest table that can be drawn."""
        return min(round(min(kind.rows)) * min(kind.dims) for kind in self.kinds) * ELEMENT_BYTES["fp32"]


@cache
def table_population() -> TablePopulation:
    """The population that ships with RecSmith (population.yaml)."""
    file = resources.files("recsmith.workloads") / "population.yaml"
    return decode(TablePopulation, parse_yaml(file.read_text("utf-8"), file.name), file.name)


def _choose(weights: tuple[int, ...] | list[int], uniform: Floats) -> Ints:
    """Positions in `weights` (n,), each as often as its weight says, from uniform numbers (n,)."""
    shares: Ints = np.cumsum(weights)
    return np.searchsorted(shares, uniform * float(shares[-1]), side="right").astype(np.int64)


def _quantile(values: tuple[float, ...], level: Floats) -> Floats:
    """The value at each level (n,): logarithms of the quantiles are interpolated linearly."""
    return np.exp(np.interp(level, np.linspace(0.0, 1.0, len(values)), np.log(values)))


def _couple(first: Floats, second: Floats, correlation: float) -> Floats:
    """Uniform numbers (n,), coupled to `first` by a Gaussian copula."""
    normal = NormalDist()
    score = correlation * _scores(first) + np.sqrt(1 - correlation**2) * _scores(second)
    return np.array([normal.cdf(each) for each in score.tolist()])


def _scores(uniform: Floats) -> Floats:
    """Standard normal quantiles (n,) of uniform numbers; 0 is taken as the smallest number that is drawn."""
    normal = NormalDist()
    return np.array([normal.inv_cdf(each) for each in np.maximum(uniform, SMALLEST).tolist()])
