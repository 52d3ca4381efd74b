"""Tables larger than memory, on CPU: all rows in a file, and rows in use in a cache inside FBGEMM's own kernel.

Kassa et al. 2023 (MTrainS, arXiv 2305.01515): lookups are local in time, so a cache of few rows in fast memory and a
fetch ahead of the batch replace most of the table. Every table has a cache of its own, since FBGEMM sums the gradients
of several tables in one cache in another order. Optimizers are FBGEMM's, applied to the rows of the cache.

The kernel (tables.py) maps the ids of a batch to slots, reads rows that the cache lacks, and writes back rows that
leave it. Under the step `prefetch_sparse_dist` a thread does so for the next batch during this batch's backward pass.
The file is temporary: it has no name, and a job that resumes fills a new one from its checkpoint.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from fbgemm_gpu.split_embedding_configs import SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode
from torch import nn
from torchrec.distributed.batched_embedding_kernel import (
    BatchedFusedEmbedding,
    BatchedFusedEmbeddingBag,
    EmbeddingFusedOptimizer,
    data_type_to_sparse_type,
)
from torchrec.distributed.embedding_types import EmbeddingComputeKernel, GroupedEmbeddingConfig
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.types import CacheAlgorithm, CacheParams
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.errors import UsageError
from recsmith.files.writable import check_writable
from recsmith.jobs.sharded_model import NamedShard
from recsmith.plans import Cache, Plan
from recsmith.plans.plan import CachePolicy
from recsmith.sharding import KEY_VALUE, UVM_CACHING
from recsmith.training.stores.device import DeviceRows
from recsmith.training.stores.kernels import kernels_in
from recsmith.training.systems.tiers.shares import PROFILE, check_caches
from recsmith.training.systems.tiers.tables import TieredTables

# Entries of fused_params that a plan with tables on disk sets:
CACHED = ("cache_load_factor", "cache_algorithm", "prefetch_pipeline")


class TieredBag(BatchedFusedEmbeddingBag):
    """TorchRec's kernel of pooled tables, on TieredTables. kept: the keyword arguments of `_tables_of`."""

    def __init__(self, *, config: GroupedEmbeddingConfig, pg: Any, device: Any, sharding_type: Any, env: Any = None,
                 **kept: Any) -> None:  # fmt: skip
        super(BatchedFusedEmbeddingBag, self).__init__(config, pg, device, sharding_type)
        self._emb_module = _tables_of(self, config, device, self._pooling, **kept)
        self._optim = EmbeddingFusedOptimizer(config, self._emb_module, pg)


class TieredSequence(BatchedFusedEmbedding):
    """TorchRec's kernel of tables that are not pooled, on TieredTables. kept: the keyword arguments of `_tables_of`."""

    def __init__(self, *, config: GroupedEmbeddingConfig, pg: Any, device: Any, **kept: Any) -> None:
        super(BatchedFusedEmbedding, self).__init__(config, pg, device)
        self._emb_module = _tables_of(self, config, device, PoolingMode.NONE, **kept)
        self._optim = EmbeddingFusedOptimizer(config, self._emb_module, pg)


def _tables_of(
    kernel: Any, config: GroupedEmbeddingConfig, device: Any, pooling: PoolingMode, *, cache: float | None, folder: str,
    policy: CachePolicy, profile: int, least: Mapping[str, int], shares: Mapping[str, float],
) -> TieredTables:  # fmt: skip
    """The tables of a kernel, for the rows, columns and features that TorchRec has assigned to it.

    cache, policy: for all tables; without a cache, as in the plan. folder: of the file. profile: in batches. least: the
    least number of rows in each table's cache. shares: the share of each table's rows in its cache, by table name.

    Raises:
        UsageError: a table is split by columns, or is not in fp32.
    """
    for table in config.embedding_tables:
        if table.local_cols != table.embedding_dim:
            raise UsageError(
                f"table '{table.name}' is split by columns in the plan, and rows: tiered keeps whole rows; use a "
                "plan of table_wise and row_wise"
            )
        table.compute_kernel = EmbeddingComputeKernel.FUSED_UVM_CACHING  # has TorchRec prefetch it
    precision = data_type_to_sparse_type(config.data_type)
    if precision != SparseType.FP32:
        raise UsageError(f"rows: tiered keeps tables in fp32, and some are {precision.value}; give them fp32")
    kept = [
        _planned(each) if cache is None else (shares.get(each.name, cache), policy == "static")
        for each in config.embedding_tables
    ]
    return TieredTables(
        names=[table.name for table in config.embedding_tables], rows=kernel._local_rows, columns=kernel._local_cols,
        least=[least.get(table.name, 1) for table in config.embedding_tables],
        caches=[share for share, _ in kept], profiles=[profile if static else 0 for _, static in kept],
        folder=folder, feature_table_map=kernel._feature_table_map, pooling_mode=pooling,
        weights_precision=precision, device=device,
        **{name: value for name, value in (config.fused_params or {}).items() if name not in CACHED},
    )  # fmt: skip


