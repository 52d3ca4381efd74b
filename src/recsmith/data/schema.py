"""What the samples of a dataset hold: features, dense columns, labels."""

from collections import Counter

import numpy as np

from recsmith._types import noun
from recsmith.data.batch import Batch, JaggedIds
from recsmith.errors import check_rules


@noun
class DataFeature:
    """A sparse feature of a dataset.

    num_embeddings: its ids are 0 and more, and below this; None where that is not known without reading.
    pooling_factor: mean ids in a bag, where it is known. single: every bag holds one id. weighted: each id carries a
    weight. zipf: exponent of the law by which rows are read, where it is known.
    """

    name: str
    num_embeddings: int | None = None
    pooling_factor: float | None = None
    single: bool = False
    weighted: bool = False
    zipf: float | None = None


@noun
class DataSchema:
    """What every sample holds: the bags of its features, dense values and labels, each in this order."""

    features: tuple[DataFeature, ...]
    dense: tuple[str, ...]
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check that no name stands twice."""
        names = Counter([*(each.name for each in self.features), *self.dense, *self.labels])
        twin = next((name for name, count in names.items() if count > 1), None)
        check_rules(None if twin is None else f"the column '{twin}' is named twice; each column has one meaning")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(each.name for each in self.features)

    def empty(self) -> Batch:
        """A batch of no samples."""
        nothing = np.zeros(0, np.int64)
        bags = JaggedIds(values=nothing, lengths=nothing.astype(np.int32))
        weighted = JaggedIds(values=nothing, lengths=bags.lengths, weights=nothing.astype(np.float32))
        return Batch(
            dense=np.zeros((0, len(self.dense)), np.float32),
            ids={each.name: weighted if each.weighted else bags for each in self.features},
            labels=np.zeros((0, len(self.labels)), np.float32),
            label_names=self.labels,
            sample_ids=nothing,
        )
