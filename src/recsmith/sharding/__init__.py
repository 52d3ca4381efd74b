"""The seven sharding types of TorchRec, one file each (shards, legality, traffic); kernels; memory of shards."""

from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.sharding.base import (
    DENSE,
    FUSED,
    HOST_KERNELS,
    KERNEL_NAMES,
    KERNELS,
    UVM,
    UVM_CACHING,
    WIDTH_STEP,
    Collective,
    Kernel,
    Shard,
    ShardingType,
    Span,
)
from recsmith.sharding.types import (
    ColumnWise,
    DataParallel,
    GridShard,
    RowWise,
    TableColumnWise,
    TableRowWise,
    TableWise,
)

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
