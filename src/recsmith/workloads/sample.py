"""Sampled workloads: tables like those of a production model, any number of them."""

import math
from typing import cast

from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.units import format_size
from recsmith.workloads.access import AccessProfile
from recsmith.workloads.optimizers import OPTIMIZERS, OptimizerName
from recsmith.workloads.table import Feature, Table
from recsmith.workloads.table_population import table_population
from recsmith.workloads.workload import MOST_TABLES, Workload

LARGEST_SEED = 2**63
BATCH_SIZE = 8192  # samples of a device and step, unless another is given
POOL_TABLES, POOL_SEED = 856, 0  # of the pool that benchmarks share: as many tables as Meta's published data set has
POOL_SHA256 = "da9ccc7fe032212430b185b45dcf5614dfe27916382adc45ddccd40d7cc3cc1f"
"""SHA-256 of the file that `recsmith workload sample --tables 856 --seed 0` prints."""


def sample_workload(
    tables: int,
    seed: int,
    *,
    max_bytes: int | None = None,
    batch_size: int = BATCH_SIZE,
    optimizer: str = "rowwise_adagrad",
) -> Workload:
    """A workload of tables like those of a production model: rows, dims, pooling factors and Zipf exponents.

    The same seed gives the same tables on every machine, and the first tables of a longer sample are those of a shorter
    one. Tables are fp32, sum-pooled, with one pooling a sample. Tables above `max_bytes` of weights are passed over.

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
    if not 0 <= seed < LARGEST_SEED:
        raise UsageError(f"seed is {seed}; it must be 0 or more, and below 2^63")
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