def _planned(table: Any) -> tuple[float, bool]:
    """The share of a table's rows that the plan keeps in memory, and whether they are the rows that are read most."""
    return table.fused_params["cache_load_factor"], table.fused_params.get("cache_algorithm") == CacheAlgorithm.LFU


def on_disk(plan: Plan) -> tuple[Plan, dict[str, ParameterConstraints]]:
    """A plan for CPU in TorchRec's words, and the constraints that these words need.

    Tables on disk are called fused_uvm_caching: TorchRec puts tables that it prefetches into separate groups, and has
    no key_value on CPU. Caches that keep the rows that are read most are called LFU.
    """
    cached = [each.table for each in plan.placements if each.compute_kernel == KEY_VALUE.name]
    renamed = tuple(
        replace(each, compute_kernel=UVM_CACHING.name, cache=Cache(load_factor=each.load_factor))
        if each.table in cached
        else each
        for each in plan.placements
    )
    words = {"lru": CacheAlgorithm.LRU, "static": CacheAlgorithm.LFU}
    ahead = {
        each.table: ParameterConstraints(
            cache_params=CacheParams(prefetch_pipeline=True, algorithm=words[each.cache_policy])
        )
        for each in plan.placements
        if each.table in cached
    }
    return replace(plan, placements=renamed), ahead


class TieredRows(DeviceRows):
    """Fused tables in a file, with a share of their rows in memory; other parameters in memory.

    folder: on the disk that holds the file of each rank, with its rows and their optimizer state. cache: the share of
    the rows of all tables that is in memory, but at least the rows of two batches. Without it, the tables that the plan
    keeps on disk (key_value) are in the file, each with the plan's share and policy. policy: lru keeps the rows that
    were read last; static keeps the rows that were read most at the beginning of the job. profile: the number of
    batches whose reads are counted for static.

    Raises:
        UsageError: no rank has such a table, the share is out of range, or the policy is unknown.
    """

    def __init__(self, model: nn.Module, optimizer: CombinedOptimizer | None = None, *, folder: str,
                 cache: float | None = None, policy: CachePolicy | None = None, profile: int = PROFILE
                 ) -> None:  # fmt: skip
        super().__init__(model, optimizer)
        found: list[Any] = [each.emb_module for kind in (TieredBag, TieredSequence) for each in kernels_in(model, kind)]
        self._tables: list[TieredTables] = found

    @staticmethod
    def check_settings(*, folder: str, cache: float | None = None, policy: CachePolicy | None = None,
                       profile: int = PROFILE) -> None:  # fmt: skip
        """Raise UsageError if settings are invalid or the folder cannot be written."""
        check_caches(cache, policy, profile)
        check_writable(folder, "rows.folder", "name another folder")

    @staticmethod
    def kernel(config: GroupedEmbeddingConfig, pooled: bool, device: torch.device, *, folder: str,
               cache: float | None = None, policy: CachePolicy | None = None, profile: int = PROFILE,
               least: Mapping[str, int] | None = None, shares: Mapping[str, float] | None = None,
               ) -> Callable[..., nn.Module] | None:  # fmt: skip
        """The kernel with a cache, for tables that FBGEMM updates in its backward pass, on CPU; None for other tables.

        least, shares: as in `_tables_of`.
        """
        check_caches(cache, policy, profile)
        if device.type != "cpu" or config.compute_kernel != EmbeddingComputeKernel.FUSED:
            return None
        planned = config.embedding_tables[0].compute_kernel == EmbeddingComputeKernel.FUSED_UVM_CACHING
        if cache is None and not planned:
            return None
        kind = TieredBag if pooled else TieredSequence
        return partial(
            kind, folder=folder, cache=cache, policy=policy or "lru", profile=profile, least=least or {},
            shares=shares or {},
        )  # fmt: skip

    def shards(self) -> Iterator[NamedShard]:
        """The shards of whole tables in the file. Caches are emptied, since a caller may write into the file."""
        for tables in self._tables:
            tables.forget()
        return super().shards()

    def lookups(self) -> tuple[int, int]:
        """(lookups of this rank so far, those whose row was not in a cache when its batch was fetched)."""
        return sum(tables.lookups for tables in self._tables), sum(tables.missed for tables in self._tables)

    def waited_s(self) -> float:
        """Seconds so far that lookups waited for rows of the file."""
        return sum(tables.waited_s for tables in self._tables)

    def flush(self) -> None:
        """Write the changed rows of the caches to the file."""
        for tables in self._tables:
            tables.flush()

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimizer state, read from the file after changed rows were written to it."""
        self.flush()
        return super().state_dict()

    def state_to_load(self) -> dict[str, Any]:
        """Weights and optimizer state to load into the file. Caches are emptied first."""
        for tables in self._tables:
            tables.forget()
        return super().state_to_load()
