"""The expected hit rate of cached tables, by their access profiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.plans import Plan
from recsmith.problems.modes import Demand
from recsmith.workloads import Table, Workload
from recsmith.workloads.kept_rows import KeptRows, kept_rows
from recsmith.workloads.reuse import Reuse

PROFILE = 1000  # batches whose reads are counted for policy static
BATCHES = 2  # batches whose rows a cache holds at least: the one in training, and the one prefetched
PARTS = 8  # points in a profile's batches over which the hit rate is averaged


class CachedTable(NamedTuple):
    """A table with a share of its rows in a cache: the rows read last or, if static, the most read rows."""

    table: Table
    share: float
    static: bool = False


def cached_tables_of(plan: Plan) -> list[CachedTable]:
    """The cached tables of a plan, in the order of its placements."""
    tables = {table.name: table for table in plan.workload.tables}
    return [
        CachedTable(tables[each.table], each.load_factor, each.cache_policy == "static")
        for each in plan.placements
        if each.cache is not None
    ]


@dataclass(frozen=True)
class CachedLookups:
    """The lookups of T cached tables. rows: of each table (T,). lookups: per batch of all ranks, of each table (T,)."""

    reuse: Reuse
    rows: Floats
    lookups: Floats

    @classmethod
    def of(cls, workload: Workload, tables: Sequence[Table], ranks: int) -> "CachedLookups":
        """The lookups of some tables of a workload. ranks: number of ranks whose batches a table serves in a step."""
        rows = np.array([table.num_embeddings for table in tables], dtype=np.float64)
        demand = Demand.of(workload, tuple(tables))
        return cls(Reuse.of(tables), rows, demand.ids * demand.repeats * ranks)

    def hits(self, cached: Floats, static: Bools, *, profile: int = PROFILE, batches: int | None = None) -> Floats:
        """The share (0..1) of each table's lookups that hit caches of these numbers of rows (T, N).

        profile: batches that are counted to choose the rows of static caches. batches: length of a job that starts with
            empty caches and whose mean is returned; None: the share once caches are full and the profile has ended.
        """
        index, found = np.arange(len(self.rows)), np.empty(cached.shape)
        for column in range(cached.shape[1]):
            held = cached[:, column]
            found[:, column] = (
                self.reuse.hit_share(index, held)
                if batches is None
                else self.reuse.hit_share_over(index, held, self.lookups * batches)
            )
        for table in np.flatnonzero(static & (self.lookups > 0)).tolist():
            found[table] = self._static_hits(table, cached[table], profile, batches)
        return found

    def _static_hits(self, table: int, slots: Floats, profile: int, batches: int | None) -> Floats:
        """The hit shares (N,) of one table whose cache keeps the most read rows."""
        blocks, each, rows = self.reuse.by_chance(table), float(self.lookups[table]), float(self.rows[table])
        after = 0 if batches is None else max(0, batches - profile)
        shares = np.zeros(len(slots))
        if batches is None or after:
            since = None if batches is None else after * each
            shares = _beside_others(kept_rows(*blocks, profile * each, since), slots, each, rows)
        if batches is None:
            return shares
        counted = min(batches, profile)
        parts = [(part + 0.5) / PARTS * counted * each for part in range(PARTS)]
        within = np.mean([_beside_others(kept_rows(*blocks, part, 0), slots, each, rows) for part in parts], axis=0)
        return (shares * after + within * counted) / max(batches, 1)

    def hit_share(self, shares: Floats, static: Bools, *, profile: int = PROFILE, batches: int | None = None) -> float:
        """The share (0..1) of all lookups that hit their table's cache; 0 without lookups.

        shares, static: for each table (T,), as in CachedTable. profile, batches: as in `hits`.
        """
        hits = self.hits((self.rows * shares)[:, None], static, profile=profile, batches=batches)[:, 0]
        return float((hits * self.lookups).sum() / max(float(self.lookups.sum()), 1e-300))


def _beside_others(kept: KeptRows, slots: Floats, lookups: float, rows: float) -> Floats:
    """The hit shares (N,) of caches in which the rows that two batches bring in displace some of the chosen rows.

    Rows that are brought in also serve some lookups: each as many as the mean of the rows that are not kept. rows: of
    the table.
    """
    share = kept.of(slots)
    staying = np.maximum(slots - BATCHES * lookups * (1 - share), 0.0)
    stay = kept.of(staying)
    others = (slots - staying) * (1 - stay) / np.maximum(rows - staying, 1.0)
    return np.where(staying < kept.chosen, np.minimum(stay + others, share), share)


def hit_share(
    workload: Workload, cached: Sequence[CachedTable], ranks: int = 1, *, profile: int = PROFILE,
    batches: int | None = None,
) -> float:  # fmt: skip
    """The share (0..1) of the lookups of some tables that hit their table's cache; 0 without lookups.

    workload: the workload of the tables. cached: at least one table. ranks: number of ranks whose batches a table
        serves in a step.
    profile, batches: as in CachedLookups.hits.
    """
    tables, shares, static = zip(*cached, strict=True)
    lookups = CachedLookups.of(workload, tables, ranks)
    return lookups.hit_share(np.array(shares), np.array(static, dtype=bool), profile=profile, batches=batches)
