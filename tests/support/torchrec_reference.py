"""What the TorchRec planner says a table costs, for every way to shard it.

`reference_options` hands a list of tables to TorchRec's own enumerator, performance
estimator and storage estimator, and returns their numbers in this project's units (seconds
and bytes), so that another implementation can be compared with them.

Known limits, all TorchRec's (1.8):

* A sequence table (`EmbeddingCollection`) is offered data_parallel, table_wise, column_wise
  and row_wise only.
* On "cpu" a pooled table is offered no row_wise, table_row_wise or grid_shard, and no table
  is offered the two UVM kernels.
* data_parallel is offered the dense kernel only.
* `Perf.input_dist_comms` is no part of TorchRec's total cost, so it is left out here.
* The prefetch time is zero, as no cache statistics are given; `pipeline` changes the storage
  only.
"""

import logging
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, cast


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Keep the log lines and warnings of TorchRec and of what it imports from the caller."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


with _quiet():
    import torch
    import torchrec.optim
    from torch import nn
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embedding_types import EmbeddingComputeKernel
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.fbgemm_qcomm_codec import (
        CommType,
        QCommsConfig,
        get_qcomm_codecs_registry,
    )
    from torchrec.distributed.planner import ParameterConstraints, Topology
    from torchrec.distributed.planner.constants import (
        CROSS_NODE_BANDWIDTH,
        DDR_MEM_BW,
        HBM_MEM_BW,
        HBM_TO_DDR_MEM_BW,
        INTRA_NODE_BANDWIDTH,
    )
    from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
    from torchrec.distributed.planner.shard_estimators import (
        EmbeddingPerfEstimator,
        EmbeddingStorageEstimator,
    )
    from torchrec.distributed.planner.types import Shard, ShardingOption
    from torchrec.distributed.planner.utils import build_sharder_data_map, sharder_name
    from torchrec.distributed.types import CacheParams, ModuleSharder, PipelineType, ShardingType
    from torchrec.modules.embedding_configs import (
        DataType,
        EmbeddingBagConfig,
        EmbeddingConfig,
    )
    from torchrec.modules.embedding_modules import (
        EmbeddingBagCollection,
        EmbeddingCollection,
    )

_DENSE: Final = EmbeddingComputeKernel.DENSE.value
_SHARDING_TYPES: Final = tuple(kind.value for kind in ShardingType)
_MS_PER_S: Final = 1000.0

_DATA_TYPES: Final = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}
_COMM_TYPES: Final = {
    "fp32": CommType.FP32,
    "fp16": CommType.FP16,
    "bf16": CommType.BF16,
    "int8": CommType.INT8,
}
_PIPELINES: Final = {
    None: PipelineType.NONE,
    "sparse_dist": PipelineType.TRAIN_SPARSE_DIST,
    "prefetch_sparse_dist": PipelineType.TRAIN_PREFETCH_SPARSE_DIST,
}
_OPTIMIZERS: Final[dict[str, type[torch.optim.Optimizer]]] = {
    "sgd": torchrec.optim.SGD,
    "adagrad": torchrec.optim.Adagrad,
    "rowwise_adagrad": torchrec.optim.RowWiseAdagrad,
    "partial_rowwise_adam": torchrec.optim.PartialRowWiseAdam,
    "adam": torchrec.optim.Adam,
    "lamb": torchrec.optim.LAMB,
}


@dataclass(frozen=True, kw_only=True)
class ReferenceFeature:
    """A feature looked up in a table; `batch_size` None means the batch size of the call."""

    name: str
    pooling_factor: float
    num_poolings: float = 1.0
    batch_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class ReferenceTable:
    """An embedding table.

    `data_type` is "fp32", "fp16" or "bf16". `optimizer` is what
    `apply_optimizer_in_backward` would attach: None, "sgd", "adagrad", "rowwise_adagrad",
    "partial_rowwise_adam", "adam" or "lamb".
    """

    name: str
    rows: int
    dim: int
    features: tuple[ReferenceFeature, ...]
    data_type: str = "fp32"
    pooled: bool = True
    weighted: bool = False
    optimizer: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReferenceCluster:
    """The devices; bandwidths are in bytes per second, None for TorchRec's own default."""

    world_size: int
    local_world_size: int
    compute_device: str = "cuda"
    hbm_cap: int
    ddr_cap: int
    hbm_mem_bw: float | None = None
    ddr_mem_bw: float | None = None
    hbm_to_ddr_mem_bw: float | None = None
    intra_host_bw: float | None = None
    inter_host_bw: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReferenceShard:
    """One shard of a table, in the order of TorchRec's `ShardingOption.shards`."""

    rows: int
    columns: int
    row_offset: int
    column_offset: int
    forward_compute_s: float
    forward_comm_s: float
    backward_compute_s: float
    backward_comm_s: float
    prefetch_s: float
    hbm_bytes: int
    ddr_bytes: int


