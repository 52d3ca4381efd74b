"""How many lookups of cached tables find their row in the cache, as access profiles let expect."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.plans import Plan
from recsmith.problems.modes import Demand
from recsmith.workloads import Table, Workload
from recsmith.workloads.reuse import Reuse


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

    def hit_share(self, shares: Floats, static: Bools) -> float:
        """The share (0..1) of all lookups whose row is in its table's cache; 0 without lookups.

        shares, static: of each table (T,), as in CachedTable.
        """
        index, cached = np.arange(len(self.rows)), self.rows * shares
        hits = self.reuse.hit_share(index, cached)
        if static.any():
            pinned = self.reuse.hot_share(index, self.reuse.staying(index, self.lookups, cached))
            hits = np.where(static, pinned, hits)
        return float((hits * self.lookups).sum() / max(float(self.lookups.sum()), 1e-300))


def hit_share(workload: Workload, cached: Sequence[CachedTable], ranks: int = 1) -> float:
    """The share (0..1) of the lookups of some tables whose row is in its table's cache; 0 without lookups.

    workload: of which the tables are. cached: at least one table. ranks: whose batches a table serves in a step.
    """
    tables, shares, static = zip(*cached, strict=True)
    return CachedLookups.of(workload, tables, ranks).hit_share(np.array(shares), np.array(static, dtype=bool))
