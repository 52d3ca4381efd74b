"""Sums that describe a step of a training job: each rank adds up its own, and those of all ranks are added.

F features, D dense columns, R ranks, n sampled ids of a feature
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats, Ints

SCALARS = ("samples", "loss", "label", "predicted", "label_predicted", "predicted_2", "entropy", "checked", "repeated",
           "gradient", "dense_rate", "sparse_rate")  # fmt: skip
FEATURE = ("lookups", "bags", "ids", "hits", "same", "pairs", "total")
DENSE = ("sum", "squares")
RANK = ("step_s", "waited_s", "own_s")


@dataclass(frozen=True)
class JobLayout:
    """What is summed: names of features and dense columns, and ranks. All sums lie in one vector.

    shares: of a feature's lookups that each rank makes under the plan (F, R), a part of the columns as such a part.
    """

    features: tuple[str, ...]
    dense: tuple[str, ...]
    ranks: int
    shares: tuple[tuple[float, ...], ...]

    @property
    def size(self) -> int:
        """Numbers in the vector."""
        own = len(self.features) * len(FEATURE) + len(self.dense) * len(DENSE)
        return len(SCALARS) + own + self.ranks * len(RANK)


class JobSums:
    """The sums as parts of one vector: scalars (12,), features (F, 7), dense (D, 2), ranks (R, 3).

    gradient and rates are of rank 0, since all ranks have the same; each rank fills its own row of `ranks`.
    """

    def __init__(self, layout: JobLayout, vector: Floats | None = None) -> None:
        self.layout = layout
        self.vector = np.zeros(layout.size) if vector is None else vector
        ends = np.cumsum([len(SCALARS), len(layout.features) * len(FEATURE), len(layout.dense) * len(DENSE)])
        parts = np.split(self.vector, ends)
        self.scalars = parts[0]
        self.features = parts[1].reshape(len(layout.features), len(FEATURE))
        self.dense = parts[2].reshape(len(layout.dense), len(DENSE))
        self.ranks = parts[3].reshape(layout.ranks, len(RANK))

    def __getitem__(self, name: str) -> float:
        """A scalar."""
        return float(self.scalars[SCALARS.index(name)])

    def __setitem__(self, name: str, value: float) -> None:
        """Set a scalar."""
        self.scalars[SCALARS.index(name)] = value

    def of_feature(self, row: int) -> dict[str, float]:
        """The sums of a feature by their names."""
        return dict(zip(FEATURE, self.features[row].tolist(), strict=True))

    def add_predictions(self, logits: Floats, labels: Floats) -> None:
        """Add logits and labels of a batch (B,): their sums, and what correlation and cross entropy follow from.

        Of several labels (B, L) each counts by its share, so that sums are of as many samples.
        """
        share = 1 / (logits[0].size if len(logits) else 1)
        logits, labels = logits.ravel(), labels.ravel()
        chances = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
        self["label"], self["predicted"] = float(labels.sum()) * share, float(chances.sum()) * share
        self["label_predicted"], self["predicted_2"] = float(labels @ chances) * share, float(chances @ chances) * share
        self["entropy"] = float((np.logaddexp(0, logits) - labels * logits).sum()) * share

    def add_ids(self, row: int, ids: Ints, hits: int) -> None:
        """Add sampled ids (n,) of a feature, of which so many are hot."""
        same = int((ids[1:] == ids[:-1]).sum()) if len(ids) else 0
        self.features[row, 2:] = (len(ids), hits, same, max(len(ids) - 1, 0), float(ids.sum(dtype=np.float64)))
