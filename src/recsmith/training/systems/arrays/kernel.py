"""Tables of all members of an array, looked up and updated as one table K times as wide, on CPU.

All members look up the same ids. So distinct ids are found once, one gather fetches their rows for all members, and one
pooling makes the vectors of all members. An update is one pass over the distinct rows, with a learning rate and a state
for each member, by the formulas of torch.optim.SGD, Adagrad and torchrec's RowWiseAdagrad. TorchRec still sees K
separate tables.

K members, T tables of a member, R rows of these tables, D columns, F features of a member, B samples, U distinct ids
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen
from torch import nn
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbeddingBag, EmbeddingFusedOptimizer
from torchrec.distributed.embedding_types import EmbeddingComputeKernel, GroupedEmbeddingConfig

from recsmith.errors import PlanMismatch
from recsmith.training.optimizers.settings import SparseOptimizer
from recsmith.training.stores.kernels import UpdatedRows


class MembersTables(SplitTableBatchedEmbeddingBagsCodegen):
    """FBGEMM's tables of all members, member by member. rows: of each table of a member. columns: of every table."""

    def __init__(self, *, rows: Sequence[int], columns: int, optimizers: Sequence[SparseOptimizer],
                 feature_table_map: list[int], **given: Any) -> None:  # fmt: skip
        members = len(optimizers)
        spec = (1, columns, EmbeddingLocation.HOST, ComputeDevice.CPU)  # FBGEMM's own memory is not used
        super().__init__([spec] * (members * len(rows)), feature_table_map=feature_table_map, **given)
        ends = torch.tensor(rows).cumsum(0).tolist()
        self._ranges = [slice(end - count, end) for end, count in zip(ends, rows, strict=True)]
        self._block = torch.zeros(members, ends[-1], columns)
        shapes = {EmbOptimType.EXACT_ROWWISE_ADAGRAD: (1,), EmbOptimType.EXACT_ADAGRAD: (columns,)}
        kept = shapes.get(self.optimizer)
        self._sums = None if kept is None else torch.zeros(members, ends[-1], *kept)
        of_one = feature_table_map[: len(feature_table_map) // members]
        self._starts = torch.tensor([self._ranges[table].start for table in of_one])
        self.rates, self._eps = (
            torch.tensor([getattr(each, name) for each in optimizers])[:, None, None]
            for name in ("learning_rate", "eps")
        )

    def split_embedding_weights(self) -> list[torch.Tensor]:
        """The weights of each table of each member (rows, D)."""
        return [of_member[part] for of_member in self._block for part in self._ranges]

    def split_optimizer_states(self) -> list[list[torch.Tensor]]:
        """The optimizer state of each table of each member: a number for each row, or for each weight; none for SGD."""
        if self._sums is None:
            return []
        sums = self._sums[..., 0] if self.optimizer == EmbOptimType.EXACT_ROWWISE_ADAGRAD else self._sums
        return [[of_member[part]] for of_member in sums for part in self._ranges]

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor, per_sample_weights: torch.Tensor | None = None,
                **_: Any) -> torch.Tensor:  # fmt: skip
        """Pooled rows of all features of all members (B, K * F * D); the ids of the first member serve for all."""
        members, features, columns = len(self._block), len(self._starts), self._block.shape[2]
        samples = (len(offsets) - 1) // (members * features)
        ends = offsets[: features * samples + 1]
        here = slice(0, int(ends[-1]))
        ids = indices[here] + self._starts.repeat_interleave(ends[::samples].diff())
        distinct, places = torch.unique(ids, return_inverse=True)
        rows: Any = UpdatedRows.apply(self.placeholder_autograd_tensor, self, 0, distinct)
        weights = None if per_sample_weights is None else per_sample_weights[here]
        pooled = nn.functional.embedding_bag(
            places, rows, ends, mode="sum", include_last_offset=True, per_sample_weights=weights
        )
        if self.pooling_mode == PoolingMode.MEAN:
            pooled = pooled / ends.diff().clamp(min=1)[:, None]
        return pooled.view(features, samples, members, columns).permute(1, 2, 0, 3).flatten(1)

    def rows_read(self, _: int, distinct: torch.Tensor) -> torch.Tensor:
        """The distinct rows, those of all members side by side (U, K * D)."""
        return self._block.index_select(1, distinct).transpose(0, 1).flatten(1)

    def update(self, _: int, distinct: torch.Tensor, gradient: torch.Tensor) -> None:
        """One step of each member's optimizer. gradient: of distinct rows, summed over equal ids (U, K * D)."""
        weights, rows = self._block.index_select(1, distinct), distinct.numpy()
        each = gradient.view(len(distinct), len(self._block), -1).transpose(0, 1)  # (K, U, D)
        if self._sums is not None:
            squares = each.square()
            rowwise = self.optimizer == EmbOptimType.EXACT_ROWWISE_ADAGRAD
            sums = self._sums.index_select(1, distinct).add_(squares.mean(2, keepdim=True) if rowwise else squares)
            self._sums.numpy()[:, rows] = sums.numpy()  # NumPy writes rows in half the time of index_copy_
            each = each / sums.sqrt_().add_(self._eps)
        self._block.numpy()[:, rows] = weights.sub_(each * self.rates).numpy()


class MembersBag(BatchedFusedEmbeddingBag):
    """TorchRec's kernel of pooled tables, which computes with MembersTables."""

    def __init__(self, *, config: GroupedEmbeddingConfig, pg: Any, device: Any, sharding_type: Any, env: Any = None,
                 optimizers: Sequence[SparseOptimizer]) -> None:  # fmt: skip
        super(BatchedFusedEmbeddingBag, self).__init__(config, pg, device, sharding_type)
        tables, members = config.embedding_tables, len(optimizers)
        shapes = [(table.local_rows, table.feature_names) for table in tables]
        if shapes != shapes[: len(tables) // members] * members:
            raise PlanMismatch("tables of an array's members do not lie alike; plan for the tables of one member")
        self._emb_module = MembersTables(
            rows=self._local_rows[: len(tables) // members], columns=self._local_cols[0],
            optimizers=optimizers, feature_table_map=self._feature_table_map,
            table_names=[table.name for table in tables], pooling_mode=self._pooling, device=device,
            **(config.fused_params or {}),
        )  # fmt: skip
        self._optim = EmbeddingFusedOptimizer(config, self._emb_module, pg)


def kernel(
    config: GroupedEmbeddingConfig, pooled: bool, device: torch.device, *, optimizers: Sequence[SparseOptimizer]
) -> Callable[..., nn.Module] | None:
    """The maker of a kernel for all members' tables; None unless they are pooled and updated in backward on a CPU."""
    if not pooled or device.type != "cpu" or config.compute_kernel != EmbeddingComputeKernel.FUSED:
        return None
    return partial(MembersBag, optimizers=optimizers)
