"""The seven sharding types of TorchRec (shards, legality, traffic), compute kernels, and the memory of shards."""

from recsmith.sharding.base import (
    CACHED,
    CACHED_KERNELS,
    DENSE,
    DEVICE_KERNELS,
    FUSED,
    HOST_KERNELS,
    KERNEL_NAMES,
    KERNELS,
    KEY_VALUE,
    NOTED_ON_CUDA,
    UVM,
    UVM_CACHING,
    WIDTH_STEP,
    Collective,
    Kernel,
    Shard,
    ShardingType,
    Span,
    leaves_rank_empty,
    widest_piece,
)
from recsmith.sharding.types import (
    DATA_PARALLEL,
    SHARDING_TYPES,
    SPLIT_AT_WILL,
    SPLIT_ROWS,
    TYPE_NAMES,
    sharding_type,
)

__all__ = [
    "CACHED", "CACHED_KERNELS", "DATA_PARALLEL", "DENSE", "DEVICE_KERNELS", "FUSED", "HOST_KERNELS", "KERNELS",
    "KERNEL_NAMES", "KEY_VALUE", "NOTED_ON_CUDA", "SHARDING_TYPES", "SPLIT_AT_WILL", "SPLIT_ROWS", "TYPE_NAMES", "UVM",
    "UVM_CACHING", "WIDTH_STEP", "Collective", "Kernel", "Shard", "ShardingType", "Span", "leaves_rank_empty",
    "sharding_type", "widest_piece",
]  # fmt: skip
