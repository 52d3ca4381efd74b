"""Lookups and updates of rows in halves, by compiled code (_halved_rows.c) or by PyTorch with the same bits.

Compiled code pools upper halves as it reads them, and updates some rows at a time, which stay in the core's caches.
Both sum gradients of equal ids in the order of ids, so that the bits do not depend on how a sort breaks ties.

B samples; F features of a table, in adjacent columns; L ids, n distinct ids of a table
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from recsmith._compiled import call_compiled, compiled
from recsmith.training.systems.halves import COMPILED
from recsmith.training.systems.halves.bfloat16 import NAN

# Gradient numbers that are summed at once, and the divisor of the number of rows: with it, PyTorch's operators round
# each number as they do in one call for all rows.
BLOCK, WHOLE = 1 << 16, 64
LONGEST = 4096  # columns of the longest row that compiled code updates
_NONE = torch.zeros(0)


class HalvedTables(Protocol):
    """Tables in halves, as PooledHalves reads them.

    halves: of each table, (rows, 2 columns) of int16. features: the number of features of each table. compiled: whether
    compiled code is used.
    """

    halves: Sequence[Tensor]
    features: Sequence[int]
    compiled: bool

    def update(self, table: int, distinct: Tensor, gradient: Tensor) -> None:
        """Update distinct rows by their gradients (n, columns)."""
        ...


class _Bags(NamedTuple):
    """A table's bags in a batch.

    ids: (L,). ends: offsets of bags (F B + 1,). weights: of ids, or empty. numbers: columns, samples, features, and the
    first column of the table in the pooled output.
    """

    ids: Tensor
    ends: Tensor
    weights: Tensor
    numbers: tuple[int, int, int, int]

    def in_c(self, width: int) -> Any:
        return np.array([*self.numbers, width], np.int64)


def kernels() -> Any:
    """The compiled code, or None if it was not built."""
    return compiled(COMPILED)


class PooledHalves(torch.autograd.Function):
    """Pools upper halves to fp32, and updates rows when the gradient arrives."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, tables: HalvedTables, ids: Tensor, ends: Tensor, weights: Tensor | None
    ) -> Tensor:
        """Sums of bags (B, columns of all features). ends: offsets (features B + 1,). weights: of ids, or None."""
        del anchor  # a parameter, so that autograd calls backward
        parts = list(_bags(tables, ids, ends, _NONE if weights is None else weights.float().contiguous()))
        samples, last = (len(ends) - 1) // sum(tables.features), parts[-1].numbers
        out = torch.empty(samples, last[3] + last[0] * last[2])
        pool = _pool_compiled if tables.compiled else _pool
        for halves, part in zip(tables.halves, parts, strict=True):
            pool(halves, part, out)
        ctx.of = tables, parts
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Sum gradients of equal ids and pass them to `tables.update`."""
        tables, parts = ctx.of
        gradient = gradients[0].contiguous()
        summed = _summed_compiled if tables.compiled else _summed
        for table, part in enumerate(parts):
            for distinct, sums in summed(part, gradient) if len(part.ids) else ():
                tables.update(table, distinct, sums)
        return None, None, None, None, None


def _bags(tables: HalvedTables, ids: Tensor, ends: Tensor, weights: Tensor) -> Iterator[_Bags]:
    samples, first, start = (len(ends) - 1) // sum(tables.features), 0, 0
    for halves, features in zip(tables.halves, tables.features, strict=True):
        columns, last = halves.shape[1] // 2, first + features
        mine = ends[first * samples : last * samples + 1]
        here = slice(int(mine[0]), int(mine[-1]))
        own = weights[here] if len(weights) else _NONE
        yield _Bags(ids[here].contiguous(), (mine - mine[0]).contiguous(), own, (columns, samples, features, start))
        first, start = last, start + features * columns


def _pool(halves: Tensor, part: _Bags, out: Tensor) -> None:
    columns, samples, features, start = part.numbers
    distinct, places = torch.unique(part.ids, return_inverse=True)
    pooled = nn.functional.embedding_bag(
        places, upper_rows(halves, distinct), part.ends, mode="sum", include_last_offset=True,
        per_sample_weights=part.weights if len(part.weights) else None,
    )  # fmt: skip
    out[:, start : start + features * columns] = pooled.view(features, samples, -1).transpose(0, 1).flatten(1)


def upper_rows(halves: Tensor, distinct: Tensor) -> Tensor:
    """The upper halves of distinct rows, widened to fp32 (n, columns)."""
    return halves[:, : halves.shape[1] // 2].index_select(0, distinct).view(torch.bfloat16).float()


def _pool_compiled(halves: Tensor, part: _Bags, out: Tensor) -> None:
    arrays = halves.numpy(), part.ids.numpy(), part.ends.numpy(), part.weights.numpy(), out.numpy()
    call_compiled(kernels().pooled, (*arrays, part.in_c(out.shape[1])))


def _summed(part: _Bags, gradient: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(distinct ids, sums of their gradients)."""
    columns, samples, features, start = part.numbers
    of_bags = gradient[:, start : start + features * columns].reshape(samples, features, columns).transpose(0, 1)
    bags = torch.arange(samples * features).repeat_interleave(part.ends.diff())
    rows = of_bags.reshape(-1, columns)[bags]
    if len(part.weights):
        rows = rows * part.weights[:, None]
    distinct, places = torch.unique(part.ids, return_inverse=True)
    yield distinct, torch.zeros(len(distinct), columns).index_add_(0, places, rows)


