"""How many lookups of cached tables find their row in the cache, as access profiles let expect."""

from collections.abc import Sequence

import numpy as np

from recsmith.problems.modes import Demand
from recsmith.workloads import Table, Workload
from recsmith.workloads.reuse import Reuse


def hit_share(workload: Workload, cached: Sequence[tuple[Table, float]]) -> float:
    """The share (0..1) of the lookups of some tables whose row is in its table's cache; 0 without lookups.

    workload: of which the tables are. cached: at least one table, each with the share of its rows that is cached; the
    rows that were read last are.
    """
    tables, factors = zip(*cached, strict=True)
    rows = np.array([table.num_embeddings for table in tables], dtype=np.float64) * np.array(factors)
    hits = Reuse.of(tables).hit_share(np.arange(len(tables)), rows)
    lookups = Demand.of(workload, tables).ids
    return float((hits * lookups).sum() / max(float(lookups.sum()), 1e-300))