@dataclass(frozen=True, kw_only=True)
class ReferenceOption:
    """One way to shard a table, and what TorchRec says of each shard."""

    table: str
    sharding_type: str
    compute_kernel: str
    shards: tuple[ReferenceShard, ...]


class _BagSharder(EmbeddingBagCollectionSharder):
    """TorchRec's own, which also offers the dense kernel for the model-parallel types."""

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return _with_dense(super().compute_kernels(sharding_type, compute_device_type))


class _SequenceSharder(EmbeddingCollectionSharder):
    """TorchRec's own, which also offers the dense kernel for the model-parallel types."""

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return _with_dense(super().compute_kernels(sharding_type, compute_device_type))


def reference_options(
    tables: Sequence[ReferenceTable],
    cluster: ReferenceCluster,
    *,
    batch_size: int,
    kernels: Sequence[str] = ("dense", "fused", "fused_uvm", "fused_uvm_caching"),
    comm_dtype: str | None = None,
    backward_comm_dtype: str | None = None,
    min_partition: int | None = None,
    pipeline: str | None = None,
    cache_factor: float | None = None,
) -> list[ReferenceOption]:
    """Every sharding option TorchRec offers for `tables`, with its costs and its storage.

    The options come in the order of `tables`, then of `ShardingType`, then of `kernels`. What
    TorchRec does not offer for a table is not there. `batch_size` is per device.
    `comm_dtype` is None, "fp32", "fp16", "bf16" or "int8", forward, and backward where `backward_comm_dtype` is None.
    `min_partition` is the least width of a column shard, None for TorchRec's own (128). `pipeline` is None,
    "sparse_dist" or "prefetch_sparse_dist". `cache_factor` is the load factor of caches, None for TorchRec's own.
    """
    names = [table.name for table in tables]
    if len(set(names)) != len(names):
        raise ValueError("table names must be unique")
    with _quiet():
        bare = tuple(replace(table, optimizer=None) for table in tables)
        found = _timed_options(
            bare, cluster, batch_size, tuple(kernels), (comm_dtype, backward_comm_dtype), min_partition, cache_factor
        )
        _estimate_storage(found, tables, cluster, batch_size, min_partition, pipeline)
    return [
        ReferenceOption(
            table=option.name,
            sharding_type=option.sharding_type,
            compute_kernel=option.compute_kernel,
            shards=tuple(_reference_shard(shard) for shard in option.shards),
        )
        for option in found
    ]


@lru_cache(maxsize=4)
def _timed_options(
    tables: tuple[ReferenceTable, ...],
    cluster: ReferenceCluster,
    batch_size: int,
    kernels: tuple[str, ...],
    comm_dtypes: tuple[str | None, str | None],
    min_partition: int | None,
    cache_factor: float | None,
) -> list[ShardingOption]:
    """The options with their times, which depend on neither optimizer nor pipeline and are slow to get."""
    module = _module(tables)
    sharders = _sharders(*comm_dtypes, cluster.compute_device)
    offered = sharders[0].compute_kernels(ShardingType.TABLE_WISE.value, cluster.compute_device)
    found: list[ShardingOption] = []
    # The enumerator drops the dense kernel where fused is allowed: ask for it alone.
    for share in ([k for k in kernels if k == _DENSE], [k for k in kernels if k != _DENSE]):
        if not set(share).isdisjoint(offered):
            constraints = {
                table.name: _constraints(table, batch_size, share, min_partition, cache_factor) for table in tables
            }
            topology = _topology(cluster)
            enumerator = EmbeddingEnumerator(
                topology=topology,
                batch_size=batch_size,
                constraints=constraints,
                estimator=EmbeddingPerfEstimator(topology=topology, constraints=constraints),
            )
            found += enumerator.enumerate(module, sharders)
    order = {table.name: i for i, table in enumerate(tables)}
    found.sort(
        key=lambda option: (
            order[option.name],
            _SHARDING_TYPES.index(option.sharding_type),
            kernels.index(option.compute_kernel),
        )
    )
    return found


def _estimate_storage(
    found: list[ShardingOption],
    tables: Sequence[ReferenceTable],
    cluster: ReferenceCluster,
    batch_size: int,
    min_partition: int | None,
    pipeline: str | None,
) -> None:
    """Set the storage of every shard anew."""
    optimizers = {table.name: table.optimizer for table in tables}
    for option in found:
        optimizer = optimizers[option.name]
        # What `apply_optimizer_in_backward` leaves, and all that the estimator reads.
        vars(option.tensor)["_optimizer_classes"] = [None if optimizer is None else _OPTIMIZERS[optimizer]]
    estimator = EmbeddingStorageEstimator(
        topology=_topology(cluster),
        constraints={table.name: _constraints(table, batch_size, [], min_partition) for table in tables},
        pipeline_type=_PIPELINES[pipeline],
    )
    sharders = _sharders(None, None, cluster.compute_device)
    estimator.estimate(found, build_sharder_data_map({sharder_name(each.module_type): each for each in sharders}))


