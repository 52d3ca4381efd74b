"""A workload of sketches: the tables of a job as the stream of its ids reads them now, for a planner."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.errors import UsageError
from recsmith.streaming.sketches import IdSketch
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.access import NUM_REUSE_BINS

BUCKETS = 400  # of ranks, evenly spaced in their logarithm, over which sums are taken
HALVINGS = 40  # of an interval, in the search for a power
STEEPEST = 20.0  # power of a rank
ENDS = 2.0 ** np.arange(NUM_REUSE_BINS - 1)  # upper ends of reuse bins


def live_workload(workload: Workload, sketches: Mapping[str, IdSketch], *, source: str = "sketches") -> Workload:
    """The workload with pooling factors and access profiles of the sketched features.

    workload: the tables, such as those of the plan that runs. sketches: by feature; a table whose features have none
    stays as it is. A table's profile holds counts: the shares of the rows that are read most, and how many different
    rows are read, are those of the sketch, also where most rows of a table are never read. So are the reads of its
    blocks of rows, where the sketches counted them.

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
    """A table as it is read now."""
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
    """Reads of the rows of a table, counted as far as a sketch knows them, in reuse bins.

    Rows that are read most are counted one by one. The others, as many as there are different ids, share what lookups
    are left by a power of their rank that begins at the least read one of those.
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
    """(reads of an id, how many ids are read so often), as far as a sketch knows them; rows: ids that there can be."""
    lookups, distinct = sketch.sketched, _different(sketch, rows)
    heavy = np.array(sketch.heavy()[:distinct], dtype=np.float64)
    heavy = heavy[heavy.cumsum() <= lookups - distinct + len(heavy)]  # every other id was read once at least
    first, count = _ranks(len(heavy) + 1, distinct)
    left, highest = lookups - heavy.sum(), heavy[-1] if len(heavy) else max(1.0, sketch.unseen)
    middle = np.sqrt(first * (first + count - 1.0)) / max(len(heavy), 1)

    def reads(power: float) -> Floats:
        return np.maximum(highest * middle**-power, 1.0)

    low, high = 0.0, STEEPEST
    for _ in range(HALVINGS):
        power = (low + high) / 2
        low, high = (power, high) if float(count @ reads(power)) > left else (low, power)
    even = max(1.0, left / max(distinct - len(heavy), 1))  # where the power is 0, the highest is too high
    each = np.append(heavy, np.minimum(reads(low), even) if low == 0 else reads(low))
    return each, np.append(np.ones(len(heavy)), count)


def _different(sketch: IdSketch, rows: int) -> int:
    return max(1, min(round(sketch.distinct), sketch.sketched, rows))


def _ranks(first: int, last: int) -> tuple[Ints, Floats]:
    """(first rank, how many ranks) of buckets of ranks; none where there are no ranks."""
    if first > last:
        return np.zeros(0, np.int64), np.zeros(0)
    edges = np.unique(np.round(np.geomspace(first, last + 1, BUCKETS)).astype(np.int64))
    return edges[:-1], np.diff(edges).astype(np.float64)


def _feature(feature: Feature, sketch: IdSketch | None) -> Feature:
    if sketch is None or not sketch.bags:
        return feature
    return replace(feature, pooling_factor=sketch.lookups / sketch.bags)
