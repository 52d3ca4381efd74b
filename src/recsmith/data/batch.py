"""Batches of samples as NumPy arrays, which training steps read, and the schema of the samples.

B samples, D dense columns, L labels, n ids of a feature in all samples
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from recsmith._types import Ints, noun, record
from recsmith.errors import check_rules

Singles = npt.NDArray[np.float32]
Lengths = npt.NDArray[np.int32]


@record
class JaggedIds:
    """The ids of one feature in all samples of a batch, one bag after the other.

    values: the ids (n,). lengths: number of ids in each sample's bag (B,); their sum is n. weights: one weight per id
    (n,), or None.
    """

    values: Ints
    lengths: Lengths
    weights: Singles | None = None

    def __repr__(self) -> str:
        """The numbers of ids and bags."""
        return f"<{len(self.values):,} ids in {len(self.lengths):,} bags>"

    def take(self, rows: Ints) -> "JaggedIds":
        """The bags of some samples, in the order given."""
        lengths = self.lengths[rows]
        if len(self.values) == len(self.lengths) and bool((self.lengths == 1).all()):
            at = rows
        else:
            starts = np.cumsum(self.lengths, dtype=np.int64) - self.lengths
            ends = np.cumsum(lengths, dtype=np.int64)
            at = np.arange(int(lengths.sum(dtype=np.int64))) + np.repeat(starts[rows] - (ends - lengths), lengths)
        return JaggedIds(
            values=self.values[at], lengths=lengths, weights=None if self.weights is None else self.weights[at]
        )


@record
class Batch:
    """Some samples: dense values, ids by feature, labels, and the numbers of the samples in their dataset.

    dense: (B, D). ids: bags by feature name. labels: (B, L), in the order of label_names. sample_ids: (B,). inverse:
    by name of a deduplicated feature, which of its distinct bags in ids each sample has (B,) (deduplication.py).
    corrupt: number of samples of this batch that could not be read and are missing. weights: sample weights from the
    data, for the loss and for scores (B,); None: 1. loss_weights: further factors of each sample's loss, in addition to
    weights (B,); None: 1.
    """

    dense: Singles
    ids: dict[str, JaggedIds]
    labels: Singles
    label_names: tuple[str, ...]
    sample_ids: Ints
    inverse: dict[str, Ints] = field(default_factory=dict[str, Ints])
    corrupt: int = 0
    weights: Singles | None = None
    loss_weights: Singles | None = None

    @property
    def factors(self) -> Singles | None:
        """The factor of each sample's loss: the product of both kinds of weights (B,); None: 1."""
        given = [each for each in (self.weights, self.loss_weights) if each is not None]
        return None if not given else given[0] if len(given) == 1 else given[0] * given[1]

    def __repr__(self) -> str:
        """The numbers of samples, dense values and features, never the arrays."""
        width = self.dense.shape[1]
        return f"<Batch of {len(self):,} samples: {width} dense values, {len(self.ids)} features>"

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.sample_ids)

    def take(self, rows: Ints) -> "Batch":
        """The given rows as a batch, in the given order; of deduplicated features only the bags that these rows use."""
        ids, inverse = self._distinct(rows)
        return Batch(
            dense=self.dense[rows],
            ids={name: ids[name] if name in ids else bags.take(rows) for name, bags in self.ids.items()},
            labels=self.labels[rows],
            label_names=self.label_names,
            sample_ids=self.sample_ids[rows],
            inverse=inverse,
            weights=None if self.weights is None else self.weights[rows],
            loss_weights=None if self.loss_weights is None else self.loss_weights[rows],
        )

    def _distinct(self, rows: Ints) -> tuple[dict[str, JaggedIds], dict[str, Ints]]:
        """(ids, inverse) of the deduplicated features for the given rows."""
        ids: dict[str, JaggedIds] = {}
        inverse: dict[str, Ints] = {}
        kept: dict[int, tuple[Ints, Ints]] = {}  # by the id() of the inverse that the features of a group share
        for name, row in self.inverse.items():
            if id(row) not in kept:
                kept[id(row)] = renumbered(row[rows], len(self.ids[name].lengths))
            used, inverse[name] = kept[id(row)]
            ids[name] = self.ids[name].take(used)
        return ids, inverse


def concatenated(batches: Sequence[Batch]) -> Batch:
    """One batch of the samples of one or more batches with the same features, deduplicated or not."""
    if len(batches) == 1:
        return batches[0]
    return Batch(
        dense=np.concatenate([each.dense for each in batches]),
        ids={name: _joined([each.ids[name] for each in batches]) for name in batches[0].ids},
        labels=np.concatenate([each.labels for each in batches]),
        label_names=batches[0].label_names,
        sample_ids=np.concatenate([each.sample_ids for each in batches]),
        inverse={name: _renumbered(batches, name) for name in batches[0].inverse},
        weights=joined_weights(batches),
    )


def joined_weights(batches: Sequence[Batch]) -> Singles | None:
    """Sample weights of several batches one after the other, 1 for a batch without; None if no batch has weights."""
    if all(each.weights is None for each in batches):
        return None
    return np.concatenate(
        [np.ones(len(each), np.float32) if each.weights is None else each.weights for each in batches]
    )


def _renumbered(batches: Sequence[Batch], name: str) -> Ints:
    """For each sample of all batches, the row of its bag among the feature's concatenated bags."""
    counts = [len(each.ids[name].lengths) for each in batches]
    before = np.cumsum([0, *counts[:-1]])
    return np.concatenate([each.inverse[name] + first for each, first in zip(batches, before, strict=True)])


