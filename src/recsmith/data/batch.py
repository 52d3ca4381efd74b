"""Batches: what a training step reads, as NumPy arrays; and the schema of the samples in them.

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

    values: (n,). lengths: ids in the bag of each sample (B,); they add up to n. weights: of the ids (n,), or None.
    """

    values: Ints
    lengths: Lengths
    weights: Singles | None = None

    def __repr__(self) -> str:
        """Its size."""
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

    dense: (B, D). ids: by name of the feature. labels: (B, L), in the order of label_names. sample_ids: (B,). inverse:
    of features whose distinct bags alone are in ids: which of them each sample has (B,) (deduplication.py). corrupt:
    samples that were to be among them, and could not be read. weights: of the samples, as the data has them, for the
    loss and for scores (B,); None: 1. loss_weights: by which the loss of each sample is multiplied beside that (B,);
    None: by 1.
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
        """By what the loss of each sample is multiplied (B,); None: by 1."""
        given = [each for each in (self.weights, self.loss_weights) if each is not None]
        return None if not given else given[0] if len(given) == 1 else given[0] * given[1]

    def __repr__(self) -> str:
        """Its size, never its arrays."""
        width = self.dense.shape[1]
        return f"<Batch of {len(self):,} samples: {width} dense values, {len(self.ids)} features>"

    def __len__(self) -> int:
        """How many samples it holds."""
        return len(self.sample_ids)

    def take(self, rows: Ints) -> "Batch":
        """The samples of some rows, in the order given; of deduplicated features, the bags that these samples have."""
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
        """(ids, inverse) of the deduplicated features for some samples."""
        ids: dict[str, JaggedIds] = {}
        inverse: dict[str, Ints] = {}
        kept: dict[int, tuple[Ints, Ints]] = {}  # by the array of a group
        for name, row in self.inverse.items():
            if id(row) not in kept:
                kept[id(row)] = renumbered(row[rows], len(self.ids[name].lengths))
            used, inverse[name] = kept[id(row)]
            ids[name] = self.ids[name].take(used)
        return ids, inverse


def concatenated(batches: Sequence[Batch]) -> Batch:
    """One batch of all samples of several with the same features, deduplicated or not; there is at least one."""
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
    """Weights of all samples of several batches, 1 where one has none; None where none has any."""
    if all(each.weights is None for each in batches):
        return None
    return np.concatenate(
        [np.ones(len(each), np.float32) if each.weights is None else each.weights for each in batches]
    )


def _renumbered(batches: Sequence[Batch], name: str) -> Ints:
    """Rows of a feature's joined bags, of all samples."""
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
    """(first, row): where each distinct key first appears (U,), in that order, and which of them each key is (B,)."""
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return first[order], place[row]


def renumbered(rows: Ints, count: int) -> tuple[Ints, Ints]:
    """(used, row): which of `count` rows are used (U,), as they first appear, and which of them each row is (B,).

    As `numbered`, without sorting the rows.
    """
    first = np.full(count, -1, np.int64)
    first[rows[::-1]] = np.arange(len(rows) - 1, -1, -1)  # of equal rows the last assignment counts: the first place
    used = np.flatnonzero(first >= 0)
    used = used[np.argsort(first[used])]
    first[used] = np.arange(len(used))
    return used, first[rows]


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
class VocabularyMeaning:
    """Which values the rows of a table stand for: digest of the vocabulary, its values with rows, and rows of others.

    Two features whose meanings are equal have the same row for every value. extends: digests of vocabularies whose
    values have kept their rows in this one.
    """

    digest: str
    values: int
    unknown: int
    extends: tuple[str, ...] = ()

    @property
    def num_embeddings(self) -> int:
        """Rows that a table has for them."""
        return self.unknown + self.values

    def continues(self, other: "VocabularyMeaning | None") -> bool:
        """Whether every value that has a row in another vocabulary has the same one here."""
        return other is not None and self.unknown == other.unknown and other.digest in (self.digest, *self.extends)


@noun
class ValueMeaning:
    """How values came about, without which equal numbers may mean different things.

    modulo: by feature, the rows of a table by which larger ids were divided, if only what is left of them is there.
    vocabularies: by feature, what its rows stand for, where they are those of texts or raw ids (docs/vocabularies.md).
    transforms: of samples after that, in their order, as a spec of data has them (docs/data.md).
    """

    modulo: dict[str, int] = field(default_factory=dict[str, int])
    transforms: tuple[dict[str, Any], ...] = ()
    vocabularies: dict[str, VocabularyMeaning] = field(default_factory=dict[str, VocabularyMeaning])


def unknown_labels(spec: Any) -> Iterator[str]:
    """What a schema or a spec of data says of labels that it does not have, and what to do."""
    for key in ("missing_labels", "number_labels"):
        for name in getattr(spec, key):
            if name not in spec.labels:
                yield f"{key} names '{name}', which is no label ({', '.join(spec.labels)}); name labels"


@noun
class DataSchema:
    """What every sample holds: the bags of its features, dense values and labels, each in this order.

    values: what they mean beside their names; None where nobody kept that. missing_labels: labels that some samples
    lack, which is NaN in a batch. number_labels: labels that are any finite number; others are chances, 0 to 1. raw:
    the columns that it is made of, as a spec of data has them, for rows that are served; None where nobody knows them.
    weight: the column of weights of samples; None: all count alike.
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
        """Check that no name stands twice, and that labels are there of which more is said."""
        names = Counter([*(each.name for each in self.features), *self.dense, *self.labels])
        twin = next((name for name, count in names.items() if count > 1), None)
        check_rules(None if twin is None else f"the column '{twin}' is named twice; each column has one meaning")
        check_rules(*unknown_labels(self))

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
            weights=None if self.weight is None else np.zeros(0, np.float32),
        )
