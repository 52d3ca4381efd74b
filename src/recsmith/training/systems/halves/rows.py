"""Rows in two halves of 16 bits: lookups read the upper half, which is bf16; updates are exact in fp32, on CPU.

Kalamkar et al. 2020 (split SGD, arXiv 2005.04680): the upper half of an fp32 weight is a bf16 weight, and only the
optimizer needs the lower half. So lookups read half the bytes, no copy of the weights is kept, and no precision is
lost.

A row keeps the memory that it has in fp32: its upper halves come first, then its lower halves. Before code reads the
fp32 weights (checkpoints, exports), rows are joined in place, and the next lookup splits them again. So no more memory
is needed than in fp32, and checkpoints are those of any other job.

Compiled code (pooling.py) widens rows to fp32 as it pools them, sums gradients over equal ids, and updates joined rows
as torch.optim.SGD and torchrec's RowWiseAdagrad do. The bits are those of these optimizers on an fp32 table whose
gradients are summed in the order of ids. If it was not built, PyTorch's operators give the same bits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen
from torch import nn
from torchrec.distributed.batched_embedding_kernel import (
    BatchedFusedEmbedding,
    BatchedFusedEmbeddingBag,
    EmbeddingFusedOptimizer,
)
from torchrec.distributed.embedding_types import EmbeddingComputeKernel, GroupedEmbeddingConfig
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.errors import UsageError
from recsmith.jobs.sharded_model import NamedShard
from recsmith.training.stores.device import DeviceRows
from recsmith.training.stores.kernels import UpdatedRows, kernels_in
from recsmith.training.systems.halves.bfloat16 import ROUNDINGS, join, split
from recsmith.training.systems.halves.pooling import (
    LONGEST,
    PooledHalves,
    descended,
    joined,
    kernels,
    parted,
    upper_rows,
)

BLOCK = 1 << 16  # weights that are split or joined at once: about 1.5 MB of working memory, before or after a step


@dataclass(frozen=True)
class _OneTable:
    """One of several tables, in the form that PooledHalves reads."""

    halves: list[torch.Tensor]
    compiled: bool
    updated: Callable[[torch.Tensor, torch.Tensor], None]
    features: tuple[int, ...] = (1,)

    def update(self, table: int, distinct: torch.Tensor, gradient: torch.Tensor) -> None:
        """Update distinct rows by their gradients."""
        self.updated(distinct, gradient)


class SplitTables(SplitTableBatchedEmbeddingBagsCodegen):
    """FBGEMM's tables on CPU, with weights in halves during training. rows, columns: of the shards of its tables."""

    def __init__(self, *, rows: list[int], columns: list[int], feature_table_map: list[int], upper: str, lower: bool,
                 **given: Any) -> None:  # fmt: skip
        specs = [(*size, EmbeddingLocation.HOST, ComputeDevice.CPU) for size in zip(rows, columns, strict=True)]
        super().__init__(specs, feature_table_map=feature_table_map, **given)
        self._features, self._upper, self._lower = feature_table_map, upper, lower
        self._weights = super().split_embedding_weights()
        self.halves = [each.view(torch.int16) for each in self._weights]
        self.features = [feature_table_map.count(table) for table in range(len(rows))]
        self._states = super().split_optimizer_states() or [[] for _ in rows]
        self._in_halves = False
        self._columns = torch.tensor([columns[table] for table in feature_table_map])
        self.compiled = kernels() is not None
        self.read_bytes = 0  # bytes of weights read by lookups of training so far, for all ids

    def split_embedding_weights(self) -> list[torch.Tensor]:
        """The weights of the tables in fp32, joined in place."""
        self.join()
        return self._weights

    def join(self) -> None:
        """Rebuild fp32 weights in place from their two 16-bit halves."""
        for weights, rows in self._blocks() if self._in_halves else ():
            weights.copy_(self._joined(rows))
        self._in_halves = False

    def _split(self) -> None:
        """Split fp32 weights in place into two 16-bit halves."""
        for weights, rows in self._blocks() if not self._in_halves else ():
            rows.copy_(self._in_parts(weights))
        self._in_halves = True

    def _blocks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """(weights, halves) of a block of rows at a time."""
        for weights, halves in zip(self._weights, self.halves, strict=True):
            count = max(1, BLOCK // weights.shape[1])
            yield from zip(weights.split(count), halves.split(count), strict=True)

    def _joined(self, rows: torch.Tensor) -> torch.Tensor:
        """Convert rows of halves to fp32."""
        return join(*rows.chunk(2, 1), to_nearest=self._upper == "nearest")

    def _in_parts(self, weights: torch.Tensor) -> torch.Tensor:
        """Convert fp32 rows to rows of halves."""
        if self._lower:
            upper, lower = split(weights, to_nearest=self._upper == "nearest")
        else:
            upper, lower = ROUNDINGS[self._upper](weights), torch.zeros(weights.shape, dtype=torch.int16)
        return torch.cat([upper.view(torch.int16), lower], 1)

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, per_sample_weights: torch.Tensor | None = None,
                **named: Any) -> torch.Tensor:  # fmt: skip
        """Look up rows: pooled (samples, columns of all features), or of each id (ids, columns) without pooling."""
        if named.get("batch_size_per_feature_per_rank") is not None:
            raise UsageError("rows: split does not take features of other batch sizes (data.deduplicate); drop one")
        self._split()
        ends = offsets[:: (len(offsets) - 1) // len(self._features) or 1].diff().tolist()
        if torch.is_grad_enabled():
            self.read_bytes += sum(
                self.halves[table].shape[1] * count for table, count in zip(self._features, ends, strict=False)
            )
        if per_sample_weights is not None and per_sample_weights.requires_grad:
            samples, tables = (len(offsets) - 1) // len(self._features), range(len(self.halves))
            return torch.cat(
                [self._learned(table, samples, indices, offsets, per_sample_weights) for table in tables], 1
            )
        anchor, offsets = self.placeholder_autograd_tensor, offsets.long()
        if self.pooling_mode == PoolingMode.NONE:
            return torch.cat(list(self._single(anchor, indices.long(), offsets)))
        pooled: Any = PooledHalves.apply(anchor, self, indices.long(), offsets, per_sample_weights)
        return self._over_counts(pooled, offsets) if self.pooling_mode == PoolingMode.MEAN else pooled

    def _over_counts(self, pooled: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Turn sums of bags into means (samples, columns of all features)."""
        counts = offsets.diff().clamp(min=1).view(len(self._features), -1).T
        return pooled / counts.repeat_interleave(self._columns, 1)

    def _single(self, anchor: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> Iterator[torch.Tensor]:
        """The row of each id of a table's features (ids, columns), table by table."""
        first, samples = 0, (len(offsets) - 1) // len(self._features)
        for table, features in enumerate(self.features):
            here = indices[int(offsets[first * samples]) : int(offsets[(first + features) * samples])]
            one = _OneTable([self.halves[table]], self.compiled, partial(self.update, table))
            made: Any = PooledHalves.apply(anchor, one, here, torch.arange(len(here) + 1), None)
            yield made
            first += features

    def _learned(self, table: int, samples: int, indices: torch.Tensor, offsets: torch.Tensor,
                 weights: torch.Tensor) -> torch.Tensor:  # fmt: skip
        """The bags of a table's features (samples, columns of its features), if weights of ids are learned too."""
        first, count = self._features.index(table), self.features[table]
        ends = offsets[first * samples : (first + count) * samples + 1]
        here = slice(int(ends[0]), int(ends[-1]))
        distinct, places = torch.unique(indices[here], return_inverse=True)
        rows: Any = UpdatedRows.apply(self.placeholder_autograd_tensor, self, table, distinct)
        pooled = nn.functional.embedding_bag(
            places, rows, ends - ends[0], mode="sum", include_last_offset=True, per_sample_weights=weights[here]
        )
        if self.pooling_mode == PoolingMode.MEAN:
            pooled = pooled / ends.diff().clamp(min=1)[:, None]
        return pooled.view(count, samples, -1).transpose(0, 1).flatten(1)

    def rows_read(self, table: int, distinct: torch.Tensor) -> torch.Tensor:
        """The upper halves of distinct rows, widened to fp32."""
        return upper_rows(self.halves[table], distinct)

    def update(self, table: int, distinct: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take one step of the optimizer on distinct rows, in fp32. gradient: of each, summed over equal ids."""
        self._split()
        halves, to_nearest = self.halves[table], self._upper == "nearest"
        rate, compiled, deviation = self.get_learning_rate(), self.compiled and self._lower, None
        if self.optimizer == EmbOptimType.EXACT_ROWWISE_ADAGRAD:
            sums = self._states[table][0]
            sums.index_add_(0, distinct, gradient.pow(2).mean(1))
            deviation = sums.index_select(0, distinct).sqrt().add_(self.optimizer_args.eps)
        if compiled and deviation is not None and gradient.shape[1] <= LONGEST:
            descended(halves, distinct, gradient, deviation, rate=rate, to_nearest=to_nearest)
            return
        if compiled:
            weights = joined(halves, distinct, to_nearest=to_nearest)
        else:
            weights = self._joined(halves.index_select(0, distinct))
        if deviation is None:
            weights.add_(gradient, alpha=-rate)
        else:
            weights.addcdiv_(gradient, deviation[:, None], value=-rate)
        if compiled:
            parted(halves, distinct, weights, to_nearest=to_nearest)
        else:  # NumPy writes rows in half the time of index_copy_
            halves.numpy()[distinct.numpy()] = self._in_parts(weights).numpy()


class SplitBag(BatchedFusedEmbeddingBag):
    """TorchRec's kernel of pooled tables, on SplitTables. upper, lower: as in SplitRows."""

    def __init__(self, *, config: GroupedEmbeddingConfig, pg: Any, device: Any, sharding_type: Any, env: Any = None,
                 upper: str, lower: bool) -> None:  # fmt: skip
        super(BatchedFusedEmbeddingBag, self).__init__(config, pg, device, sharding_type)
        self._emb_module = SplitTables(
            rows=self._local_rows, columns=self._local_cols, feature_table_map=self._feature_table_map, upper=upper,
            lower=lower, table_names=[table.name for table in config.embedding_tables], pooling_mode=self._pooling,
            device=device, **(config.fused_params or {}),
        )  # fmt: skip
        self._optim = EmbeddingFusedOptimizer(config, self._emb_module, pg)


class SplitSequence(BatchedFusedEmbedding):
    """TorchRec's kernel of tables that are not pooled, on SplitTables. upper, lower: as in SplitRows."""

    def __init__(self, *, config: GroupedEmbeddingConfig, pg: Any, device: Any, upper: str, lower: bool) -> None:
        super(BatchedFusedEmbedding, self).__init__(config, pg, device)
        self._emb_module = SplitTables(
            rows=self._local_rows, columns=self._local_cols, feature_table_map=self._feature_table_map, upper=upper,
            lower=lower, table_names=[table.name for table in config.embedding_tables], pooling_mode=PoolingMode.NONE,
            device=device, **(config.fused_params or {}),
        )  # fmt: skip
        self._optim = EmbeddingFusedOptimizer(config, self._emb_module, pg)


class SplitRows(DeviceRows):
    """Fused tables whose lookups read bf16 while they train in fp32; other parameters are unchanged.

    upper: nearest or truncated: how a weight is rounded to bf16. lower: whether to keep the lower halves. Without them
    tables train in bf16 alone, which shows what the lower halves contribute and saves no memory here; then upper may be
    stochastic too.

    Raises:
        UsageError: upper is none of these.
    """

    def __init__(self, model: nn.Module, optimizer: CombinedOptimizer | None = None, *, upper: str = "nearest",
                 lower: bool = True) -> None:  # fmt: skip
        super().__init__(model, optimizer)
        found: list[Any] = [each.emb_module for kind in (SplitBag, SplitSequence) for each in kernels_in(model, kind)]
        self.tables: list[SplitTables] = found

    @staticmethod
    def check_settings(*, upper: str = "nearest", lower: bool = True) -> None:
        """Raise UsageError if `upper` is not a rounding that goes with `lower`."""
        known = [name for name in ROUNDINGS if name != "stochastic" or not lower]
        if upper not in known:
            raise UsageError(f"rows.upper is {upper}, which lower: {str(lower).lower()} has not; {' or '.join(known)}")

    @staticmethod
    def kernel(config: GroupedEmbeddingConfig, pooled: bool, device: torch.device, *, upper: str = "nearest",
               lower: bool = True) -> Callable[..., nn.Module] | None:  # fmt: skip
        """The kernel in halves, for tables that FBGEMM updates in its backward pass, on CPU; None for other tables."""
        SplitRows.check_settings(upper=upper, lower=lower)
        if device.type != "cpu" or config.compute_kernel != EmbeddingComputeKernel.FUSED:
            return None
        return partial(SplitBag if pooled else SplitSequence, upper=upper, lower=lower)

    def shards(self) -> Iterator[NamedShard]:
        """The shards with whole weights, in fp32."""
        self.flush()
        return super().shards()

    def flush(self) -> None:
        """Join the halves in place, for code that reads the weights."""
        for tables in self.tables:
            tables.join()

    def state_dict(self) -> dict[str, Any]:
        """Weights in fp32, and optimizer state."""
        self.flush()
        return super().state_dict()