def _summed_compiled(part: _Bags, gradient: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(distinct ids, sums of their gradients), some rows at a time."""
    count, columns, ids = len(part.ids), part.numbers[0], part.ids.numpy()
    order, places, distinct, begins = (np.empty(n, np.int64) for n in (2 * count, count, count, count + 1))
    numbers = part.in_c(gradient.shape[1])
    found = kernels().ordered((ids, part.ends.numpy(), order, places, distinct, begins, numbers))
    rows = max(WHOLE, BLOCK // columns // WHOLE * WHOLE)
    for first in range(0, found, rows):
        last = min(first + rows, found)
        sums, some = torch.empty(last - first, columns), np.array([columns, first, last], np.int64)
        arrays = order, places, begins, part.weights.numpy(), gradient.numpy(), sums.numpy(), some
        call_compiled(kernels().summed, arrays)
        yield torch.from_numpy(distinct[first:last]), sums


def joined(halves: Tensor, distinct: Tensor, *, to_nearest: bool) -> Tensor:
    """Distinct rows as fp32 (n, columns)."""
    rows = torch.empty(len(distinct), halves.shape[1] // 2)
    call_compiled(kernels().joined, (halves.numpy(), distinct.numpy(), rows.numpy(), _how(halves, to_nearest)))
    return rows


def parted(halves: Tensor, distinct: Tensor, rows: Tensor, *, to_nearest: bool) -> None:
    """Write fp32 rows (n, columns) into the halves of distinct rows."""
    call_compiled(kernels().parted, (halves.numpy(), distinct.numpy(), rows.numpy(), _how(halves, to_nearest)))


def descended(
    halves: Tensor, distinct: Tensor, gradient: Tensor, deviation: Tensor, *, rate: float, to_nearest: bool
) -> None:
    """Update distinct rows: subtract rate times gradient (n, columns), divided row by row by deviation (n,)."""
    arrays = halves.numpy(), distinct.numpy(), gradient.numpy(), deviation.numpy()
    call_compiled(kernels().descended, (*arrays, _how(halves, to_nearest), np.array([rate])))


def _how(halves: Tensor, to_nearest: bool) -> Any:
    return np.array([halves.shape[1] // 2, to_nearest, NAN], np.int64)
