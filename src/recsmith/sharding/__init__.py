"""The seven sharding types of TorchRec, one file each (shards, legality, traffic); kernels; memory of shards."""

from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.sharding._base import WIDTH_STEP, Collective, Shard, ShardingType, Span
from recsmith.sharding.column_wise import ColumnWise
from recsmith.sharding.data_parallel import DataParallel
from recsmith.sharding.grid_shard import GridShard
from recsmith.sharding.kernels import DENSE, FUSED, HOST_KERNELS, KERNEL_NAMES, KERNELS, UVM, UVM_CACHING, Kernel
from recsmith.sharding.row_wise import RowWise
from recsmith.sharding.table_column_wise import TableColumnWise
from recsmith.sharding.table_row_wise import TableRowWise
from recsmith.sharding.table_wise import TableWise

SHARDING_TYPES: tuple[ShardingType, ...] = (
    TableWise(), ColumnWise(), TableColumnWise(), RowWise(), TableRowWise(), GridShard(), DataParallel(),
)  # fmt: skip
TYPE_NAMES: tuple[str, ...] = tuple(kind.name for kind in SHARDING_TYPES)


def sharding_type(name: str) -> ShardingType:
    """The sharding type of a TorchRec name such as 'row_wise'."""
    if name not in TYPE_NAMES:
        raise UsageError(f"no sharding type is called '{name}'{did_you_mean(name, list(TYPE_NAMES))}")
    return SHARDING_TYPES[TYPE_NAMES.index(name)]


__all__ = [
    "DENSE",
    "FUSED",
    "HOST_KERNELS",
    "KERNELS",
    "KERNEL_NAMES",
    "SHARDING_TYPES",
    "TYPE_NAMES",
    "UVM",
    "UVM_CACHING",
    "WIDTH_STEP",
    "Collective",
    "Kernel",
    "Shard",
    "ShardingType",
    "Span",
    "sharding_type",
]
