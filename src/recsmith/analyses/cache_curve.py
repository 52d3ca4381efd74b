"""How many lookups find their row in a cache, by how much of the tables the caches hold: the curve of a plan.

Mattson et al., "Evaluation techniques for storage hierarchies" (IBM Systems Journal 9(2), 1970) draw misses by the size
of the faster memory. Here they follow from access profiles (problems/cached_lookups.py), and nothing is run.
"""

import numpy as np

from recsmith._types import noun
from recsmith.plans import Plan
from recsmith.problems.cached_lookups import CachedLookups, cached_tables_of
from recsmith.sharding.on_disk import static_refused

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the rows of every table


@noun
class CachePoint:
    """Caches that hold a share of the rows of every table.

    bytes: of weights in them. lru, static: shares (0..1) of lookups that find their row, by which rows stay; None where
    no kernel has that policy.
    """

    share: float
    bytes: int
    lru: float
    static: float | None


@noun
class CacheCurve:
    """Points with larger and larger caches, and where the plan is: its caches' bytes, and lookups that hit them.

    tables: that have a cache. policy: which rows these keep.
    """

    tables: int
    points: tuple[CachePoint, ...]
    planned_bytes: int
    planned_hits: float
    policy: str


def cache_curve(plan: Plan) -> CacheCurve | None:
    """The curve of a plan's tables with caches, or None where it has none."""
    cached = cached_tables_of(plan)
    if not cached:
        return None
    first = next(each for each in plan.placements if each.cache is not None)
    weights = np.array([each.table.weight_bytes for each in cached], dtype=np.float64)
    lookups = CachedLookups.of(plan.workload, [each.table for each in cached], plan.cluster.world_size)
    both = static_refused(first.compute_kernel, plan.cluster) is None

    def hits(share: float, *, static: bool) -> float:
        return lookups.hit_share(np.full(len(cached), share), np.full(len(cached), static))

    shares = np.array([each.share for each in cached])
    return CacheCurve(
        tables=len(cached), policy=first.cache_policy, planned_bytes=round(float((weights * shares).sum())),
        planned_hits=lookups.hit_share(shares, np.array([each.static for each in cached])),
        points=tuple(
            CachePoint(
                share=share, bytes=round(share * float(weights.sum())), lru=hits(share, static=False),
                static=hits(share, static=True) if both else None,
            )
            for share in SHARES
        ),
    )  # fmt: skip
