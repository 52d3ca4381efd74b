"""The workload to train: sparse features, the embedding tables that they read, and the batch."""

from collections import Counter
from dataclasses import replace
from math import inf
from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules
from recsmith.units import format_size
from recsmith.workloads.access import AccessProfile, HotRows
from recsmith.workloads.data_types import ELEMENT_BYTES, DataType, Pooling
from recsmith.workloads.dynamic import Dynamic
from recsmith.workloads.optimizers import OptimizerName

LARGEST_COUNT = 2**53  # counts below this are exact as floating-point numbers
MOST_TABLES = 1_000_000  # a larger number of tables is taken for a mistake
Pipeline = Literal["none", "sparse_dist", "prefetch_sparse_dist"]
AHEAD = "prefetch_sparse_dist"  # the pipeline that fetches the rows of the next batch while this one trains
IndexDedup = Literal["off", "on", "auto"]
"""Whether a rank looks its equal ids of a sequence table up once (TorchRec's use_index_dedup); auto: where it pays."""


def wrong_name(name: str, what: str) -> str | None:
    """Message for an invalid name; None if the name is valid.

    This is the one rule for names of tables and features: any printable text is a name, such as `items`, `a.b` or
    `type`. The empty text is invalid, and so are control characters, which would break a line of text or a file.
    """
    if not name:
        return f"a {what} needs a name; the empty string is not one"
    bad = next((c for c in name if not c.isprintable()), None)
    return bad and f"{what} name {name!r} holds the control character {bad!r}; names are printable text"


def check_name(name: str, what: str) -> None:
    """Raise UsageError if a table or feature cannot have this name; the rule is that of `wrong_name`."""
    check_rules(wrong_name(name, what))


def wrong_count(value: int | None, what: str) -> str | None:
    """Message for a count outside 1 .. 2^53; None if the count is valid or None."""
    if value is None or 1 <= value < LARGEST_COUNT:
        return None
    return f"{what} is {value}; it must be at least 1 and below 2^53"


def _wrong_amount(value: float, what: str) -> str | None:
    if 0 <= value < LARGEST_COUNT:  # false for NaN
        return None
    return f"{what} is {value}; it must be a finite number, 0 or more, below 2^53"


@noun
class Feature:
    """A sparse feature, whose ids look up rows of a table.

    pooling_factor: mean ids per pooling (0 and fractions are legal).
    num_poolings: poolings per sample.
    weighted: each id carries a weight.
    batch_size: samples per device and step, if it differs from that of the workload.
    """

    name: str
    pooling_factor: float
    num_poolings: float = 1.0
    weighted: bool = False
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_rules(
            wrong_name(self.name, "feature"),
            _wrong_amount(self.pooling_factor, f"pooling_factor of feature '{self.name}'"),
            _wrong_amount(self.num_poolings, f"num_poolings of feature '{self.name}'"),
            wrong_count(self.batch_size, f"batch_size of feature '{self.name}'"),
        )


def _wrong_features(features: tuple[Feature, ...], table: str) -> str | None:
    if not features:
        return f"table '{table}' has no features; give at least one, or a pooling_factor"
    names = [feature.name for feature in features]
    twin = next((name for name in names if names.count(name) > 1), None)
    if twin is not None:
        return f"table '{table}' lists feature '{twin}' twice; list it once"
    if len({feature.weighted for feature in features}) > 1:
        return f"table '{table}' mixes weighted and unweighted features; TorchRec keeps them in two collections"
    return None


