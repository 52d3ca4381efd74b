"""A row store that keeps rows in memory, and stashes them in a file between lookup and update, on CPU.

TorchRec 1.8 does this with `stash_weights` between a GPU and its host (torchrec/distributed/memory_stashing.py); here
it is done between memory and a file. After a lookup, the tables of its kernel are written out and freed. The gradient
of that lookup restores them before FBGEMM updates them. Results are equal bit by bit, since nothing reads the tables
meanwhile.
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
    """The shards of a model that TorchRec holds, with fused tables stashed in a file while dense layers work.

    folder: of the file. what: weights, or weights_and_state. tables: names of the tables to stash; None: all. when:
    `always`; `auto` is decided before.

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
        """Raise UsageError if a setting is invalid or the folder cannot be written."""
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
        """The model's own tensors, after they are restored."""
        self.flush()
        return super().shards()

    def flush(self) -> None:
        """Restore all stashed tables, such as those that got no gradient in a batch."""
        for each in self.resting:
            each.come_back()

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimizer state, after they are restored."""
        self.flush()
        return super().state_dict()


def _ranges(kernel: Any, what: Stash, tables: Sequence[str] | None) -> Iterator[tuple[int, int]]:
    """(address, bytes) of each tensor of a kernel's tables that is stashed."""
    inner = kernel.emb_module
    names = [table.name for table in kernel.config.embedding_tables]
    states = inner.split_optimizer_states() or [[] for _ in names]
    for name, weights, state in zip(names, inner.split_embedding_weights(), states, strict=True):
        if tables is None or name in tables:
            for tensor in (weights, *(state if what == "weights_and_state" else ())):
                yield tensor.data_ptr(), tensor.numel() * tensor.element_size()


def _rests(kernel: nn.Module, memory: RestingMemory) -> RestingMemory:
    """Stash memory after each lookup of a kernel in training, and restore it before the lookup's gradient is used."""

    def before(*_: Any) -> None:
        memory.come_back()  # if the last lookup got no gradient, or there is a second one before it

    def behind(*given: Any) -> None:
        looked_up: torch.Tensor = given[-1]
        if looked_up.requires_grad:
            looked_up.register_hook(before)
            memory.leave()

    kernel.register_forward_pre_hook(before)
    kernel.register_forward_hook(behind)
    return memory
