"""Rows in a file on disk, and those in use in a cache inside FBGEMM's own kernel: tables larger than memory, on CPU.

Kassa et al. 2023 (MTrainS, arXiv 2305.01515): lookups are local in time, so a cache of few rows in fast memory and a
fetch ahead of the batch stand in for most of the table. Every table has a cache of its own, since FBGEMM sums the
gradients of several tables in one in another order. Optimizers are FBGEMM's, on the rows of the cache.

A kernel maps the ids of a batch to slots, reads the rows that it lacks, and writes rows that it no longer holds. Under
the step `prefetch_sparse_dist` a thread does so for the next batch while this one goes backward. The file is scratch:
it has no name, and a job that resumes fills a new one from its checkpoint.
"""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from torch import nn
from torchrec.distributed.batched_embedding_kernel import (
    BatchedFusedEmbeddingBag,
    EmbeddingFusedOptimizer,
    data_type_to_sparse_type,
)
from torchrec.distributed.embedding_types import EmbeddingComputeKernel, GroupedEmbeddingConfig
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.types import CacheParams
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.errors import UsageError
from recsmith.jobs.sharded_model import NamedShard
from recsmith.plans import Plan
from recsmith.sharding import KEY_VALUE, UVM_CACHING
from recsmith.sharding.memory import OWN_PER_ROW, OWN_PER_SLOT
from recsmith.training.stores.cache import RowCache, ScratchFile, check_memory
from recsmith.training.stores.device import DeviceRows
from recsmith.training.stores.kernels import kernels_in

CACHED = ("cache_load_factor", "prefetch_pipeline")  # of fused_params: words of a plan with tables on disk
READERS = 8  # threads that read the file, which waits for the disk most of the time
AT_LEAST = 256  # rows a thread reads; fewer are not worth one more


class Fetched(NamedTuple):
    """A batch whose rows are in slots: the slot of each id, and the slots of each table."""

    indices: torch.Tensor
    slots: torch.Tensor
    held: list[Any]