@noun
class Table:
    """An embedding table: num_embeddings rows of embedding_dim elements, and the features that read it.

    pooling: 'sum' and 'mean' pool each bag; 'none' returns the rows of a sequence.
    collection: path of the module that owns the table; tables of one collection can share a kernel.
    access: how unevenly rows are read, if known.
    dynamic: how raw ids of any size are assigned to rows of the table; None if each id is a row number.
    optimizer: the optimizer of this table, if it differs from that of the workload.
    """

    name: str
    num_embeddings: int
    embedding_dim: int
    features: tuple[Feature, ...]
    pooling: Pooling = "sum"
    data_type: DataType = "fp32"
    collection: str = ""
    access: AccessProfile | None = None
    dynamic: Dynamic | None = None
    optimizer: OptimizerName | None = None

    def __post_init__(self) -> None:
        check_rules(
            wrong_name(self.name, "table"),
            wrong_count(self.num_embeddings, f"num_embeddings of table '{self.name}'"),
            wrong_count(self.embedding_dim, f"embedding_dim of table '{self.name}'"),
            _wrong_features(self.features, self.name) if len(self.features) != 1 else None,
        )

    @property
    def weighted(self) -> bool:
        """Whether the ids of the table carry weights."""
        return self.features[0].weighted

    @property
    def pooled(self) -> bool:
        """Whether bags are pooled (EmbeddingBagCollection) or returned as sequences (EmbeddingCollection)."""
        return self.pooling != "none"

    @property
    def element_bytes(self) -> int:
        """Bytes per element of a row."""
        return ELEMENT_BYTES[self.data_type]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of the whole table."""
        return self.num_embeddings * self.embedding_dim * self.element_bytes


@noun
class Workload:
    """The workload to train: tables, local batch size (samples per device and step) and sparse optimizer.

    comm_dtype: element type of the embedding all-to-alls, forward and backward; None sends what the kernels produce
        (fp32; TorchRec's own estimator assumes the table's type).
    backward_comm_dtype: element type of the backward all-to-all, if it differs.
    comm_bytes: bytes sent per value, forward and backward, if a job's codecs send no such element type.
    pipeline: the TorchRec train pipeline, which decides how many batches of ids are in flight.
    hot_rows: where the most read rows are, for tables that do not say; None assumes that they are scattered.
    index_dedup: whether each rank looks up equal ids of a sequence table only once. With auto, planning decides; until
        then it counts as off.
    name, source: for people; where the figures come from.
    """

    batch_size: int
    optimizer: OptimizerName
    tables: tuple[Table, ...]
    comm_dtype: DataType | None = None
    backward_comm_dtype: DataType | None = None
    comm_bytes: tuple[float, float] | None = None
    pipeline: Pipeline = "none"
    hot_rows: HotRows | None = None
    index_dedup: IndexDedup = "off"
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        check_rules(
            wrong_count(self.batch_size, "batch_size"),
            _wrong_tables(self.tables),
            None
            if self.comm_bytes is None or all(0 < sent < inf for sent in self.comm_bytes)
            else f"comm_bytes is {list(self.comm_bytes)}; give the bytes of a value forward and backward, above 0",
        )

    def __repr__(self) -> str:
        """Size and settings of the workload, without the single tables."""
        name = f"{self.name!r}, " if self.name else ""
        size = format_size(self.weight_bytes)
        return f"Workload({name}{len(self.tables)} tables, {size}, batch_size={self.batch_size}, {self.optimizer!r})"

    def with_batch_size(self, batch_size: int) -> "Workload":
        """The same workload with another local batch size."""
        return replace(self, batch_size=batch_size)

    def ids_a_sample(self, table: Table) -> float:
        """Mean ids that a table looks up for a sample of the workload's batch, over all its features.

        Features with their own batch size count in proportion to it.
        """
        ids = (f.pooling_factor * f.num_poolings * (f.batch_size or self.batch_size) for f in table.features)
        return sum(ids) / self.batch_size

    def optimizer_of(self, table: Table) -> OptimizerName:
        """The optimizer that trains a table."""
        return table.optimizer or self.optimizer

    @property
    def optimizers(self) -> tuple[OptimizerName, ...]:
        """The optimizers of its tables without repeats, the workload's own first if any table uses it."""
        found: set[OptimizerName] = {self.optimizer_of(table) for table in self.tables}
        return tuple(sorted(found, key=lambda name: (name != self.optimizer, name)))

    @property
    def comm_dtypes(self) -> tuple[DataType | None, DataType | None]:
        """Element types of the all-to-alls, forward and backward; None sends what the kernels produce."""
        return self.comm_dtype, self.backward_comm_dtype or self.comm_dtype

    @property
    def bytes_per_value(self) -> tuple[float | None, float | None]:
        """Bytes of a value in the all-to-alls, forward and backward; None sends what the kernels produce."""
        if self.comm_bytes is not None:
            return self.comm_bytes
        forward, backward = (None if kind is None else float(ELEMENT_BYTES[kind]) for kind in self.comm_dtypes)
        return forward, backward

    def deduplicates(self, table: Table) -> bool:
        """Whether a rank looks up equal ids of this table only once; TorchRec does so only in EmbeddingCollection."""
        return self.index_dedup == "on" and not table.pooled

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of all tables."""
        return sum(table.weight_bytes for table in self.tables)


def _wrong_tables(tables: tuple[Table, ...]) -> str | None:
    if not tables:
        return "the workload has no tables; list at least one"
    if len(tables) > MOST_TABLES:
        return f"the workload has {len(tables):,} tables; at most {MOST_TABLES:,} can be planned"
    twin = next((name for name, count in Counter(table.name for table in tables).items() if count > 1), None)
    return None if twin is None else f"two tables are named '{twin}'; table names must be unique"
