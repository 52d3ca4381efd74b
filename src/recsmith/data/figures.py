"""Statistics of a dataset, counted in its first samples."""

import numpy as np

from recsmith._types import Ints, noun
from recsmith.data.batch import Batch, DataFeature, JaggedIds, concatenated
from recsmith.data.converting.tables import KeyColumns, block_keys
from recsmith.data.dataset import Dataset
from recsmith.data.deduplication import distinct_rows, expanded
from recsmith.data.parquet.arrow import StoredFigures
from recsmith.data.parquet.source import ParquetSource
from recsmith.errors import CorruptFile

BATCH_SIZE = 4096  # default number of samples in the batches in which distinct bags are counted


@noun
class FeatureFigures:
    """Statistics of a feature.

    counted: number of samples. mean_ids: mean number of ids in a bag. empty: share of bags without ids. distinct:
    number of different ids. hottest: share of the most frequent id among all ids. repeated: share of samples whose bag
    equals that of the sample before. duplicates: samples per distinct bag in a batch (RecD's DedupeFactor). stored:
    bytes of the feature's column in all files, if known.
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
        """Number of reads per different id."""
        return self.mean_ids * self.counted / max(self.distinct, 1)


@noun
class SessionFigures:
    """Sessions of the counted samples: their number, mean samples per session, and mean length of a stored run."""

    sessions: int
    samples: float
    side_by_side: float


@noun
class DataFigures:
    """Statistics of the first samples of a dataset, in stored order.

    batch_size: samples in the batches in which distinct bags were counted. labels and dense: mean of each column by
    name. sessions: if the data has sessions. stored: sizes of Parquet and Arrow files.
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
    """Read the first `samples` samples of a dataset or more, up to whole blocks, and compute their statistics."""
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
    """(first `samples` samples or more, up to whole blocks; number of corrupt ones; session of each, if known)."""
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
    """Statistics of sessions. sessions: the session of each sample, in stored order."""
    count, samples = len(np.unique(sessions)), max(len(sessions), 1)
    runs = int(np.count_nonzero(np.diff(sessions))) + 1
    return SessionFigures(sessions=count, samples=samples / max(count, 1), side_by_side=samples / runs)


def distinct_bags(bags: JaggedIds, batch_size: int) -> Ints:
    """For each batch of consecutive samples, the first sample with each distinct bag, all in one array (U,)."""
    starts = range(0, len(bags.lengths), batch_size)
    found = [
        start + distinct_rows([bags.take(np.arange(start, min(start + batch_size, len(bags.lengths))))])[0]
        for start in starts
    ]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _mean(values: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> float:
    known = values[~np.isnan(values)]  # NaN: a label that a sample lacks
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
    """The share of samples whose bag has the same ids as that of the sample before."""
    lengths = bags.lengths.astype(np.int64)
    if len(lengths) < 2:
        return 0.0
    same = np.append(False, lengths[1:] == lengths[:-1])
    owner: Ints = np.repeat(np.arange(len(lengths)), lengths)
    compared = np.flatnonzero(same[owner])
    differs = bags.values[compared] != bags.values[compared - lengths[owner[compared]]]
    same[owner[compared[differs]]] = False
    return float(same.mean())
