"""The share of a table's lookups, and of the different rows that they read, in ranges of its rows.

If lookups were counted by blocks of rows, a range has those of its blocks, and a proportional part of a block that it
shares. If not, hot rows are assumed to be scattered, as with hashed ids, so that equal blocks are equally busy; or in
front, as with ids ordered by frequency, so that the first rows are the hot ones of the access profile.

Legend: E ends of ranges, in rows from the first; B blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.elementary import log2
from recsmith.workloads.access import NUM_REUSE_BINS, AccessProfile, HotRows
from recsmith.workloads.busiest_shares import BLOCKS, BusiestShares
from recsmith.workloads.reuse import TINY, Reuse
from recsmith.workloads.workload import Table
from recsmith.workloads.zipf import fit_zipf, zipf_hot_share, zipf_unique_rows

SINGLE, LONGER = 64, 256  # rows that a law lists one by one, and ranges of rows after them
EDGES = 2 ** np.arange(NUM_REUSE_BINS - 1)  # upper ends of all reuse bins but the last: 1, 2, 4 ... 32768


class Busiest(NamedTuple):
    """The busiest of B blocks: its share of the lookups, and the largest share of the different rows."""

    lookups: float
    unique_rows: float


def hot_rows_of(table: Table, assumed: HotRows | None) -> HotRows | None:
    """Where the hot rows of a table are assumed to be; None if lookups were counted by blocks.

    assumed: for tables that do not say, such as the workload's.
    """
    access = table.access
    if access is not None and access.block_lookups is not None:
        return None
    return (access.hot_rows if access is not None else None) or assumed or "scattered"


def block_ends(rows: int, blocks: int) -> Floats:
    """The start of the first and the ends of all of TorchRec's blocks of ceil(rows / blocks) rows (B + 1,)."""
    return np.minimum(np.arange(blocks + 1) * -(-rows // blocks), rows).astype(np.float64)


def equal_ends(rows: int, blocks: int) -> Floats:
    """The start of the first and the ends of all equal blocks (B + 1,): row i is in block i B // rows."""
    numbers: Ints = np.arange(blocks + 1, dtype=np.int64)
    return (-(-numbers * rows // blocks)).astype(np.float64)


def lookups_before(table: Table, ends: Floats, assumed: HotRows | None = None, reuse: Reuse | None = None) -> Floats:
    """The share (0..1) of a table's lookups that read rows before each end (E,).

    reuse: the reuse of this table alone, if already computed.
    """
    where, access = hot_rows_of(table, assumed), table.access
    if where == "scattered":
        return ends / table.num_embeddings
    if where == "in_front":
        return (reuse or Reuse.of((table,))).hot_share(np.zeros(len(ends), dtype=np.int64), ends)
    assert access is not None
    assert access.block_lookups is not None
    return _counted_before(access.block_lookups, table.num_embeddings, ends)


def _counted_before(amounts: tuple[float, ...], rows: int, ends: Floats) -> Floats:
    """The share, before each end (E,), of amounts counted by equal blocks, as `count_blocks` returns them."""
    return _interpolated(ends, equal_ends(rows, len(amounts)), _sums(amounts))


def _interpolated(at: Floats, places: Floats, values: Floats) -> Floats:
    """Values at some points, interpolated linearly from values at places in rising order."""
    found: Floats = np.interp(at, places, values)
    return found


def unique_before(
    table: Table, ends: Floats, lookups: float, assumed: HotRows | None = None, reuse: Reuse | None = None
) -> Floats:
    """The number of different rows before each end (E,) that `lookups` lookups of a table read.

    reuse: as in `lookups_before`. If different rows were not counted by blocks, they are assumed to be spread as the
        lookups.
    """
    reuse, access = reuse or Reuse.of((table,)), table.access
    total = reuse.unique_rows(np.zeros(1, dtype=np.int64), np.array([lookups]))
    before = lookups_before(table, ends, assumed, reuse)
    if hot_rows_of(table, assumed) == "in_front":
        if reuse.counted[0] > 0:  # the rows read are the first ones
            return np.minimum(ends, total)
        return np.where(ends > 0, zipf_unique_rows(reuse.zipf, np.maximum(ends, 1.0), lookups * before), 0.0)
    if access is not None and access.block_unique_rows is not None:
        before = _counted_before(access.block_unique_rows, table.num_embeddings, ends)
    return total * before


def busiest_block(
    table: Table, reuse: Reuse, blocks: int, lookups: float, assumed: HotRows | None = None
) -> Busiest | None:
    """The busiest of TorchRec's row blocks for `lookups` lookups per step; None if all are equally busy.

    reuse: the reuse of this table alone.
    """
    if hot_rows_of(table, assumed) == "scattered" or blocks == 1:
        return None
    first = np.zeros(1, dtype=np.int64)
    shares, unique = busiest_blocks((table,), reuse, first, np.array([float(blocks)]), np.array([lookups]), assumed)
    return Busiest(float(shares[0]), float(unique[0]))


def busiest_blocks(
    tables: Sequence[Table], reuse: Reuse, table: Ints, blocks: Floats, lookups: Floats, assumed: HotRows | None = None
) -> tuple[Floats, Floats]:
    """Shares of lookups, and of different rows, of the busiest of `blocks` TorchRec row blocks (N,) of tables.

    table: table indices (N,), of tables whose hot rows are not scattered. lookups: lookups of all blocks in a step
        (N,). reuse: the reuse of the tables. A block has at most as many different rows as it has rows, and as it has
        lookups.
    """
    rows = reuse.rows[table]
    ends = np.ceil(rows / blocks)  # end of the first block, which is the busiest if hot rows are in front
    total = reuse.unique_rows(table, lookups)
    front = np.array([hot_rows_of(each, assumed) == "in_front" for each in tables], dtype=bool)[table]
    shares, unique = np.ones(len(table)), total.copy()
    some = np.flatnonzero(front)
    shares[some] = reuse.hot_share(table[some], ends[some])
    by_law = zipf_unique_rows(reuse.zipf[table[some]], ends[some], lookups[some] * shares[some])
    unique[some] = np.where(reuse.counted[table[some]] > 0, ends[some], by_law)
    found: dict[int, _Counted] = {}
    for i in np.flatnonzero(~front).tolist():
        at = int(table[i])
        if at not in found:
            found[at] = _Counted.of(tables[at])
        shares[i], share = found[at].busiest(int(blocks[i]))
        unique[i] = total[i] * share
    most = np.minimum(np.minimum(total, unique), np.minimum(ends, lookups * shares))
    return shares, np.where(total > 0, most / np.maximum(total, TINY), shares)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The counts of a table by K blocks: cumulative shares of lookups, and of different rows, at their ends (K + 1,).

    more: ratio of the busiest share in a batch to the busiest share over all batches, for 1, 2, 4, 8, ... equal blocks.
    """

    rows: int
    ends: Floats
    lookups: Floats
    unique: Floats
    more: Floats

    @classmethod
    def of(cls, table: Table) -> "_Counted":
        access, rows = table.access, table.num_embeddings
        assert access is not None
        assert access.block_lookups is not None
        ends = equal_ends(rows, len(access.block_lookups))
        lookups = _sums(access.block_lookups)
        unique = lookups if access.block_unique_rows is None else _sums(access.block_unique_rows)
        more = [1.0]
        for halvings, share in enumerate(access.busiest_lookups or (), 1):
            each, rest = divmod(len(access.block_lookups), 2**halvings)  # counted blocks in one of these blocks
            whole = lookups[::each] if not rest else _interpolated(equal_ends(rows, 2**halvings), ends, lookups)
            more.append(share / float((whole[1:] - whole[:-1]).max()))
        return cls(rows, ends, lookups, unique, np.array(more))

    def busiest(self, blocks: int) -> tuple[float, float]:
        """The shares of lookups and of different rows of the busiest of TorchRec's blocks in a batch.

        The ratio of a batch's busiest share to that over all batches is interpolated linearly over halvings. Within the
        smallest counted blocks, reads are assumed to be even.
        """
        cut = block_ends(self.rows, blocks)
        more = _interpolated(_halvings(blocks), np.arange(len(self.more), dtype=np.float64), self.more)
        share = _most(cut, self.ends, self.lookups) * max(1.0, float(more[0]))
        return min(1.0, share), _most(cut, self.ends, self.unique)


def busiest_deviation(table: Table, blocks: int) -> float:
    """The standard deviation between batches of the lookup share of the busiest of `blocks` blocks; 0 if unknown."""
    counted = table.access.busiest_deviation if table.access is not None else None
    if counted is None or blocks == 1:
        return 0.0
    known = np.array([0.0, *counted])
    return float(_interpolated(_halvings(blocks), np.arange(len(known), dtype=np.float64), known)[0])


@cache
def _halvings(blocks: int) -> Floats:
    """The number of halvings, maybe fractional, that divide all rows into this many blocks."""
    return log2(np.array([float(blocks)]))


def _sums(amounts: tuple[float, ...]) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(amounts)])
    return sums / sums[-1]


def _most(cut: Floats, ends: Floats, sums: Floats) -> float:
    """The largest share of a range between cuts, from cumulative shares at ends."""
    return float(np.diff(_interpolated(cut, ends, sums)).max())


def range_zipf(table: Table, ends: Floats, lookups: float, assumed: HotRows | None = None) -> Floats:
    """Zipf exponents (E - 1,) with which ranges of rows, as tables of their own, read their expected different rows.

    lookups: of the whole table. Ranges that are hardly read have the exponent of the table.
    """
    reuse = Reuse.of((table,))
    own = np.diff(lookups_before(table, ends, assumed, reuse)) * lookups
    unique = np.diff(unique_before(table, ends, lookups, assumed, reuse))
    rows, found = np.diff(ends), np.full(len(own), float(reuse.zipf[0]))
    some = np.flatnonzero((own >= 1) & (unique > 0))
    found[some] = fit_zipf(rows[some], own[some], np.minimum(unique[some], np.minimum(rows[some], own[some])))
    return found


def law_of(table: Table, assumed: HotRows | None = None) -> tuple[Floats, Floats]:
    """(ends, shares) (E,): the share of lookups before each of these rows, from 0 to all, fine enough to draw rows.

    Within a counted block the first rows are the hottest, by the Zipf law that reads as many different rows as counted.
    If different rows were not counted by blocks, the exponent of the table is used.
    """
    access, rows = table.access, table.num_embeddings
    if access is None or access.block_lookups is None:
        ends = _steps(rows)
        return ends, lookups_before(table, ends, assumed)
    block = np.unique(equal_ends(rows, len(access.block_lookups)))
    before = lookups_before(table, block)
    made, shares = [np.zeros(1)], [np.zeros(1)]
    counted = access.lookups if access.block_unique_rows is not None else None
    laws = np.full(len(block) - 1, float(Reuse.of((table,)).zipf[0]))
    if counted is not None:
        laws = range_zipf(table, block, float(counted))
    for i, (first, last) in enumerate(zip(block[:-1].tolist(), block[1:].tolist(), strict=True)):
        steps = _steps(last - first)[1:]
        made.append(first + steps)
        inside = zipf_hot_share(laws[[i]], np.array([float(last - first)]), steps)
        shares.append(before[i] + (before[i + 1] - before[i]) * inside)
    return np.concatenate(made), np.concatenate(shares)


def _steps(rows: float) -> Floats:
    """Ends of ranges from no row to all rows: single rows first, then ranges that grow by a constant factor."""
    single = min(rows, SINGLE)
    longer = np.geomspace(single, rows, LONGER)[1:] if rows > single else np.zeros(0)
    return np.unique(np.concatenate([np.arange(single + 1, dtype=np.float64), np.rint(longer)]))


def draw_rows(law: tuple[Floats, Floats], uniform: Floats) -> Ints:
    """The rows (N,) that uniform numbers in [0, 1) select, by a law of `law_of`."""
    ends, shares = law
    found = _interpolated(uniform * shares[-1], shares, ends).astype(np.int64)
    return np.minimum(found, int(ends[-1]) - 1)


def access_of_ids(ids: Ints, rows: int, ends: Sequence[int] = ()) -> AccessProfile | None:
    """The access profile counted from the ids of some batches; None without ids.

    ends: where batches end within ids; without them, all ids are one batch. Reads of a row are counted over all
        batches.
    """
    if not len(ids):
        return None
    found, reads = np.unique(ids, return_counts=True)
    bins = np.bincount(np.searchsorted(EDGES, reads), minlength=NUM_REUSE_BINS) / len(found)
    lookups, unique = (count_blocks(found, rows, each) for each in (reads, np.ones_like(reads)))
    busiest = BusiestShares()
    for each in np.split(ids, ends):
        busiest.add(each, rows)
    return AccessProfile(
        reuse_bins=tuple(bins.tolist()), lookups=len(ids), unique_rows=len(found),
        block_lookups=tuple(map(float, lookups)), block_unique_rows=tuple(map(float, unique)),
        busiest_lookups=busiest.mean, busiest_deviation=busiest.deviation,
    )  # fmt: skip


def blocks_of(rows: int) -> int:
    """The number of equal blocks of a table that are counted."""
    return min(BLOCKS, rows)


def count_blocks(ids: Ints, rows: int, weights: Ints) -> Ints:
    """Sums of the weights of ids by block of rows (K,)."""
    blocks = blocks_of(rows)
    return np.bincount(ids * blocks // rows, weights=weights, minlength=blocks).astype(np.int64)
