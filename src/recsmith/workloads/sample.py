"""Samples workloads with any number of tables like those of a production model.

The population from which tables are drawn is distilled from a public sharding report; its figures are in
population.yaml. `benchmarks/table_population.py` distils them and shows how well they fit.

Legend: N tables, n tables of a kind, Q quantile levels.
"""

import math
from functools import cache
from importlib import resources
from statistics import NormalDist
from typing import cast

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.elementary import exp, log, log10
from recsmith.errors import LARGEST_SEED, UsageError, check_rules, outside
from recsmith.files import decode, did_you_mean, parse_yaml
from recsmith.units import format_size
from recsmith.workloads.access import AccessProfile
from recsmith.workloads.data_types import ELEMENT_BYTES
from recsmith.workloads.optimizers import OPTIMIZERS, OptimizerName
from recsmith.workloads.workload import MOST_TABLES, Feature, Table, Workload

BATCH_SIZE = 8192  # samples per device and step, unless given
POOL_TABLES, POOL_SEED = 856, 0  # pool shared by benchmarks: as many tables as in Meta's published data set
POOL_SHA256 = "da9ccc7fe032212430b185b45dcf5614dfe27916382adc45ddccd40d7cc3cc1f"
"""SHA-256 of the file that `recsmith workload sample --tables 856 --seed 0` prints."""
STRIDES = np.array([0.8566748838545029, 0.7338918566271259, 0.6287067210378086, 0.53859725722361])
"""Per table, of its kind, dim, rows and pooling: 1.1673039782614187 ** -1 .. -4, powers of the root of x^5 = x + 1
(Roberts' extension of the golden ratio), whose multiples fill the cube evenly."""
LEAST_POOLING = 1e-3  # ids per sample; the report rounds to three decimals, so its 0.000 means less than this
SMALLEST = 2.0**-53  # replaces a uniform number of 0, which has no normal quantile


def sample_workload(
    tables: int,
    seed: int,
    *,
    max_bytes: int | None = None,
    batch_size: int = BATCH_SIZE,
    optimizer: str = "rowwise_adagrad",
) -> Workload:
    """A workload of tables like those of a production model: rows, dims, pooling factors and Zipf exponents.

    The same seed gives the same tables on every machine, and a shorter sample is the beginning of a longer one. Tables
    are fp32, sum-pooled, with one pooling per sample.

    Args:
        tables: number of tables.
        seed: of the sample.
        max_bytes: tables with more bytes of weights are skipped.
        batch_size: samples per device and step.
        optimizer: name of the sparse optimizer.

    Raises:
        UsageError: tables or seed is out of range, no optimizer has that name, or no table is as small as max_bytes.
    """
    population = table_population()
    _check(tables, seed, max_bytes, population.least_bytes, optimizer)
    rows, dims, pooling = population.sample(tables, seed, math.inf if max_bytes is None else max_bytes)
    columns = zip(rows, dims, pooling, population.access.zipf(rows, pooling), strict=True)
    limit = "" if max_bytes is None else f" --max-bytes {max_bytes}B"
    return Workload(
        batch_size=batch_size,
        optimizer=cast(OptimizerName, optimizer),
        tables=tuple(_table(i, int(n), int(d), float(p), float(z)) for i, (n, d, p, z) in enumerate(columns)),
        name=f"sample-{tables}-{seed}",
        source=f"recsmith workload sample --tables {tables} --seed {seed}{limit}; {population.source}",
    )


def shared_pool() -> Workload:
    """The pool of 856 tables that benchmarks share; its file has the digest POOL_SHA256."""
    return sample_workload(POOL_TABLES, POOL_SEED)


def _check(tables: int, seed: int, max_bytes: int | None, least: int, optimizer: str) -> None:
    if not 1 <= tables <= MOST_TABLES:
        raise UsageError(f"cannot sample {tables:,} tables; ask for at least 1 and at most {MOST_TABLES:,}")
    check_rules(outside("seed", seed, 0, LARGEST_SEED))
    if optimizer not in OPTIMIZERS:
        raise UsageError(f"no optimizer is called '{optimizer}'{did_you_mean(optimizer, list(OPTIMIZERS))}")
    if max_bytes is not None and max_bytes < least:
        raise UsageError(
            f"no table takes at most {format_size(max_bytes)}: the smallest takes {format_size(least)}; allow that much"
        )


def _table(index: int, rows: int, dim: int, pooling: float, zipf: float) -> Table:
    name = f"table_{index:04d}"
    return Table(
        name=name,
        num_embeddings=rows,
        embedding_dim=dim,
        features=(Feature(name=name, pooling_factor=pooling),),
        access=AccessProfile(zipf=zipf),
    )


# --- the population --------------------------------------------------------------------------------------------------


@noun
class TableKind:
    """Tables grouped by dim: how many tables of each dim the report has, and quantiles of rows and pooling factors.

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
    """The Zipf exponent of a table, derived from the mean reads per row in a batch of `batch_size` samples.

    zipf = intercept - slope * log10(ids of the batch / rows), limited to lowest .. highest. That exponents follow the
    reads per row is assumed, not measured; the numbers are fitted to published counts of whole batches.
    """

    batch_size: int
    intercept: float
    slope: float
    lowest: float
    highest: float

    def zipf(self, rows: Floats, pooling: Floats) -> Floats:
        """Exponents (N,), in steps of 0.001, for rows and pooling factors (N,)."""
        exponents = self.intercept - self.slope * log10(self.batch_size * pooling / rows)
        return np.round(np.clip(exponents, self.lowest, self.highest), 3)


@noun
class TablePopulation:
    """The tables of a production model, as distributions from which tables are drawn."""

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
        """Rows, dims and pooling factors (3, N) of the first N tables of a seed whose weights are at most max_bytes."""
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
    """The population shipped with RecSmith (population.yaml)."""
    file = resources.files("recsmith.workloads") / "population.yaml"
    return decode(TablePopulation, parse_yaml(file.read_text("utf-8"), file.name), file.name)


def _choose(weights: tuple[int, ...] | list[int], uniform: Floats) -> Ints:
    """Positions in `weights` (n,), drawn in proportion to the weights, from uniform numbers (n,)."""
    shares: Ints = np.cumsum(weights)
    return np.searchsorted(shares, uniform * float(shares[-1]), side="right").astype(np.int64)


def _quantile(values: tuple[float, ...], level: Floats) -> Floats:
    """The value at each quantile level (n,); the logarithms of the quantiles are interpolated linearly."""
    return exp(np.interp(level, np.linspace(0.0, 1.0, len(values)), log(values)))


def _couple(first: Floats, second: Floats, correlation: float) -> Floats:
    """Uniform numbers (n,) coupled to `first` by a Gaussian copula."""
    normal = NormalDist()
    score = correlation * _scores(first) + np.sqrt(1 - correlation**2) * _scores(second)
    return np.array([normal.cdf(each) for each in score.tolist()])


def _scores(uniform: Floats) -> Floats:
    """Standard normal quantiles (n,) of uniform numbers; 0 is replaced by the smallest number that can be drawn."""
    normal = NormalDist()
    return np.array([normal.inv_cdf(each) for each in np.maximum(uniform, SMALLEST).tolist()])
