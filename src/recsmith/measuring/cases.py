"""The cases of a seed: random fusion groups whose work is evenly distributed in its logarithm.

Tables come from the shared pool of 856 (pool.csv, which `recsmith workload sample --tables 856` gives) and are
augmented: each figure is either the pool's, multiplied by a factor of up to 4 in either direction, or drawn from the
whole allowed range. A work is drawn first, then the batch size that reaches it. A case depends only on the seed and its
number, on any machine. Work counts rows of 64 columns: (ids + bags) * (1 + dim / 64) / 2, times a factor for optimizers
and data types that are slower in FBGEMM's CPU kernels. It controls what is drawn and is no cost model: a row takes 0.04
to 0.15 us of a core.

Legend: N tables drawn, before those that do not fit are left out; 856 tables of the pool.
"""

import csv
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import get_args

import numpy as np

from recsmith._types import Floats, record
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.hardware import Case, CaseScale
from recsmith.hardware.case import CASES, Draw, KeyedRandom
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.data_types import DataType
from recsmith.workloads.optimizers import CPU_OPTIMIZERS, OPTIMIZERS, OptimizerName

EVERY = 10  # nine new cases, then a revisit. Trade-off: more revisits measure the noise better, cost new cases


def case_of(place: int) -> tuple[int, int]:
    """(number of the case, how often it was sampled before) at a place of the run, counted from 0.

    Every tenth place is a case from half as far into the run.
    """
    ten, digit = divmod(place, EVERY)
    if digit < EVERY - 1:
        return ten * (EVERY - 1) + digit, 0
    return ten // 2 * (EVERY - 1) + ten % 2, 1


MOST_ROWS = 2_000_000  # most rows of a table of scale cpu; one of 128 columns nearly fills the weights of a case
LEAST_POOLING = 1e-3  # ids per bag; the pool is rounded to three decimals, and less than ten times this counts as 0
LEAST_DRAWN_POOLING = 0.1  # ids per bag, for pooling factors that are not the pool's
MOST_ZIPF = 1.6  # exponent; those of the pool are between 0.3 and 1.0
STRETCH = 4.0  # largest factor, in either direction, for rows and pooling factors of the pool
HIGH_EVERY = 5  # every fifth case is drawn from the upper quarter of the work, for more large groups
DATA_TYPES: tuple[DataType, ...] = ("fp32", "fp16")
WORK_COLUMNS = 64  # columns of the rows that count work: half of a row's work does not depend on its columns
FEW_TABLES = 4  # most tables of a case of draw `few`
COLD_ROWS, COLD_POOLING, COLD_ZIPF = 100_000, 20.0, 0.6  # cold tables: fewest rows and ids per bag, largest exponent
SHARED_ELEMENTS = (2**19, 2**26)  # elements of a table that shares a cache: 2 to 256 MiB in fp32
SHARED_POOLING, SHARED_ZIPF = 20.0, 0.8  # for tables that share a cache: fewest ids per bag, largest exponent
NARROW_DIM = 32  # most columns of the tables of a narrow case, as column splits leave them of wide tables
SLOWER = {"adagrad": 3.5, "fp16": 2.0}  # work relative to sgd, rowwise_adagrad and fp32; measured on one core


