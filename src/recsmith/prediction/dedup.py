"""Seconds of a step that deduplicated features save and add, before anything is trained (docs/datasets.md).

Lookups are of fewer ids, by the learned kernels of a core. In return, repeated rows must be found, vectors must be
distributed to all samples, and each collection of tables needs one more exchange of ranks.

B samples of all ranks
"""

from collections.abc import Mapping, Sequence

from recsmith._types import noun
from recsmith.data.deduplication import DedupGroup
from recsmith.prediction.graph import KernelShape
from recsmith.prediction.job_step import SENT_ID_S
from recsmith.prediction.kernels import LOOKUPS, within_step
from recsmith.prediction.speeds import core
from recsmith.units import format_time

DISTINCT_ID_S = 2.9e-8  # seconds of an id that is read: finding repeated rows (benchmarks/dedup_reading.py)
KEPT_ID_S = 2.7e-8  # seconds of an id that is read: keeping and copying it, if its row does not repeat (the same)
COLLECTION_S = 1e-3  # seconds of one more collection: its lookup, and its part of the ranks' exchange of sizes
GIVEN_S = 3.3e-9  # seconds of a pooled number that is given to a sample, forward and backward (the same)
GIVEN_FEATURE_S = 5.5e-5  # seconds of a feature whose vectors are given to samples: its operators (the same)


@noun
class DedupPrice:
    """Seconds of a step that deduplicated features save and add."""

    saved_s: float
    added_s: float

    def __str__(self) -> str:
        """The saved and added seconds in words."""
        return (
            f"lookups and sending take {format_time(self.saved_s)} less of a step, and finding rows and giving them to "
            f"all samples {format_time(self.added_s)}"
        )


def finding_s(before: float, after: float) -> float:
    """Extra seconds of reading, to find repeated rows. before, after: ids that are read, and ids of distinct rows."""
    return before * DISTINCT_ID_S - (before - after) * KEPT_ID_S


def giving_s(samples: float, features: int, columns: int) -> float:
    """Seconds to give pooled vectors of features, of this many columns in all, to samples, forward and backward."""
    return features * GIVEN_FEATURE_S + samples * columns * GIVEN_S


def dedup_price(
    groups: Sequence[DedupGroup], widths: Mapping[str, int], samples: int, collections: int, readers: int = 1
) -> DedupPrice:
    """Saved and added seconds of groups of features, counted in a batch of `samples`, for a rank.

    widths: columns of each feature. readers: number of ranks whose samples each rank reads.
    """
    before, after = sum(each.ids_before for each in groups), sum(each.ids_after for each in groups)
    features = sum(len(each.features) for each in groups)
    columns = sum(widths[name] for each in groups for name in each.features)
    saved = sum(_lookups_s(each, widths, samples, whole=True) - _lookups_s(each, widths, samples, whole=False)
                for each in groups)  # fmt: skip
    added = readers * finding_s(before, after) + giving_s(samples, features, columns) + collections * COLLECTION_S
    return DedupPrice(saved_s=max(saved, 0.0) + (before - after) * SENT_ID_S, added_s=added)


def _lookups_s(group: DedupGroup, widths: Mapping[str, int], samples: int, *, whole: bool) -> float:
    """Seconds of the lookups and updates of a group, for all samples or only for its distinct rows."""
    tables, columns = len(group.features), sum(widths[name] for name in group.features)
    ids, rows = (group.ids_before, samples) if whole else (group.ids_after, samples / group.factor)
    shape = (float(tables), float(ids), float(rows * tables), float(columns), float(ids * columns), 0.0)
    kernels = within_step([KernelShape(kind, shape) for kind in LOOKUPS])
    return float(core().kernels.seconds(kernels).sum())
