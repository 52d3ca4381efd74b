"""Seconds in which a core reads a sample, by the format of the data and its transforms.

All figures are from `python benchmarks/reading_rates.py` (docs/benchmarks/train.md): the time from a file, or from
drawing samples, to batches of samples that were shuffled in a window.
"""

from collections.abc import Sequence
from dataclasses import replace

from recsmith._types import noun
from recsmith.data.batch import DataFeature
from recsmith.data.transforms.declared import Calendar, First, HashIds, MapIds, NGram, ScatterIds, Transform, operation


@noun
class ReadRates:
    """Seconds of each sample, of each of its features, and of each id of a feature."""

    sample_s: float
    feature_s: float
    id_s: float

    def of(self, lengths: Sequence[float]) -> float:
        """Seconds to read a sample. lengths: mean number of ids of each of its features."""
        return self.sample_s + len(lengths) * self.feature_s + sum(lengths) * self.id_s


@noun
class Reading:
    """How a run reads its data. sample_s: seconds of a sample. alone: whether each rank reads only its own samples.

    Blocks of most formats hold the samples of all ranks, and every rank reads all of them.
    """

    sample_s: float
    alone: bool = False


GENERATED = ReadRates(sample_s=4.4e-7, feature_s=3.8e-8, id_s=7.4e-8)  # samples that are drawn anew
COLUMNS = ReadRates(sample_s=2.7e-7, feature_s=1.6e-8, id_s=2.8e-8)  # Parquet and Arrow
LINES = ReadRates(sample_s=4.9e-7, feature_s=4.1e-8, id_s=2.8e-8)  # CSV; an id as in COLUMNS
CLICKS = ReadRates(sample_s=0.0, feature_s=5.7e-8, id_s=0.0)  # Criteo's lines: 13 counts and 26 words together
FORMATS = {"generator": GENERATED, "parquet": COLUMNS, "text": LINES, "criteo": CLICKS, "movielens": COLUMNS}
TRANSFORMED = {  # (seconds of a feature, seconds of an id of it), or of a value
    "hash": (1.3e-8, 1.0e-8), "scatter": (1.8e-8, 4e-9), "first": (9e-9, 0.0), "n_gram": (8.2e-8, 2.1e-8),
    "map_ids": (9e-9, 1.5e-8), "calendar": (1.2e-8, 4e-9), "log": (9e-9, 0.0), "clip": (8e-9, 0.0),
    "bucketize": (4.2e-8, 0.0), "one_hot": (1.2e-8, 0.0), "box_cox": (9e-9, 0.0),  # as log: not measured
}  # fmt: skip
Sparse = HashIds | ScatterIds | First | NGram | MapIds | Calendar


def sample_s(name: str, features: Sequence[DataFeature], transforms: Sequence[Transform]) -> float:
    """Seconds in which a core reads a sample of a format; formats that were not measured count as generated samples.

    features: as they are stored; a feature without a pooling factor counts as one id. transforms: of the data, in their
    order.
    """
    known = {each.name: each for each in features}
    found = FORMATS.get(name, GENERATED).of([_ids(each) for each in features])
    for each in transforms:
        of_feature, of_id = TRANSFORMED[operation(each)]
        found += of_feature
        if isinstance(each, Sparse) and each.feature in known:
            read = known[each.feature]
            found += of_id * _ids(read)
            known[each.into or each.feature] = replace(read, pooling_factor=_left(each, _ids(read)))
    return found


def _ids(feature: DataFeature) -> float:
    return 1.0 if feature.pooling_factor is None else feature.pooling_factor


def _left(transform: Sparse, ids: float) -> float:
    """Ids of a bag that a transform leaves of this many."""
    if isinstance(transform, First):
        return min(ids, float(transform.count))
    return max(ids - transform.length + 1, 0.0) if isinstance(transform, NGram) else ids
