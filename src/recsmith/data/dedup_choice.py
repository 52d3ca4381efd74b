"""Which features of a dataset are worth deduplicating, and which of them change together, counted in a batch.

B samples, U distinct rows
"""

import math
from collections.abc import Sequence

import numpy as np

from recsmith._types import Ints, record
from recsmith.data.batch import Batch
from recsmith.data.deduplication import distinct_rows

LEAST_FACTOR = 1.5  # samples for each distinct row; trade-off: below, finding rows costs what looking up fewer saves
LEVELS = 3  # octaves of factors that are looked up apart: from 1.5, 3 and 6 on; each costs a collective of its own


@record
class DedupGroup:
    """Features that change together: their names, and samples for each distinct row (RecD's DedupeFactor).

    ids_before, ids_after: in all samples, and in distinct rows. mean_ids: in a bag.
    """

    features: tuple[str, ...]
    factor: float
    ids_before: int
    ids_after: int
    mean_ids: float

    @property
    def level(self) -> int:
        """Octave of the factor, 0 for the least."""
        return min(LEVELS - 1, max(0, int(math.log2(max(self.factor / LEAST_FACTOR, 1.0)))))


def dedup_groups(batch: Batch) -> tuple[DedupGroup, ...]:
    """All features of a batch in groups with the same distinct rows, those that are most often repeated first."""
    groups: dict[bytes, list[str]] = {}
    for name, bags in batch.ids.items():
        _, row = distinct_rows([bags])
        groups.setdefault(row.tobytes(), []).append(name)
    made = [counted(batch, names) for names in groups.values()]
    return tuple(sorted(made, key=lambda group: -group.factor))


def counted(batch: Batch, features: Sequence[str]) -> DedupGroup:
    """A group of features with its factor in a batch."""
    first, _ = distinct_rows([batch.ids[name] for name in features])
    before = sum(len(batch.ids[name].values) for name in features)
    return DedupGroup(
        features=tuple(features),
        factor=len(batch) / max(len(first), 1),
        ids_before=before,
        mean_ids=before / max(len(batch) * len(features), 1),
        ids_after=sum(_ids(batch.ids[name].lengths, first) for name in features),
    )


def chosen(groups: Sequence[DedupGroup], least: float = LEAST_FACTOR) -> tuple[DedupGroup, ...]:
    """The groups that gain: with so many samples for each distinct row, and more than an id a bag.

    The number of a row is as large as an id, so bags of one id have nothing to save but what crosses ranks.
    """
    return tuple(group for group in groups if group.factor >= least and group.mean_ids > 1)


def _ids(lengths: "np.ndarray[tuple[int], np.dtype[np.int32]]", rows: Ints) -> int:
    return int(lengths[rows].sum(dtype=np.int64))
