"""Figures of a dataset: what its samples hold, counted."""

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data.batch import Batch, DataFeature, JaggedIds, concatenated
from recsmith.data.converting.tables import KeyColumns, block_keys
from recsmith.data.dataset import Dataset
from recsmith.data.deduplication import distinct_rows, expanded
from recsmith.data.parquet.arrow import StoredFigures
from recsmith.data.parquet.source import ParquetSource
from recsmith.errors import CorruptFile

BATCH_SIZE = 4096  # samples of a batch whose distinct bags are counted, unless another is given


@noun
class FeatureFigures:
    """What was counted of a feature.

    counted: samples. mean_ids: in a bag. empty: share of the bags without ids. distinct: different ids. hottest: share
    of the ids that the most frequent one has. repeated: share of the samples whose bag is that of the sample before.
    duplicates: samples for each distinct bag in a batch (RecD's DedupeFactor). stored: bytes of its column in all
    files, if known.
    """

    name: str
    num_embeddings: int | None
    counted: int
    mean_ids: float
    empty: float
    distinct: int
    largest: int
    hottest: float
    repeated: float
    duplicates: float = 1.0
    stored: int | None = None

    @property
    def reuse(self) -> float:
        """Reads for each different id among those counted."""
        return self.mean_ids * self.counted / max(self.distinct, 1)


@noun
class SessionFigures:
    """Sessions of the counted samples: how many, samples of each, and how many of those follow each other."""

    sessions: int
    samples: float
    side_by_side: float


@noun
class DataFigures:
    """What was counted in the first samples of a dataset, in the order in which they are stored.

    batch_size: samples of a batch whose distinct bags were counted. labels and dense: mean of each column by name.
    sessions: where the data says them. stored: of files of columns.
    """

    num_samples: int
    counted: int
    corrupt: int
    batch_size: int
    labels: dict[str, float]
    dense: dict[str, float]
    features: tuple[FeatureFigures, ...]
    sessions: SessionFigures | None = None
    stored: StoredFigures | None = None


def count_figures(dataset: Dataset, samples: int, batch_size: int = BATCH_SIZE) -> DataFigures:
    """Read at least so many samples of a dataset, or all, and count what they hold; bags repeat within batches."""
    read, corrupt, sessions = first_samples(dataset, samples)
    if not len(read):
        raise CorruptFile(
            f"no sample could be read{f', and {corrupt:,} are corrupt' if corrupt else ''}; "
            "`recsmith data check` says what is wrong"
        )
    source, schema = dataset.source, dataset.schema
    stored = source.stored() if isinstance(source, ParquetSource) else None
    columns = source.columns_of_features if isinstance(source, ParquetSource) else {}
    sizes = {} if stored is None else stored.columns
    return DataFigures(
        num_samples=int(source.sizes().sum()),
        counted=len(read),
        corrupt=corrupt,
        batch_size=batch_size,
        labels={name: _mean(read.labels[:, at]) for at, name in enumerate(schema.labels)},
        dense={name: _mean(read.dense[:, at]) for at, name in enumerate(schema.dense)},
        features=tuple(
            _feature(each, read.ids[each.name], batch_size, sizes.get(columns.get(each.name, "")))
            for each in schema.features
        ),
        sessions=None if sessions is None else session_figures(sessions),
        stored=stored,
    )


def first_samples(dataset: Dataset, samples: int) -> tuple[Batch, int, Ints | None]:
    """(at least so many samples as they are stored, or all; corrupt ones among them; the session of each, if known)."""
    parts: list[Batch] = []
    sessions: list[Ints | None] = []
    corrupt = held = 0
    for number in range(len(dataset.source.sizes())):
        block = dataset.source.read(number)
        keys = block_keys(dataset.source, number, expanded(block.samples), KeyColumns())
        batch = block.whole()
        parts.append(batch)
        sessions.append(keys.session if keys.session is None or block.valid is None else keys.session[block.valid])
        corrupt, held = corrupt + block.corrupt, held + len(batch)
        if held >= samples:
            break
    known = [each for each in sessions if each is not None]
    read = concatenated(parts or [dataset.schema.empty()])
    return read, corrupt, np.concatenate(known) if known and len(known) == len(sessions) else None


def session_figures(sessions: Ints) -> SessionFigures:
    """Sessions in samples as they are stored."""
    count, samples = len(np.unique(sessions)), max(len(sessions), 1)
    runs = int(np.count_nonzero(np.diff(sessions))) + 1
    return SessionFigures(sessions=count, samples=samples / max(count, 1), side_by_side=samples / runs)


def distinct_bags(bags: JaggedIds, batch_size: int) -> Ints:
    """The samples whose bags are the distinct ones of batches of samples that follow each other (U,)."""
    starts = range(0, len(bags.lengths), batch_size)
    found = [
        start + distinct_rows([bags.take(np.arange(start, min(start + batch_size, len(bags.lengths))))])[0]
        for start in starts
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _mean(values: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> float:
    known = values[~np.isnan(values)]  # labels that some samples lack
    return float(known.mean(dtype=np.float64)) if len(known) else 0.0


def _feature(feature: DataFeature, bags: JaggedIds, batch_size: int, stored: int | None) -> FeatureFigures:
    distinct, counts = np.unique(bags.values, return_counts=True)
    ids, samples = len(bags.values), max(len(bags.lengths), 1)
    return FeatureFigures(
        name=feature.name,
        num_embeddings=feature.num_embeddings,
        counted=len(bags.lengths),
        mean_ids=ids / samples,
        empty=float((bags.lengths == 0).sum()) / samples,
        distinct=len(distinct),
        largest=int(distinct.max(initial=-1)),
        hottest=float(counts.max(initial=0)) / max(ids, 1),
        repeated=repeated_share(bags),
        duplicates=len(bags.lengths) / max(len(distinct_bags(bags, batch_size)), 1) if len(bags.lengths) else 1.0,
        stored=stored,
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