@record
class Cases:
    """All cases of a seed at a scale."""

    seed: int
    scale: CaseScale
    optimizers: tuple[OptimizerName, ...] = CPU_OPTIMIZERS
    data_types: tuple[DataType, ...] = DATA_TYPES

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed is {self.seed}; it must be at least 0 and below 2^63")
        _check_names(self.optimizers, tuple(OPTIMIZERS), "optimizer")
        _check_names(self.data_types, get_args(DataType), "data type")

    @property
    def planned(self) -> str:
        """Empty: cases are drawn without a cost model."""
        return ""

    def case(self, number: int) -> Case:
        """The case with this number."""
        draws = KeyedRandom(self.seed, number, CASES)
        optimizer = self.optimizers[int(draws.uniform(1)[0] * len(self.optimizers))]
        data_type = self.data_types[int(draws.uniform(1)[0] * len(self.data_types))]
        factor = SLOWER.get(optimizer, 1.0) * SLOWER.get(data_type, 1.0)
        high = number % HIGH_EVERY == HIGH_EVERY - 1
        least = self.scale.most_work / 4 if high else self.scale.least_work
        work = float(draws.between(least, self.scale.most_work, 1)[0])
        draw = self.scale.draws[number % len(self.scale.draws)]
        most = FEW_TABLES if draw == "few" else self.scale.tables
        figures = _augment(draws, int(draws.between(1, most + 1, 1)[0]), self.scale)
        if draw in _CHANGES:
            figures = _CHANGES[draw](draws, figures, self.scale)
        figures = self._fitting(figures, work / factor)
        batch = self._batch(figures, work / factor)
        tables = tuple(_table(i, figures[:, i], data_type) for i in range(figures.shape[1]))
        return Case(
            seed=self.seed, number=number, workload=Workload(batch_size=batch, optimizer=optimizer, tables=tables)
        )

    def _fitting(self, figures: Floats, work: float) -> Floats:
        """The first table, and each further one whose weights and work at the smallest batch still fit."""
        rows, dim, *_ = figures
        rows[0] = min(rows[0], self.scale.elements // dim[0])
        least = _work(figures) * self.scale.batch[0]
        chosen, room = [0], np.array([self.scale.elements - rows[0] * dim[0], work - least[0]])
        for i, need in enumerate(np.stack([rows * dim, least], axis=1)[1:], start=1):
            if (need <= room).all():
                chosen.append(i)
                room -= need
        return figures[:, chosen]

    def _batch(self, figures: Floats, work: float) -> int:
        """The batch size that reaches the work, within the scale."""
        _, dim, pooling, _ = figures
        (least, most), scale = self.scale.batch, self.scale
        limits = work / _work(figures).sum(), scale.lookups / (pooling.sum() + 1), scale.outputs / dim.sum()
        return max(least, int(min(*limits, most)))


def _check_names(names: tuple[str, ...], known: tuple[str, ...], what: str) -> None:
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        raise UsageError(f"no {what} is called '{unknown}'{did_you_mean(unknown, list(known))}")


def work_rows(reads: Floats, dim: Floats) -> Floats:
    """Work in rows of WORK_COLUMNS columns. reads (N,): ids and bags together; dim (N,): columns of a row."""
    return reads * (1 + dim / WORK_COLUMNS) / 2


def _work(figures: Floats) -> Floats:
    """Work of each table for a sample, in rows of 64 columns (N,)."""
    _, dim, pooling, _ = figures
    return work_rows(pooling + 1, dim)


def _augment(draws: KeyedRandom, count: int, scale: CaseScale) -> Floats:
    """Rows, dims, pooling factors and Zipf exponents (4, N) of tables."""
    pool, dims = table_pool(), scale.dims
    rows, dim, pooling, zipf = pool[:, (draws.uniform(count) * pool.shape[1]).astype(int)]
    stretched = np.rint(rows * draws.between(1 / STRETCH, STRETCH, count))
    rows = _either(draws, stretched, draws.between(1, scale.rows, count))
    dim = _either(draws, dim, draws.between(*dims, count))
    stretched = pooling * draws.between(1 / STRETCH, STRETCH, count)
    pooling = _either(draws, stretched, draws.between(LEAST_DRAWN_POOLING, scale.pooling, count))
    zipf = _either(draws, zipf, draws.uniform(count) * MOST_ZIPF)
    pooling = np.where(pooling < 10 * LEAST_POOLING, 0.0, np.round(pooling, 3))
    return np.stack([
        np.clip(np.floor(rows), 1, scale.rows),
        np.clip(np.rint(dim / 4) * 4, *dims),
        np.clip(pooling, 0, scale.pooling),
        np.clip(np.round(zipf, 3), 0, MOST_ZIPF),
    ])  # fmt: skip


def _cold(draws: KeyedRandom, figures: Floats, scale: CaseScale) -> Floats:
    """The tables with rows, pooling factors and exponents of cold ones: each row is seldom read again."""
    rows, dim, pooling, zipf = figures
    count = len(rows)
    rows = _either(draws, rows, np.floor(draws.between(COLD_ROWS, scale.rows, count)))
    pooling = np.round(draws.between(COLD_POOLING, scale.pooling, count), 3)
    return np.stack([rows, dim, pooling, np.minimum(zipf, np.round(draws.uniform(count) * COLD_ZIPF, 3))])


def _narrow(draws: KeyedRandom, figures: Floats, _: CaseScale) -> Floats:
    """The tables with the few columns that column splits leave."""
    rows, dim, pooling, zipf = figures
    width = np.rint(draws.between(4, NARROW_DIM, len(dim)) / 4) * 4
    return np.stack([rows, np.minimum(dim, width), pooling, zipf])


def _shared(draws: KeyedRandom, figures: Floats, scale: CaseScale) -> Floats:
    """The tables, of which half to all (by case) become as large as a cache, and are read often and evenly."""
    _, dim, _, _ = figures
    count = len(dim)
    rows = np.clip(np.floor(draws.between(*SHARED_ELEMENTS, count) / dim), 1, scale.rows)
    pooling = np.round(draws.between(SHARED_POOLING, scale.pooling, count), 3)
    hot = np.stack([rows, dim, pooling, np.round(draws.uniform(count) * SHARED_ZIPF, 3)])
    return np.where(draws.uniform(count) < draws.uniform(1) / 2, figures, hot)


_CHANGES: dict[Draw, Callable[[KeyedRandom, Floats, CaseScale], Floats]] = {
    "cold": _cold, "narrow": _narrow, "shared": _shared,
}  # fmt: skip


def _either(draws: KeyedRandom, first: Floats, second: Floats) -> Floats:
    """The first or the second value of each table, with equal chances."""
    return np.where(draws.uniform(len(first)) < 0.5, first, second)


@cache
def table_pool() -> Floats:
    """Rows, dims, pooling factors and Zipf exponents of the shared pool, (4, 856)."""
    with (resources.files("recsmith.measuring") / "pool.csv").open() as file:
        return np.array([[float(value) for value in line] for line in list(csv.reader(file))[1:]]).T


def _table(index: int, figures: Floats, data_type: DataType) -> Table:
    rows, dim, pooling, zipf = figures.tolist()
    name = f"t{index}"
    return Table(
        name=name, num_embeddings=int(rows), embedding_dim=int(dim), data_type=data_type,
        features=(Feature(name=name, pooling_factor=pooling),), access=AccessProfile(zipf=zipf),
    )  # fmt: skip
