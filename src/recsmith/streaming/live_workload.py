"""Updates a workload from sketches: the tables of a job with their current access patterns, for the planner."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.errors import UsageError
from recsmith.streaming.sketches import IdSketch
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.access import NUM_REUSE_BINS

BUCKETS = 400  # buckets of popularity ranks, evenly spaced in log(rank), over which sums are taken
HALVINGS = 40  # bisection steps in the search for the power
STEEPEST = 20.0  # largest power of the rank that is tried
ENDS = 2.0 ** np.arange(NUM_REUSE_BINS - 1)  # upper ends of the reuse bins, in reads


def live_workload(workload: Workload, sketches: Mapping[str, IdSketch], *, source: str = "sketches") -> Workload:
    """The workload with pooling factors and access profiles from sketches.

    A table's new profile holds counts: the shares of the most read rows and the number of different rows that are read
    are those of the sketch, even if most rows of the table are never read. If the sketches counted them, so are the
    reads of its blocks of rows.

    workload: the tables, such as those of the running plan. sketches: by feature; a table without sketched features is
    not changed.

    Raises:
        UsageError: a feature is unknown, or nothing was sketched.
    """
    known = {feature.name for table in workload.tables for feature in table.features}
    strange = sorted(set(sketches) - known)
    if strange:
        raise UsageError(f"no table has a feature '{strange[0]}'; those of the workload are {', '.join(sorted(known))}")
    if not any(each.bags for each in sketches.values()):
        raise UsageError("nothing was sketched yet; wait until the job has looked at some batches")
    return replace(workload, tables=tuple(_live(table, sketches) for table in workload.tables), source=source)


def _live(table: Table, sketches: Mapping[str, IdSketch]) -> Table:
    """A table with the current access pattern of its sketched features."""
    seen = [sketches[each.name] for each in table.features if each.name in sketches and sketches[each.name].bags]
    if not seen:
        return table
    together = IdSketch()
    for sketch in seen:
        together.merge(sketch)
    features = tuple(_feature(each, sketches.get(each.name)) for each in table.features)
    if not together.sketched:
        return replace(table, features=features)
    return replace(table, features=features, access=counted_access(together, table.num_embeddings))


def counted_access(sketch: IdSketch, rows: int) -> AccessProfile:
    """The access profile of a table in reuse bins, as far as a sketch knows its reads.

    The most read rows are counted one by one. The remaining different ids share the remaining lookups by a power law of
    their rank, which starts at the count of the least read of those rows.
    """
    lookups = sketch.sketched
    each, of_reads = reads_of_ids(sketch, rows)
    bins = np.bincount(np.searchsorted(ENDS, each), of_reads, minlength=NUM_REUSE_BINS)
    return AccessProfile(
        reuse_bins=tuple((bins / bins.sum()).tolist()), lookups=lookups, unique_rows=_different(sketch, rows),
        block_lookups=tuple(map(float, sketch.blocks)) if any(sketch.blocks) else None,
        busiest_lookups=sketch.busiest.mean if any(sketch.blocks) else None,
        busiest_deviation=sketch.busiest.deviation if any(sketch.blocks) else None,
    )  # fmt: skip


def reads_of_ids(sketch: IdSketch, rows: int) -> tuple[Floats, Floats]:
    """(numbers of reads, number of ids with that many reads), estimated from a sketch. rows: bound of different ids."""
    lookups, distinct = sketch.sketched, _different(sketch, rows)
    heavy = np.array(sketch.heavy()[:distinct], dtype=np.float64)
    heavy = heavy[heavy.cumsum() <= lookups - distinct + len(heavy)]  # all other ids were read at least once each
    first, count = _ranks(len(heavy) + 1, distinct)
    left, highest = lookups - heavy.sum(), heavy[-1] if len(heavy) else max(1.0, sketch.unseen)
    middle = np.sqrt(first * (first + count - 1.0)) / max(len(heavy), 1)

    def reads(power: float) -> Floats:
        return np.maximum(highest * middle**-power, 1.0)

    low, high = 0.0, STEEPEST
    for _ in range(HALVINGS):
        power = (low + high) / 2
        low, high = (power, high) if float(count @ reads(power)) > left else (low, power)
    even = max(1.0, left / max(distinct - len(heavy), 1))  # at power 0, `highest` may be too high
    each = np.append(heavy, np.minimum(reads(low), even) if low == 0 else reads(low))
    return each, np.append(np.ones(len(heavy)), count)


def _different(sketch: IdSketch, rows: int) -> int:
    return max(1, min(round(sketch.distinct), sketch.sketched, rows))


def _ranks(first: int, last: int) -> tuple[Ints, Floats]:
    """(first rank, number of ranks) of each bucket of ranks; empty if there are no ranks."""
    if first > last:
        return np.zeros(0, np.int64), np.zeros(0)
    edges = np.unique(np.round(np.geomspace(first, last + 1, BUCKETS)).astype(np.int64))
    return edges[:-1], np.diff(edges).astype(np.float64)


def _feature(feature: Feature, sketch: IdSketch | None) -> Feature:
    if sketch is None or not sketch.bags:
        return feature
    return replace(feature, pooling_factor=sketch.lookups / sketch.bags)
