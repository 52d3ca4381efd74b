"""Rows in the memory of ranks that rest in a file from lookup to update, on CPU.

What TorchRec 1.8 does with `stash_weights` between a GPU and its host (torchrec/distributed/memory_stashing.py) is done
here between memory and a file: behind a lookup its kernel's tables leave, and the gradient that comes for it brings
them back, before FBGEMM updates them. Not a bit differs, for nobody computes with them meanwhile.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torchrec.distributed.batched_embedding_kernel import BatchedFusedEmbedding, BatchedFusedEmbeddingBag
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.errors import UsageError
from recsmith.files.writable import check_writable
from recsmith.jobs.sharded_model import NamedShard
from recsmith.plans.plan import Stash
from recsmith.training.stores.device import DeviceRows
from recsmith.training.stores.kernels import kernels_in
from recsmith.training.systems.stash.resting import RestingMemory


class StashedRows(DeviceRows):
    """The shards of a model that TorchRec holds, whose fused tables rest in a file while dense layers work.

    folder: of the file. what: weights, or weights_and_state. tables: that rest; None: all. when: `always` here, once
    `auto` was decided.

    Raises:
        UsageError: the folder cannot be written.
    """

    def __init__(
        self, model: nn.Module, optimizer: CombinedOptimizer | None = None, *, folder: str, what: Stash = "weights",
        tables: Sequence[str] | None = None, when: str = "always",
    ) -> None:  # fmt: skip
        super().__init__(model, optimizer)
        del when
        self.resting: list[RestingMemory] = []
        kinds: tuple[type[nn.Module], ...] = (BatchedFusedEmbeddingBag, BatchedFusedEmbedding)
        for kernel in (each for kind in kinds for each in kernels_in(model, kind)):
            ranges = list(_ranges(kernel, what, tables))
            if ranges:
                self.resting.append(_rests(kernel, RestingMemory(folder, ranges)))

    @staticmethod
    def check_settings(*, folder: str, what: str = "weights", tables: Sequence[str] | None = None,
                       when: str = "always") -> None:  # fmt: skip
        """UsageError for what there is not."""
        for name, value, known in (
            ("what", what, ("weights", "weights_and_state")), ("when", when, ("always", "auto")),
        ):  # fmt: skip
            if value not in known:
                raise UsageError(f"rows.{name} is {value}; give {' or '.join(known)}")
        if isinstance(tables, str):
            raise UsageError(f"rows.tables is '{tables}'; give a list of tables: [{tables}]")
        if tables is not None and not tables:
            raise UsageError("rows.tables is empty; name a table, or leave it out, and all rest")
        check_writable(folder, "rows.folder", "name a folder on a disk with room for the tables")

    def shards(self) -> Iterator[NamedShard]:
        """The model's own tensors, which are there."""
        self.flush()
        return super().shards()

    def flush(self) -> None:
        """Bring back what rests, as where a batch had no gradient for it."""
        for each in self.resting:
            each.come_back()

    def state_dict(self) -> dict[str, Any]:
        """Weights and state, which are there."""
        self.flush()
        return super().state_dict()


def _ranges(kernel: Any, what: Stash, tables: Sequence[str] | None) -> Iterator[tuple[int, int]]:
    """(address, bytes) of what rests of a kernel's tables."""
    inner = kernel.emb_module
    names = [table.name for table in kernel.config.embedding_tables]
    states = inner.split_optimizer_states() or [[] for _ in names]
    for name, weights, state in zip(names, inner.split_embedding_weights(), states, strict=True):
        if tables is None or name in tables:
            for tensor in (weights, *(state if what == "weights_and_state" else ())):
                yield tensor.data_ptr(), tensor.numel() * tensor.element_size()


def _rests(kernel: nn.Module, memory: RestingMemory) -> RestingMemory:
    """Have memory leave behind each lookup of a kernel that trains, and come back before its gradient is used."""

    def before(*_: Any) -> None:
        memory.come_back()  # a second lookup before a gradient, or none

    def behind(*given: Any) -> None:
        looked_up: torch.Tensor = given[-1]
        if looked_up.requires_grad:
            looked_up.register_hook(before)
            memory.leave()

    kernel.register_forward_pre_hook(before)
    kernel.register_forward_hook(behind)
    return memory
