"""Sums that a rank collects from its batches between two looks: labels, dense columns, bags and ids (column_levels.py).

A look counts the newest steps, as many as hold enough samples, or all steps since the last look. In large batches only
the ids of some samples are counted, chosen by a hash of the sample's number, so that the choice does not depend on the
number of ranks.

B samples of a batch, F features, L labels
"""

import math
from collections.abc import Sequence

import numpy as np

from recsmith._random import mixed
from recsmith._types import Floats, Ints
from recsmith.data import Batch
from recsmith.errors import CorruptFile
from recsmith.streaming.hot_sets import packed, unpacked
from recsmith.streaming.job_sums import BUCKETS, JobLayout, JobSums
from recsmith.streaming.known_ids import KnownIds

COUNTED = 2048  # samples of all ranks per look that are enough, and ids of a feature that are enough
WORDS = 2.0**64  # number of different hashes
SALT = np.uint64(0xA0761D6478BD642F)  # makes the choice of samples independent of that for sketches


class ColumnSums:
    """Sums the columns of one rank's batches.

    lengths: mean number of ids in a bag of each feature. whole: samples of all ranks in a step. every: number of steps
    between two looks. judged: indices of the labels that are probabilities; their mean is a sample's label.
    """

    def __init__(
        self, layout: JobLayout, lengths: Sequence[float], whole: int, every: int, judged: Sequence[int]
    ) -> None:
        self.layout, self.every, self.judged = layout, every, list(judged)
        self.steps = min(every, math.ceil(COUNTED / max(whole, 1)))  # number of newest steps that each look counts
        chances = [COUNTED / (self.steps * max(whole, 1) * max(length, 1.0)) for length in lengths]
        self._bounds = [None if chance >= 1 else chance * WORDS for chance in chances]
        self.sums = JobSums(layout)
        self.known = KnownIds(len(layout.features))

    def counts(self, step: int) -> bool:
        """Whether a step is counted by its look."""
        return -step % self.every < self.steps

    def add(self, samples: Batch) -> None:
        """Add a batch to the sums."""
        sums = self.sums
        sums["rows"] += len(samples)
        sums["corrupt"] += samples.corrupt
        if not len(samples):
            return
        labels = samples.labels.astype(np.float64)
        there = ~np.isnan(labels)
        filled = np.where(there, labels, 0.0)
        sums.labels += np.column_stack([filled.sum(0), there.sum(0), (filled * filled).sum(0)])
        label = self._label(filled, there)
        sums.judged += np.array([len(label), label.sum(), label @ label])
        sums.add_dense(samples.dense, label)
        if self.layout.features:
            self._add_ids(samples, label)

    def _label(self, filled: Floats, there: np.ndarray) -> Floats:
        """One label per sample (B,): the mean of its judged labels; if it has none, the mean over all other samples."""
        if not self.judged:
            return np.zeros(len(filled))
        count = there[:, self.judged].sum(1)
        label = filled[:, self.judged].sum(1) / np.maximum(count, 1)
        if count.all():
            return label
        return np.where(count > 0, label, label[count > 0].mean() if count.any() else 0.0)

    def _add_ids(self, samples: Batch, label: Floats) -> None:
        """Add counts of bags and ids, ids by bucket of their hash, and new ids."""
        lengths = np.stack([samples.ids[name].lengths for name in self.layout.features])  # (F, B)
        features, count = lengths.shape
        self.sums.features[:, 0] += lengths.sum(1, dtype=np.int64)
        self.sums.features[:, 1] += count
        self.sums.features[:, 8] += count - np.count_nonzero(lengths, 1)
        values, ids, labels = self._sampled(samples, lengths, label)
        words = mixed(values.astype(np.uint64))
        rows = np.repeat(np.arange(features), ids)
        place, shape = rows * BUCKETS + (words & np.uint64(BUCKETS - 1)).astype(np.int64), (features, BUCKETS)
        self.sums.buckets[:, 0] += np.bincount(place, minlength=features * BUCKETS).reshape(shape)
        self.sums.buckets[:, 1] += np.bincount(place, labels, features * BUCKETS).reshape(shape)
        self.sums.features[:, 9:11] += self.known.count(rows, words)

    def _sampled(self, samples: Batch, lengths: np.ndarray, label: Floats) -> tuple[Ints, Ints, Floats]:
        """(ids of all features (n,), number of ids of each feature (F,), labels of the ids' samples (n,))."""
        bags = [samples.ids[name] for name in self.layout.features]
        if all(bound is None for bound in self._bounds):
            values = np.concatenate([each.values for each in bags])
            labels = np.repeat(np.tile(label, len(bags)), lengths.ravel())
            return values, lengths.sum(1, dtype=np.int64), labels
        hashes = mixed(mixed(samples.sample_ids.astype(np.uint64) ^ SALT)).astype(np.float64)
        every = np.arange(len(samples))
        chosen = {bound: every if bound is None else np.flatnonzero(hashes < bound) for bound in set(self._bounds)}
        parts = [each.take(chosen[bound]) for each, bound in zip(bags, self._bounds, strict=True)]
        labels = [np.repeat(label[chosen[bound]], part.lengths)
                  for part, bound in zip(parts, self._bounds, strict=True)]  # fmt: skip
        return (np.concatenate([part.values for part in parts]), np.array([len(part.values) for part in parts]),
                np.concatenate(labels))  # fmt: skip

    def take(self) -> JobSums:
        """Return the sums since the last call, and start new ones."""
        found, self.sums = self.sums, JobSums(self.layout)
        return found

    # --- state -----------------------------------------------------------------------------------------------------

    def mine(self) -> str:
        """This rank's sums since the last look, as text for the state."""
        return packed(self.sums.vector.view(np.int64)) if self.sums.vector.any() else ""

    def go_on(self, texts: Sequence[str], rank: int, ranks: int) -> None:
        """Restore the ranks' saved sums: each rank its own; if the number of ranks changed, rank 0 restores all."""
        alike = len(texts) == ranks
        for number, text in enumerate(texts):
            if text and (number == rank if alike else not rank):
                self.sums.vector += self._unpacked(text, same=alike)

    def _unpacked(self, text: str, *, same: bool) -> Floats:
        found, size = unpacked(text).view(np.float64), self.layout.size
        if not np.isfinite(found).all() or (same and len(found) != size):
            raise CorruptFile("state of a watched job holds sums of other columns, or no numbers; it is damaged")
        if len(found) == size:
            return found
        return self._of_other_ranks(found)

    def _of_other_ranks(self, vector: Floats) -> Floats:
        """A vector saved with another number of ranks in this layout; the times of ranks are left out."""
        shapes = self.layout.shapes
        other = len(vector) - self.layout.size + math.prod(shapes["ranks"])
        if other < 0:
            raise CorruptFile("state of a watched job holds sums of other columns; it is damaged")
        sizes = {name: other if name == "ranks" else math.prod(shape) for name, shape in shapes.items()}
        found, start = JobSums(self.layout), 0
        for name, size in sizes.items():
            if name != "ranks":
                found.parts[name][:] = vector[start : start + size].reshape(shapes[name])
            start += size
        return found.vector
