"""How much of a table's lookups, and of the different rows that they read, falls on ranges of its rows.

Where lookups were counted by blocks of rows, a range has those of its blocks, and of a block that it shares, its part.
Where they were not, hot rows are taken to be scattered, as hashed ids are: then equal blocks are equally busy. Or they
are taken to lie in front, as ids that go by frequency: then the first rows are those that the access profile calls hot.

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

SINGLE, LONGER = 64, 256  # rows that a law tells apart one by one, and ranges of rows beyond them
EDGES = 2 ** np.arange(NUM_REUSE_BINS - 1)  # upper ends of all reuse bins but the last: 1, 2, 4 ... 32768


class Busiest(NamedTuple):
    """The busiest of B blocks: its share of the lookups, and the largest share of the different rows."""

    lookups: float
    unique_rows: float


def hot_rows_of(table: Table, assumed: HotRows | None) -> HotRows | None:
    """Where the hot rows of a table are taken to lie; None where lookups were counted by blocks.

    assumed: of tables that do not say, such as the workload's.
    """
    access = table.access
    if access is not None and access.block_lookups is not None:
        return None
    return (access.hot_rows if access is not None else None) or assumed or "scattered"


def block_ends(rows: int, blocks: int) -> Floats:
    """Where TorchRec's blocks of ceil(rows / blocks) rows end, and where the first begins (B + 1,)."""
    return np.minimum(np.arange(blocks + 1) * -(-rows // blocks), rows).astype(np.float64)


def equal_ends(rows: int, blocks: int) -> Floats:
    """Where equal blocks end, and where the first begins (B + 1,): row i is in block i B // rows."""
    numbers: Ints = np.arange(blocks + 1, dtype=np.int64)
    return (-(-numbers * rows // blocks)).astype(np.float64)


def lookups_before(table: Table, ends: Floats, assumed: HotRows | None = None, reuse: Reuse | None = None) -> Floats:
    """The share (0..1) of a table's lookups that read rows before these (E,).

    reuse: of the table alone, where it is at hand.
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
    """The share of amounts of equal blocks, as `count_blocks` has them, of the rows before these (E,)."""
    return _interpolated(ends, equal_ends(rows, len(amounts)), _sums(amounts))


def _interpolated(at: Floats, places: Floats, values: Floats) -> Floats:
    """Values at some points, from those at places in rising order, along straight lines."""
    found: Floats = np.interp(at, places, values)
    return found


def unique_before(
    table: Table, ends: Floats, lookups: float, assumed: HotRows | None = None, reuse: Reuse | None = None
) -> Floats:
    """How many different rows before these (E,) so many lookups of a table read; reuse as in `lookups_before`.

    Where different rows were not counted by blocks, they are taken to lie as the lookups do.
    """
    reuse, access = reuse or Reuse.of((table,)), table.access
    total = reuse.unique_rows(np.zeros(1, dtype=np.int64), np.array([lookups]))
    before = lookups_before(table, ends, assumed, reuse)
    if hot_rows_of(table, assumed) == "in_front":
        if reuse.counted[0] > 0:  # the rows that were read are the first ones
            return np.minimum(ends, total)
        return np.where(ends > 0, zipf_unique_rows(reuse.zipf, np.maximum(ends, 1.0), lookups * before), 0.0)
    if access is not None and access.block_unique_rows is not None:
        before = _counted_before(access.block_unique_rows, table.num_embeddings, ends)
    return total * before


def busiest_block(
    table: Table, reuse: Reuse, blocks: int, lookups: float, assumed: HotRows | None = None
) -> Busiest | None:
    """The busiest of TorchRec's blocks when a step has so many lookups; None where all are equally busy.

    reuse: of the table alone.
    """
    if hot_rows_of(table, assumed) == "scattered" or blocks == 1:
        return None
    first = np.zeros(1, dtype=np.int64)
    shares, unique = busiest_blocks((table,), reuse, first, np.array([float(blocks)]), np.array([lookups]), assumed)
    return Busiest(float(shares[0]), float(unique[0]))


def busiest_blocks(
    tables: Sequence[Table], reuse: Reuse, table: Ints, blocks: Floats, lookups: Floats, assumed: HotRows | None = None
) -> tuple[Floats, Floats]:
    """Shares of lookups, and of different rows, of the busiest of so many of TorchRec's blocks (N,) of tables.

    table: by index (N,), each with hot rows that are not scattered. lookups: of all blocks in a step (N,). reuse: of
    the tables. No block has more different rows than rows, and than lookups.
    """
    rows = reuse.rows[table]
    ends = np.ceil(rows / blocks)  # of the first block, which with hot rows in front is the busiest
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
    """What was counted of a table by K blocks: sums of lookups, and of different rows, before their ends (K + 1,).

    more: how much busier the busiest of 1, 2, 4, 8, ... equal blocks of a batch is than that of all batches.
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
            each, rest = divmod(len(access.block_lookups), 2**halvings)  # counted blocks of one
            whole = lookups[::each] if not rest else _interpolated(equal_ends(rows, 2**halvings), ends, lookups)
            more.append(share / float((whole[1:] - whole[:-1]).max()))
        return cls(rows, ends, lookups, unique, np.array(more))

    def busiest(self, blocks: int) -> tuple[float, float]:
        """The shares of TorchRec's busiest block, of a batch.

        How much busier it is than that of all batches lies along straight lines over halvings; the smallest counted
        blocks are read evenly.
        """
        cut = block_ends(self.rows, blocks)
        more = _interpolated(_halvings(blocks), np.arange(len(self.more), dtype=np.float64), self.more)
        share = _most(cut, self.ends, self.lookups) * max(1.0, float(more[0]))
        return min(1.0, share), _most(cut, self.ends, self.unique)


def busiest_deviation(table: Table, blocks: int) -> float:
    """The standard deviation between batches of the share of lookups in the busiest of so many blocks; 0 if unknown."""
    counted = table.access.busiest_deviation if table.access is not None else None
    if counted is None or blocks == 1:
        return 0.0
    known = np.array([0.0, *counted])
    return float(_interpolated(_halvings(blocks), np.arange(len(known), dtype=np.float64), known)[0])


@cache
def _halvings(blocks: int) -> Floats:
    """How often all rows are halved to be so many blocks."""
    return log2(np.array([float(blocks)]))


def _sums(amounts: tuple[float, ...]) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(amounts)])
    return sums / sums[-1]


def _most(cut: Floats, ends: Floats, sums: Floats) -> float:
    """The largest share of a range between cuts, from sums before ends."""
    return float(np.diff(_interpolated(cut, ends, sums)).max())


def range_zipf(table: Table, ends: Floats, lookups: float, assumed: HotRows | None = None) -> Floats:
    """The exponents (E - 1,) at which ranges of rows, as tables of their own, read as many different rows as they do.

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
    """(ends, shares) (E,): the share of lookups before each of these rows, from 0 to all, fine enough to draw rows by.

    Within a counted block the first rows are the hottest, by a Zipf law that reads as many different rows as counted;
    where different rows were not counted by blocks, by the exponent of the table.
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
    """Ends of ranges from no row to all rows: of single rows first, then each longer by the same factor."""
    single = min(rows, SINGLE)
    longer = np.geomspace(single, rows, LONGER)[1:] if rows > single else np.zeros(0)
    return np.unique(np.concatenate([np.arange(single + 1, dtype=np.float64), np.rint(longer)]))


def draw_rows(law: tuple[Floats, Floats], uniform: Floats) -> Ints:
    """The rows (N,) of uniform numbers from 0 to below 1, by a law of `law_of`."""
    ends, shares = law
    found = _interpolated(uniform * shares[-1], shares, ends).astype(np.int64)
    return np.minimum(found, int(ends[-1]) - 1)


def access_of_ids(ids: Ints, rows: int, ends: Sequence[int] = ()) -> AccessProfile | None:
    """How often the rows of a table were read, and where they lie, of the ids of some batches; None without any id.

    ends: where batches end within ids; without them all are one batch. Reads of a row are counted over all of them.
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
    """How many equal blocks of a table are counted."""
    return min(BLOCKS, rows)


def count_blocks(ids: Ints, rows: int, weights: Ints) -> Ints:
    """Sums of the weights of ids by block of rows (K,)."""
    blocks = blocks_of(rows)
    return np.bincount(ids * blocks // rows, weights=weights, minlength=blocks).astype(np.int64)