def _joined(parts: list[JaggedIds]) -> JaggedIds:
    weights = [each.weights for each in parts if each.weights is not None]
    return JaggedIds(
        values=np.concatenate([each.values for each in parts]),
        lengths=np.concatenate([each.lengths for each in parts]),
        weights=np.concatenate(weights) if weights else None,
    )


def numbered(keys: npt.NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """(first, row): where each distinct key first appears (U,), in this order; for each key its index in first (B,)."""
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[row]


def renumbered(rows: Ints, count: int) -> tuple[Ints, Ints]:
    """(used, row): the distinct ones of `rows` as they first appear (U,); for each row its index in used (B,).

    All rows are below `count`, so nothing is sorted but the distinct ones, unlike in `numbered`.
    """
    first = np.full(count, -1, np.int64)
    first[rows[::-1]] = np.arange(len(rows) - 1, -1, -1)  # for equal rows the last assignment wins: the first place
    used = np.flatnonzero(first >= 0)
    used = used[np.argsort(first[used])]
    first[used] = np.arange(len(used))
    return used, first[rows]


@noun
class DataFeature:
    """A sparse feature of a dataset.

    num_embeddings: ids are 0 to num_embeddings - 1; None if that is not known without reading the data.
    pooling_factor: mean number of ids in a bag, if known. single: whether every bag holds exactly one id. weighted:
    whether each id has a weight. zipf: exponent of the Zipf law of how often rows are read, if known.
    """

    name: str
    num_embeddings: int | None = None
    pooling_factor: float | None = None
    single: bool = False
    weighted: bool = False
    zipf: float | None = None


@noun
class VocabularyMeaning:
    """What the rows of a table stand for: the vocabulary's digest, its number of values, and rows for unknown values.

    Two features with equal meanings have the same row for every value. extends: digests of the vocabularies that this
    one extends, so that their values keep their rows in it.
    """

    digest: str
    values: int
    unknown: int
    extends: tuple[str, ...] = ()

    @property
    def num_embeddings(self) -> int:
        """Rows of the table: those for unknown values, then one per value."""
        return self.unknown + self.values

    def continues(self, other: "VocabularyMeaning | None") -> bool:
        """Whether every value with a row in the other vocabulary has the same row in this one."""
        return other is not None and self.unknown == other.unknown and other.digest in (self.digest, *self.extends)


@noun
class ValueMeaning:
    """How the values of a dataset were made; without it, equal numbers may mean different things.

    modulo: by feature, the divisor whose remainders are stored as ids, if ids were taken modulo the table's rows.
    vocabularies: by feature, what its rows stand for, if they come from texts or raw ids (docs/vocabularies.md).
    transforms: the transforms applied after that, in order, as they are written in a data spec (docs/data.md).
    """

    modulo: dict[str, int] = field(default_factory=dict[str, int])
    transforms: tuple[dict[str, Any], ...] = ()
    vocabularies: dict[str, VocabularyMeaning] = field(default_factory=dict[str, VocabularyMeaning])


def unknown_labels(spec: Any) -> Iterator[str]:
    """An error text for each missing_labels or number_labels entry of a schema or data spec that names no label."""
    for key in ("missing_labels", "number_labels"):
        for name in getattr(spec, key):
            if name not in spec.labels:
                yield f"{key} names '{name}', which is no label ({', '.join(spec.labels)}); name labels"


@noun
class DataSchema:
    """What every sample holds: the bags of its features, dense values and labels, each in this order.

    values: how ids and dense values were made; None if that was not recorded. missing_labels: labels that some samples
    lack; a missing label is NaN in a batch. number_labels: labels that are any finite number; other labels are
    probabilities, 0 to 1. raw: the columns that samples are made from, as in a data spec, so that raw rows can be
    served; None if they are unknown. weight: the column of sample weights; None: all samples count alike.
    """

    features: tuple[DataFeature, ...]
    dense: tuple[str, ...]
    labels: tuple[str, ...]
    values: ValueMeaning | None = ValueMeaning()
    missing_labels: tuple[str, ...] = ()
    number_labels: tuple[str, ...] = ()
    raw: dict[str, Any] | None = None
    weight: str | None = None

    def __post_init__(self) -> None:
        """Check that no name occurs twice, and that missing_labels and number_labels name labels."""
        names = Counter([*(each.name for each in self.features), *self.dense, *self.labels])
        twin = next((name for name, count in names.items() if count > 1), None)
        check_rules(None if twin is None else f"the column '{twin}' is named twice; each column has one meaning")
        check_rules(*unknown_labels(self))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(each.name for each in self.features)

    def empty(self) -> Batch:
        """A batch of this schema without samples."""
        nothing = np.zeros(0, np.int64)
        bags = JaggedIds(values=nothing, lengths=nothing.astype(np.int32))
        weighted = JaggedIds(values=nothing, lengths=bags.lengths, weights=nothing.astype(np.float32))
        return Batch(
            dense=np.zeros((0, len(self.dense)), np.float32),
            ids={each.name: weighted if each.weighted else bags for each in self.features},
            labels=np.zeros((0, len(self.labels)), np.float32),
            label_names=self.labels,
            sample_ids=nothing,
            weights=None if self.weight is None else np.zeros(0, np.float32),
        )
