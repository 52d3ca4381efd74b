"""Sums that describe a step of a training job: each rank computes its own, which are added over all ranks.

F features, D dense columns, R ranks, L labels, n sampled ids of a feature
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._random import mixed
from recsmith._types import Floats, Ints
from recsmith.errors import CorruptFile
from recsmith.files import Raw

SCALARS = ("samples", "loss", "label", "predicted", "label_predicted", "predicted_2", "entropy", "checked", "repeated",
           "gradient", "dense_rate", "sparse_rate", "rows", "corrupt")  # fmt: skip
FEATURE = ("lookups", "bags", "ids", "hits", "same", "pairs", "total", "sampled", "empty", "checked", "new")
DENSE = ("sum", "squares", "zeros", "with_label")
LABEL = ("sum", "present", "squares")
RANK = ("step_s", "waited_s", "own_s")
COUNTS, MOST_COUNTED = ("features", "bits", "buckets"), 2.0**62  # parts that are counts or sums, and their bound
BITS = 64  # bits of an id's hash, by which the most frequent id of a feature is found (frequent_ids.py)
BUCKETS = 64  # buckets of ids by hash, with the labels of their samples (id_levels.py); a power of 2


@dataclass(frozen=True)
class JobLayout:
    """The layout of the vector of all sums: names of features and dense columns, and the number of ranks.

    shares: share of a feature's lookups that each rank makes under the plan (F, R); a part of a table's columns counts
    as that part of a lookup. labels: names of the labels.
    """

    features: tuple[str, ...]
    dense: tuple[str, ...]
    ranks: int
    shares: tuple[tuple[float, ...], ...]
    labels: tuple[str, ...] = ()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the vector's parts, in order."""
        features, ranks = len(self.features), self.ranks
        return {
            "scalars": (len(SCALARS),), "features": (features, len(FEATURE)), "dense": (len(self.dense), len(DENSE)),
            "ranks": (ranks, len(RANK)), "labels": (len(self.labels), len(LABEL)), "bits": (features, BITS),
            "buckets": (features, 2, BUCKETS), "judged": (3,),
        }  # fmt: skip

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())


class JobSums:
    """The sums as parts of one vector: SCALARS, FEATURE (F, 11), DENSE (D, 4), RANK (R, 3), LABEL (L, 3), and more.

    bits (F, 64), buckets (F, 2, 64), judged (3,).
    gradient and rates are filled by rank 0 only, since they are equal on all ranks; each rank fills its own row of
    `ranks`. samples: samples of the look's own step. rows: samples whose columns were summed (column_sums.py). zeros:
    values of a dense column that are 0, as which missing values are read, or not finite. with_label: products with the
    sample's mean label. judged: number of samples with a label, sum of these labels, sum of their squares. bits: number
    of sampled ids whose hash has each bit. buckets: number of ids by hash, and sum of the labels of their samples.
    """

    def __init__(self, layout: JobLayout, vector: Floats | None = None) -> None:
        self.layout = layout
        self.vector = np.zeros(layout.size) if vector is None else vector
        shapes = layout.shapes
        parts = np.split(self.vector, np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1])
        self.parts = {
            name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
        }  # fmt: skip
        self.scalars, self.features, self.dense = (self.parts[name] for name in ("scalars", "features", "dense"))
        self.ranks, self.labels, self.bits = (self.parts[name] for name in ("ranks", "labels", "bits"))
        self.buckets, self.judged = self.parts["buckets"], self.parts["judged"]

    def to_raw(self) -> Raw:
        """The parts as JSON data."""
        return {name: part.tolist() for name, part in self.parts.items()}

    def take(self, raw: Any) -> None:
        """Restore parts from data of `to_raw`; missing parts stay as they are, as do parts of another shape."""
        for name, rows in raw.items():
            here, kept = self.parts[name], np.asarray(rows, np.float64)
            if name in COUNTS and not ((kept >= 0) & (kept < MOST_COUNTED)).all():
                raise CorruptFile(f"state of a watched job counts below 0, or too much, of {name}; it is damaged")
            if kept.shape == here.shape:
                here[:] = kept

    def __getitem__(self, name: str) -> float:
        """A scalar by its name."""
        return float(self.scalars[SCALARS.index(name)])

    def __setitem__(self, name: str, value: float) -> None:
        """Set a scalar by its name."""
        self.scalars[SCALARS.index(name)] = value

    def of_feature(self, row: int) -> dict[str, float]:
        """The sums of a feature, by name."""
        return dict(zip(FEATURE, self.features[row].tolist(), strict=True))

    def add_predictions(self, logits: Floats, labels: Floats) -> None:
        """Set the sums of logits and labels of a batch (B,), from which correlation and cross entropy are computed.

        With several labels (B, L), each value counts 1 / L, so that sums are over B samples.
        """
        share = 1 / (logits[0].size if len(logits) else 1)
        logits, labels = logits.ravel(), labels.ravel()
        chances = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
        self["label"], self["predicted"] = float(labels.sum()) * share, float(chances.sum()) * share
        self["label_predicted"], self["predicted_2"] = float(labels @ chances) * share, float(chances @ chances) * share
        self["entropy"] = float((np.logaddexp(0, logits) - labels * logits).sum()) * share

    def add_ids(self, row: int, ids: Ints, hits: int) -> None:
        """Set the sums of a feature's sampled ids (n,). hits: number of hot ids among them."""
        same = int((ids[1:] == ids[:-1]).sum()) if len(ids) else 0
        total = float(ids.sum(dtype=np.float64))
        self.features[row, 2:8] = len(ids), hits, same, max(len(ids) - 1, 0), total, len(ids)
        hashes = mixed(ids.astype("<u8")).view(np.uint8).reshape(len(ids), 8)
        self.bits[row] = np.unpackbits(hashes, axis=1, bitorder="little").sum(0, dtype=np.int64)

    def add_dense(self, dense: npt.NDArray[np.floating[Any]], label: Floats | None = None) -> None:
        """Add the dense columns (B, D) of a batch, and their products with the label of each sample (B,)."""
        dense = dense.astype(np.float64)
        if not math.isfinite(float(dense.sum())):
            dense = np.where(np.isfinite(dense), dense, 0.0)
        self.dense[:, 0] += dense.sum(0)
        self.dense[:, 1] += np.einsum("bd,bd->d", dense, dense)
        self.dense[:, 2] += len(dense) - np.count_nonzero(dense, axis=0)
        if label is not None:
            self.dense[:, 3] += label @ dense