def _with_dense(kernels: list[str]) -> list[str]:
    return kernels if _DENSE in kernels else [_DENSE, *kernels]


def _module(tables: Sequence[ReferenceTable]) -> nn.Module:
    """A collection for each table.

    The estimates do not depend on how tables are grouped, and this way tables of any mix of
    widths and of weighted and unweighted features can be asked for at once.
    """
    return nn.ModuleList(_collection(table) for table in tables)


def _collection(table: ReferenceTable) -> nn.Module:
    meta = torch.device("meta")
    data_type = _DATA_TYPES[table.data_type]
    feature_names = [feature.name for feature in table.features]
    collection: EmbeddingBagCollection | EmbeddingCollection
    if table.pooled:
        collection = EmbeddingBagCollection(
            tables=[
                EmbeddingBagConfig(
                    name=table.name,
                    num_embeddings=table.rows,
                    embedding_dim=table.dim,
                    feature_names=feature_names,
                    data_type=data_type,
                )
            ],
            is_weighted=table.weighted,
            device=meta,
        )
    else:
        collection = EmbeddingCollection(
            tables=[
                EmbeddingConfig(
                    name=table.name,
                    num_embeddings=table.rows,
                    embedding_dim=table.dim,
                    feature_names=feature_names,
                    data_type=data_type,
                )
            ],
            device=meta,
        )
    return collection


def _sharders(
    comm_dtype: str | None, backward_comm_dtype: str | None, compute_device: str
) -> list[ModuleSharder[nn.Module]]:
    registry = None
    if comm_dtype is not None:
        precision = _COMM_TYPES[comm_dtype]
        backward = _COMM_TYPES[backward_comm_dtype or comm_dtype]
        registry = get_qcomm_codecs_registry(
            QCommsConfig(forward_precision=precision, backward_precision=backward),
            device=torch.device(compute_device),
        )
    return [
        cast(ModuleSharder[nn.Module], _BagSharder(qcomm_codecs_registry=registry)),
        cast(ModuleSharder[nn.Module], _SequenceSharder(qcomm_codecs_registry=registry)),
    ]


def _constraints(
    table: ReferenceTable,
    batch_size: int,
    kernels: list[str],
    min_partition: int | None,
    cache_factor: float | None = None,
) -> ParameterConstraints:
    features = table.features
    return ParameterConstraints(
        sharding_types=list(_SHARDING_TYPES),  # grid_shard is only offered when asked for
        compute_kernels=kernels,
        min_partition=min_partition,
        pooling_factors=[feature.pooling_factor for feature in features],
        num_poolings=[feature.num_poolings for feature in features],
        batch_sizes=[batch_size if feature.batch_size is None else feature.batch_size for feature in features],
        is_weighted=table.weighted,  # read for sequence tables only
        feature_names=[feature.name for feature in features],
        cache_params=None if cache_factor is None else CacheParams(load_factor=cache_factor),
    )


def _topology(cluster: ReferenceCluster) -> Topology:
    return Topology(
        world_size=cluster.world_size,
        local_world_size=cluster.local_world_size,
        compute_device=cluster.compute_device,
        hbm_cap=cluster.hbm_cap,
        ddr_cap=cluster.ddr_cap,
        hbm_mem_bw=_bytes_per_ms(cluster.hbm_mem_bw, HBM_MEM_BW),
        ddr_mem_bw=_bytes_per_ms(cluster.ddr_mem_bw, DDR_MEM_BW),
        hbm_to_ddr_mem_bw=_bytes_per_ms(cluster.hbm_to_ddr_mem_bw, HBM_TO_DDR_MEM_BW),
        intra_host_bw=_bytes_per_ms(cluster.intra_host_bw, INTRA_NODE_BANDWIDTH),
        inter_host_bw=_bytes_per_ms(cluster.inter_host_bw, CROSS_NODE_BANDWIDTH),
    )


def _bytes_per_ms(bytes_per_second: float | None, default: float) -> float:
    return default if bytes_per_second is None else bytes_per_second / _MS_PER_S


def _reference_shard(shard: Shard) -> ReferenceShard:
    perf, storage = shard.perf, shard.storage
    if perf is None or storage is None:
        raise ValueError(f"TorchRec left a shard without an estimate: {shard}")
    rows, columns = shard.size
    row_offset, column_offset = shard.offset
    return ReferenceShard(
        rows=rows,
        columns=columns,
        row_offset=row_offset,
        column_offset=column_offset,
        forward_compute_s=perf.fwd_compute / _MS_PER_S,
        forward_comm_s=perf.fwd_comms / _MS_PER_S,
        backward_compute_s=perf.bwd_compute / _MS_PER_S,
        backward_comm_s=perf.bwd_comms / _MS_PER_S,
        prefetch_s=perf.prefetch_compute / _MS_PER_S,
        hbm_bytes=storage.hbm,
        ddr_bytes=storage.ddr,
    )
