"""A workload of sketches: the tables of a job as the stream of its ids reads them now, for a planner."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.errors import UsageError
from recsmith.streaming.sketches import IdSketch
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.workload import STEEPEST_ZIPF

BUCKETS = 400  # of ranks, evenly spaced in their logarithm, over which sums of Zipf's law are taken
FEW = 0.5  # of the rows: with more of them read, how many are read says little of how unevenly
TOP = 32  # rows, or a tenth of all, whose share of lookups is taken then
HALVINGS = 40  # of an interval, in the search for an exponent


def live_workload(workload: Workload, sketches: Mapping[str, IdSketch], *, source: str = "sketches") -> Workload:
    """The workload with pooling factors and access profiles of the sketched features.

    workload: the tables, such as those of the plan that runs. sketches: by feature; a table whose features have none
    stays as it is. A table's profile is the Zipf exponent under which as many different rows are read in as many
    lookups as were sketched; where most rows were read, the one under which the most read have their share of lookups.

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
    rows = table.num_embeddings
    if together.distinct < FEW * rows:
        zipf = zipf_exponent(together.distinct, lambda exponent: expected_distinct(exponent, together.sketched, rows))
    else:
        top = min(max(1, rows // 10), TOP)
        share = sum(each for _, each in together.frequent(top))
        zipf = zipf_exponent(1 - share, lambda exponent: 1 - top_share(exponent, top, rows))
    return replace(table, features=features, access=AccessProfile(zipf=zipf))


def _feature(feature: Feature, sketch: IdSketch | None) -> Feature:
    if sketch is None or not sketch.bags:
        return feature
    return replace(feature, pooling_factor=sketch.lookups / sketch.bags)


def zipf_exponent(seen: float, expected: Callable[[float], float]) -> float:
    """The exponent of Zipf's law under which what was seen is expected; the larger it is, the less is expected."""
    low, high = 0.0, STEEPEST_ZIPF
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) > seen else (low, middle)
    return round((low + high) / 2, 4)


def expected_distinct(exponent: float, lookups: int, rows: int) -> float:
    """Different rows in so many lookups under Zipf's law, on average; ranks far from the first in buckets."""
    _, count, chance = _law(exponent, rows)
    return float(count @ -np.expm1(lookups * np.log1p(-np.minimum(chance, 1 - 1e-12))))


def top_share(exponent: float, top: int, rows: int) -> float:
    """Share of lookups that the most read rows have under Zipf's law."""
    first, count, chance = _law(exponent, rows)
    inside = np.clip(top + 1 - first, 0, count)
    return float(inside @ chance)


def _law(exponent: float, rows: int) -> tuple[Ints, Floats, Floats]:
    """(first rank, ranks, chance of each of them) of buckets of ranks under Zipf's law."""
    edges = np.unique(np.round(np.geomspace(1, rows + 1, BUCKETS)).astype(np.int64))
    count = np.diff(edges).astype(np.float64)
    weight = np.sqrt(edges[:-1] * (edges[1:] - 1.0)) ** -exponent
    return edges[:-1], count, weight / (count @ weight)
