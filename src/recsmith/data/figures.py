"""Figures of a dataset: what its samples hold, counted."""

from collections.abc import Callable

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data.batch import Batch, JaggedIds, concatenated
from recsmith.data.dataset import Dataset
from recsmith.data.source import Block

MOST_CORRUPT_SHOWN = 3  # descriptions of corrupt samples that are kept
Progress = Callable[[int], None]


@noun
class FeatureFigures:
    """What was counted of a feature.

    mean_ids: in a bag. empty: share of the bags without ids. distinct: different ids. hottest: share of the ids that
    the most frequent one has. repeated: share of the samples whose bag is that of the sample before.
    """

    name: str
    num_embeddings: int | None
    mean_ids: float
    empty: float
    distinct: int
    largest: int
    hottest: float
    repeated: float


@noun
class DataFigures:
    """What was counted in the first samples of a dataset, in the order in which they are stored.

    labels and dense: mean of each column by name.
    """

    num_samples: int
    counted: int
    corrupt: int
    labels: dict[str, float]
    dense: dict[str, float]
    features: tuple[FeatureFigures, ...]


@noun
class DataCheck:
    """What reading a dataset from end to end found: samples, corrupt ones with some descriptions, its largest block.

    allowed: corrupt samples that a rank passes over before training stops.
    """

    samples: int
    corrupt: int
    allowed: int
    examples: tuple[str, ...]
    blocks: int
    largest_block: int


def count_figures(dataset: Dataset, samples: int) -> DataFigures:
    """Read at least so many samples of a dataset, or all, and count what they hold."""
    parts: list[Batch] = []
    corrupt = held = 0
    sizes = dataset.source.sizes()
    for number in range(len(sizes)):
        batch, wrong = _whole(dataset.source.read(number))
        parts.append(batch)
        corrupt, held = corrupt + wrong, held + len(batch)
        if held >= samples:
            break
    read, schema = concatenated(parts or [dataset.schema.empty()]), dataset.schema
    return DataFigures(
        num_samples=int(sizes.sum()),
        counted=len(read),
        corrupt=corrupt,
        labels={name: _mean(read.labels[:, at]) for at, name in enumerate(schema.labels)},
        dense={name: _mean(read.dense[:, at]) for at, name in enumerate(schema.dense)},
        features=tuple(_feature(each.name, each.num_embeddings, read.ids[each.name]) for each in schema.features),
    )


def check_data(dataset: Dataset, on_progress: Progress = lambda _: None) -> DataCheck:
    """Read a dataset from end to end; corrupt samples are counted, whatever its limit is.

    Raises:
        CorruptFile: a file is damaged, or an id is outside its table.
    """
    examples: list[str] = []
    good = corrupt = 0
    sizes = dataset.source.sizes()
    for number in range(len(sizes)):
        block = dataset.source.read(number)
        batch, wrong = _whole(block)
        good, corrupt = good + len(batch), corrupt + wrong
        if wrong and len(examples) < MOST_CORRUPT_SHOWN:
            examples.append(block.first_corrupt)
        on_progress(good)
    return DataCheck(
        samples=good,
        corrupt=corrupt,
        allowed=dataset.source.max_corrupt,
        examples=tuple(examples),
        blocks=len(sizes),
        largest_block=int(sizes.max(initial=0)),
    )


def _whole(block: Block) -> tuple[Batch, int]:
    """(the samples of a block that are not corrupt, how many are)."""
    if block.valid is None:
        return block.samples, 0
    return block.samples.take(np.flatnonzero(block.valid)), int((~block.valid).sum())


def _mean(values: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> float:
    return float(values.mean(dtype=np.float64)) if len(values) else 0.0


def _feature(name: str, num_embeddings: int | None, bags: JaggedIds) -> FeatureFigures:
    distinct, counts = np.unique(bags.values, return_counts=True)
    ids, samples = len(bags.values), max(len(bags.lengths), 1)
    return FeatureFigures(
        name=name,
        num_embeddings=num_embeddings,
        mean_ids=ids / samples,
        empty=float((bags.lengths == 0).sum()) / samples,
        distinct=len(distinct),
        largest=int(distinct.max(initial=-1)),
        hottest=float(counts.max(initial=0)) / max(ids, 1),
        repeated=repeated_share(bags),
    )


def repeated_share(bags: JaggedIds) -> float:
    """The share of the samples whose bag is, id by id, that of the sample before."""
    lengths = bags.lengths.astype(np.int64)
    if len(lengths) < 2:
        return 0.0
    same = np.append(False, lengths[1:] == lengths[:-1])
    owner: Ints = np.repeat(np.arange(len(lengths)), lengths)
    compared = np.flatnonzero(same[owner])
    differs = bags.values[compared] != bags.values[compared - lengths[owner[compared]]]
    same[owner[compared[differs]]] = False
    return float(same.mean())
