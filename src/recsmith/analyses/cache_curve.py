"""The hit rate of a plan's caches as a function of their size.

Mattson et al., "Evaluation techniques for storage hierarchies" (IBM Systems Journal 9(2), 1970) plot misses over the
size of the faster memory. Here the hit rates are computed from access profiles (problems/cached_lookups.py).
"""

import numpy as np

from recsmith._types import noun
from recsmith.plans import Plan
from recsmith.problems.cached_lookups import CachedLookups, cached_tables_of
from recsmith.sharding.on_disk import static_refused

SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # cached fractions of the rows of every table


@noun
class CachePoint:
    """Hit rates of caches that hold a fraction of the rows of every table.

    share: that fraction. bytes: bytes of weights in the caches. lru, static: hit rates (0..1) if the cache keeps the
    most recently used rows, or a fixed set of the most read rows; None if no kernel has that policy.
    """

    share: float
    bytes: int
    lru: float
    static: float | None


@noun
class CacheCurve:
    """Hit rates of growing caches, and the plan's own point on the curve: bytes and hit rate of its caches.

    tables: number of tables with a cache. policy: the plan's cache policy.
    """

    tables: int
    points: tuple[CachePoint, ...]
    planned_bytes: int
    planned_hits: float
    policy: str


def cache_curve(plan: Plan) -> CacheCurve | None:
    """The curve of a plan's cached tables; None if it has none."""
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
