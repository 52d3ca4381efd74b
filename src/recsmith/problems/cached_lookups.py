"""How many lookups of cached tables find their row in the cache, as access profiles let expect."""

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

PROFILE = 1000  # batches whose reads are counted, of policy static
BATCHES = 2  # whose rows a cache holds at least: the one that trains, and the one that is fetched ahead of it
PARTS = 8  # of the batches of a profile, of which a mean is taken


class CachedTable(NamedTuple):
    """A table with a share of its rows in a cache: those that were read last, or, static, those that are read most."""

    table: Table
    share: float
    static: bool = False


def cached_tables_of(plan: Plan) -> list[CachedTable]:
    """The tables of a plan that have a cache, in the order of its placements."""
    tables = {table.name: table for table in plan.workload.tables}
    return [
        CachedTable(tables[each.table], each.load_factor, each.cache_policy == "static")
        for each in plan.placements
        if each.cache is not None
    ]


@dataclass(frozen=True)
class CachedLookups:
    """The lookups of T tables with caches. rows, lookups: of each table (T,), and of a batch of all ranks."""

    reuse: Reuse
    rows: Floats
    lookups: Floats

    @classmethod
    def of(cls, workload: Workload, tables: Sequence[Table], ranks: int) -> "CachedLookups":
        """Of some tables of a workload. ranks: whose batches a table serves in a step."""
        rows = np.array([table.num_embeddings for table in tables], dtype=np.float64)
        demand = Demand.of(workload, tuple(tables))
        return cls(Reuse.of(tables), rows, demand.ids * demand.repeats * ranks)

    def hits(self, cached: Floats, static: Bools, *, profile: int = PROFILE, batches: int | None = None) -> Floats:
        """The share (0..1) of each table's lookups whose row is in caches of so many rows (T, N).

        profile: batches whose reads say which rows stay, where static. batches: of a job whose mean it is, from its
        empty caches on; None: of those that come when caches are full, and the profile has ended.
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
        """Of one table whose rows that are read most stay (N,)."""
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
        """The share (0..1) of all lookups whose row is in its table's cache; 0 without lookups.

        shares, static: of each table (T,), as in CachedTable. profile, batches: as of `hits`.
        """
        hits = self.hits((self.rows * shares)[:, None], static, profile=profile, batches=batches)[:, 0]
        return float((hits * self.lookups).sum() / max(float(self.lookups.sum()), 1e-300))


def _beside_others(kept: KeptRows, slots: Floats, lookups: float, rows: float) -> Floats:
    """What caches serve (N,) beside rows that two batches bring into them, for which chosen ones make room.

    Rows that come in serve some lookups, too: each what the mean of those does that do not stay. rows: of the table.
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
    """The share (0..1) of the lookups of some tables whose row is in its table's cache; 0 without lookups.

    workload: of which the tables are. cached: at least one table. ranks: whose batches a table serves in a step.
    profile, batches: as of CachedLookups.hits.
    """
    tables, shares, static = zip(*cached, strict=True)
    lookups = CachedLookups.of(workload, tables, ranks)
    return lookups.hit_share(np.array(shares), np.array(static, dtype=bool), profile=profile, batches=batches)