class TieredTables(SplitTableBatchedEmbeddingBagsCodegen):
    """FBGEMM's kernel on the slots of caches, with the whole tables in a file. names, rows: of its tables' shards."""

    def __init__(self, *, names: list[str], rows: list[int], columns: list[int], caches: list[float], folder: str,
                 feature_table_map: list[int], **given: Any) -> None:  # fmt: skip
        slots = [max(1, min(count, round(count * cache))) for count, cache in zip(rows, caches, strict=True)]
        specs = [
            (count, width, EmbeddingLocation.HOST, ComputeDevice.CPU)
            for count, width in zip(slots, columns, strict=True)
        ]
        check_memory(_cache_bytes(rows, columns, slots, given.get("optimizer")))
        super().__init__(specs, feature_table_map=feature_table_map, table_names=names, **given)
        here = [
            [weights, *states]
            for weights, states in zip(
                super().split_embedding_weights(),
                super().split_optimizer_states() or [[] for _ in rows],
                strict=True,
            )
        ]
        # Views without autograd's count of versions: a thread writes into them while a backward pass runs.
        self._here = [[torch.from_numpy(each.numpy()) for each in parts] for parts in here]
        shapes = [(count, *part.shape[1:]) for count, parts in zip(rows, here, strict=True) for part in parts]
        self.file = ScratchFile(folder, shapes)
        arrays = iter(self.file.arrays)
        self._stored = [[torch.from_numpy(next(arrays)) for _ in parts] for parts in here]
        self.caches = [RowCache(*each) for each in zip(names, rows, slots, strict=True)]
        self._features = feature_table_map
        self._ahead: deque[Future[Fetched]] = deque()
        self._training: list[Any] = [np.zeros(0, np.int64) for _ in rows]
        self._readers, self._thread = ThreadPoolExecutor(READERS), ThreadPoolExecutor(1)
        self.prefetch_pipeline = True  # what TorchRec asks for before it calls `prefetch`
        self.lookups, self.missed = 0, 0

    def split_embedding_weights(self) -> list[torch.Tensor]:
        """The whole tables, as they are in the file."""
        return [parts[0] for parts in self._stored]

    def split_optimizer_states(self) -> list[list[torch.Tensor]]:
        """The state of all rows, as it is in the file."""
        return [parts[1:] for parts in self._stored if len(parts) > 1]

    def prefetch(self, indices: torch.Tensor, offsets: torch.Tensor, *_: Any, **__: Any) -> None:
        """Fetch the rows of the next batch in a thread, while this one trains."""
        busy = [self._training]
        self._ahead.append(self._thread.submit(self._fetch, indices, offsets, busy))

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        """Look up rows by their ids, whether fetched before or now."""
        if named.get("batch_size_per_feature_per_rank") is not None:
            raise UsageError("rows: tiered does not take features of other batch sizes (data.deduplicate); drop one")
        ahead = self._ahead[0].result() if self._ahead else None
        if ahead is not None and torch.equal(ahead.indices, indices):
            self._ahead.popleft()
            fetched = ahead
        else:
            fetched = self._fetch(indices, offsets, [ahead.held] if ahead else [])
        self._training = fetched.held
        if torch.is_grad_enabled():
            for cache, slots in zip(self.caches, fetched.held, strict=True):
                cache.changed[slots] = True
        return super().forward(fetched.slots, offsets, *given, **named)

    def flush(self) -> None:
        """Write rows that changed to the file."""
        for future in self._ahead:
            future.result()
        for t, cache in enumerate(self.caches):
            self._move(t, *cache.settled(), into_file=True)
        self.file.expect(random=False)

    def forget(self) -> None:
        """Write rows that changed, and read all anew: somebody is about to write into the file."""
        self.flush()
        self._ahead.clear()
        for cache in self.caches:
            cache.empty()
        self._training = [slots[:0] for slots in self._training]

    def _fetch(self, indices: torch.Tensor, offsets: torch.Tensor, busy: list[list[Any]]) -> Fetched:
        """Slots of all ids. busy: slots of each table, in lists of batches, that keep their rows."""
        self.file.expect(random=True)
        ids = indices.numpy()
        bags = (len(offsets) - 1) // len(self._features)
        bounds = offsets[::bags].tolist() if bags else [0] * (len(self._features) + 1)
        slots, held, reading = np.empty(len(ids), np.int64), list[Any](), list[Future[None]]()
        for t, cache in enumerate(self.caches):
            first = self._features.index(t)
            part = slice(bounds[first], bounds[first + self._features.count(t)])
            rows, places = np.unique(ids[part], return_inverse=True)
            moves = cache.place(rows, [slots_of[t] for slots_of in busy])
            order = np.argsort(moves.left_rows)
            self._move(t, moves.left_rows[order], moves.left_slots[order], into_file=True)
            pieces = max(1, min(READERS, len(moves.read_rows) // AT_LEAST))
            for of_rows, of_slots in zip(
                np.array_split(moves.read_rows, pieces), np.array_split(moves.read_slots, pieces), strict=True
            ):
                reading.append(self._readers.submit(self._move, t, of_rows, of_slots, into_file=False))
            slots[part] = moves.slots[places]
            held.append(moves.slots)
            missed = np.zeros(len(cache.row_of), dtype=bool)
            missed[moves.read_slots] = True
            self.lookups, self.missed = self.lookups + len(places), self.missed + int(missed[slots[part]].sum())
        for each in reading:
            each.result()
        return Fetched(indices, torch.from_numpy(slots), held)

    def _move(self, table: int, rows: Any, slots: Any, *, into_file: bool) -> None:
        """Copy rows and their state from slots into the file, or the other way."""
        if not len(rows):
            return
        of_file, of_cache = torch.from_numpy(rows), torch.from_numpy(slots)
        for here, stored in zip(self._here[table], self._stored[table], strict=True):
            if into_file:
                stored.index_copy_(0, of_file, here.index_select(0, of_cache))
            else:
                here.index_copy_(0, of_cache, stored.index_select(0, of_file))


class TieredBag(BatchedFusedEmbeddingBag):
    """TorchRec's kernel of pooled tables, on TieredTables.

    cache: share of the rows of all tables; None takes each table's of the plan. folder: of the file.
    """

    def __init__(self, *, config: GroupedEmbeddingConfig, pg: Any, device: Any, sharding_type: Any, env: Any = None,
                 cache: float | None, folder: str) -> None:  # fmt: skip
        super(BatchedFusedEmbeddingBag, self).__init__(config, pg, device, sharding_type)
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
        self._emb_module = TieredTables(
            names=[table.name for table in config.embedding_tables], rows=self._local_rows, columns=self._local_cols,
            caches=[_planned(table) if cache is None else cache for table in config.embedding_tables], folder=folder,
            feature_table_map=self._feature_table_map, pooling_mode=self._pooling, weights_precision=precision,
            device=device, **{name: value for name, value in (config.fused_params or {}).items() if name not in CACHED},
        )  # fmt: skip
        self._optim = EmbeddingFusedOptimizer(config, self._emb_module, pg)


def _cache_bytes(rows: list[int], columns: list[int], slots: list[int], optimizer: Any) -> int:
    """Bytes of slots with the state of their rows, of the figures that a cache keeps of each, and of the maps."""
    state = {EmbOptimType.EXACT_ADAGRAD: columns, EmbOptimType.EXACT_ROWWISE_ADAGRAD: [1] * len(columns)}
    kept = state.get(optimizer, [0] * len(columns))
    each = [4 * (width + more) + OWN_PER_SLOT for width, more in zip(columns, kept, strict=True)]
    return OWN_PER_ROW * sum(rows) + sum(count * size for count, size in zip(slots, each, strict=True))


def _planned(table: Any) -> float:
    """The share of a table's rows that the plan keeps in memory."""
    return table.fused_params["cache_load_factor"]


def on_disk(plan: Plan) -> tuple[Plan, dict[str, ParameterConstraints]]:
    """A plan for CPU in TorchRec's words, and what these need beside it.

    Tables on disk are called fused_uvm_caching: TorchRec puts those that it prefetches into groups of their own, and
    has no key_value on CPU.
    """
    cached = [each.table for each in plan.placements if each.compute_kernel == KEY_VALUE.name]
    renamed = tuple(
        replace(each, compute_kernel=UVM_CACHING.name) if each.table in cached else each for each in plan.placements
    )
    ahead = ParameterConstraints(cache_params=CacheParams(prefetch_pipeline=True))
    return replace(plan, placements=renamed), dict.fromkeys(cached, ahead)


class TieredRows(DeviceRows):
    """Pooled, fused tables in a file, with a share of their rows in memory; other parameters in memory.

    folder: on the disk that holds the file of each rank, of rows and their optimizer state. cache: share of the rows of
    all tables that is in memory; without it the tables that the plan keeps on disk (key_value) are in the file, each
    with the plan's share. Two batches' rows of every table have to fit.

    Raises:
        UsageError: the model has no such table on any rank, or the share is none.
    """

    def __init__(self, model: nn.Module, optimizer: CombinedOptimizer | None = None, *, folder: str,
                 cache: float | None = None) -> None:  # fmt: skip
        super().__init__(model, optimizer)
        found: list[Any] = [kernel.emb_module for kernel in kernels_in(model, TieredBag)]
        self._tables: list[TieredTables] = found

    @staticmethod
    def kernel(config: GroupedEmbeddingConfig, pooled: bool, device: torch.device, *, folder: str,
               cache: float | None = None) -> Callable[..., nn.Module] | None:  # fmt: skip
        """A cache for pooled tables that FBGEMM updates in its backward pass, on CPU."""
        if cache is not None and not 0 < cache <= 1:
            raise UsageError(f"rows.cache is {cache}; it is a share of rows, above 0 and at most 1")
        if not pooled or device.type != "cpu" or config.compute_kernel != EmbeddingComputeKernel.FUSED:
            return None
        planned = config.embedding_tables[0].compute_kernel == EmbeddingComputeKernel.FUSED_UVM_CACHING
        if cache is None and not planned:
            return None
        return partial(TieredBag, folder=folder, cache=cache)

    def shards(self) -> Iterator[NamedShard]:
        """Whole tables in the file, which is read anew afterwards."""
        for tables in self._tables:
            tables.forget()
        return super().shards()

    def lookups(self) -> tuple[int, int]:
        """(lookups of this rank so far, those whose row was not in a cache when its batch was fetched)."""
        return sum(tables.lookups for tables in self._tables), sum(tables.missed for tables in self._tables)

    def flush(self) -> None:
        """Write rows of the caches that changed to the file."""
        for tables in self._tables:
            tables.flush()

    def state_dict(self) -> dict[str, Any]:
        """Weights and state, which are read from the file as they are written elsewhere."""
        self.flush()
        return super().state_dict()

    def state_to_load(self) -> dict[str, Any]:
        """The same, into the file."""
        for tables in self._tables:
            tables.forget()
        return super().state_to_load()
