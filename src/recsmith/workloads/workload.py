"""A model's embedding tables and the batch that reads them."""

from collections import Counter
from dataclasses import replace
from math import inf
from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules
from recsmith.units import format_size
from recsmith.workloads.optimizers import OptimizerName
from recsmith.workloads.table import ELEMENT_BYTES, DataType, Table, wrong_count

MOST_TABLES = 1_000_000  # more are taken for a mistake
Pipeline = Literal["none", "sparse_dist", "prefetch_sparse_dist"]


@noun
class Workload:
    """What is trained: tables, local batch size (samples per device and step) and sparse optimizer.

    comm_dtype: element type of the embedding all-to-alls, forward and backward; None sends what the kernels produce
        (fp32; TorchRec's own estimator assumes the table's type).
    backward_comm_dtype: that of the backward direction, where it differs.
    comm_bytes: bytes of a value on its way, forward and backward, where codecs of a job send no such element type.
    pipeline: the TorchRec train pipeline, which decides how many batches of ids are in flight.
    name, source: for people; where the figures come from.
    """

    batch_size: int
    optimizer: OptimizerName
    tables: tuple[Table, ...]
    comm_dtype: DataType | None = None
    backward_comm_dtype: DataType | None = None
    comm_bytes: tuple[float, float] | None = None
    pipeline: Pipeline = "none"
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        """Check counts and that table names are unique."""
        check_rules(
            wrong_count(self.batch_size, "batch_size"),
            _wrong_tables(self.tables),
            None
            if self.comm_bytes is None or all(0 < sent < inf for sent in self.comm_bytes)
            else f"comm_bytes is {list(self.comm_bytes)}; give the bytes of a value forward and backward, above 0",
        )

    def __repr__(self) -> str:
        """Its size and settings; never the tables one by one."""
        name = f"{self.name!r}, " if self.name else ""
        size = format_size(self.weight_bytes)
        return f"Workload({name}{len(self.tables)} tables, {size}, batch_size={self.batch_size}, {self.optimizer!r})"

    def with_batch_size(self, batch_size: int) -> "Workload":
        """The same workload at another local batch size."""
        return replace(self, batch_size=batch_size)

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

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tables."""
        return sum(table.weight_bytes for table in self.tables)


def _wrong_tables(tables: tuple[Table, ...]) -> str | None:
    if not tables:
        return "the workload has no tables; list at least one"
    if len(tables) > MOST_TABLES:
        return f"the workload has {len(tables):,} tables; at most {MOST_TABLES:,} can be planned"
    twin = next((name for name, count in Counter(table.name for table in tables).items() if count > 1), None)
    return None if twin is None else f"two tables are named '{twin}'; table names must be unique"
