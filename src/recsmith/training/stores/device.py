"""Rows in device memory, where TorchRec puts them."""

from collections.abc import Iterator
from typing import Any, TypeVar

import torch.distributed as dist
from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen
from torch import nn
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.jobs.sharded_model import NamedShard, named_shards
from recsmith.training.optimizers.dense import joined_weights
from recsmith.training.stores.kernels import kernels_in
from recsmith.training.stores.protocol import RowStore, WholeTensor, host_parameters, towers_in

State = TypeVar("State")


class DeviceRows(RowStore):
    """The shards of a model that TorchRec has sharded, or whole tables if the model is not sharded."""

    def __init__(self, model: nn.Module, optimizer: CombinedOptimizer | None = None) -> None:
        self.model, self.optimizer = model, optimizer

    def shards(self) -> Iterator[NamedShard]:
        """The model's own tensors; bf16 dense layers are given as read-only copies of their fp32 weights."""
        joined, local = joined_weights(self.optimizer), host_parameters(getattr(self.model, "module", self.model))
        for shard in self._at_home(list(named_shards(self.model))):
            everywhere = shard.everywhere and shard.parameter not in local
            yield shard._replace(tensor=joined.get(shard.parameter, shard.tensor), everywhere=everywhere)

    def whole(self) -> dict[str, WholeTensor]:
        """Data types and shapes from the model's state, as in `shards`. If hosts have towers, ranks exchange theirs."""
        state = {**self.model.state_dict(), **joined_weights(self.optimizer)}
        mine = {name: WholeTensor(each.dtype, tuple(each.size())) for name, each in state.items()}
        if all(tables.hosts is None for _, tables in towers_in(self.model)):
            return mine
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, mine)
        return {name: each for theirs in gathered for name, each in theirs.items()}

    def prefetch(self, batch: Any) -> None:
        """Nothing: all rows are in device memory."""

    def flush(self) -> None:
        """Nothing: all rows are in device memory."""

    def state_dict(self) -> dict[str, Any]:
        """Weights and non-empty optimizer state: PyTorch loads no empty part.

        A rank without tables may have no optimizer, for example if a step trains dense layers itself.
        """
        states = {name: part.state_dict()["state"] for name, part in self._optimizers()}
        kept = {name: {key: each for key, each in state.items() if each} for name, state in states.items()}
        parts = {name: {"state": state} for name, state in kept.items() if state}
        return {"model": self.model.state_dict(), **({"optimizer": parts} if parts else {})}

    def state_to_load(self) -> dict[str, Any]:
        """The same content, after optimizers have created their state."""
        for name, part in self._optimizers():
            part.step() if name == "sparse" else part.init_state()
        return self._at_home(self.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Give optimizers their state; weights are in place already."""
        for name, part in self._optimizers():
            if name in state.get("optimizer", {}):
                none = {key: dict[str, Any]() for key in part.state_dict()["state"]}
                part.load_state_dict({"state": {**none, **state["optimizer"][name]["state"]}})

    def _at_home(self, state: State) -> State:
        """The state, after a GPU's caches of host memory were reset, so that its tensors can be written into.

        Changed rows are in host memory by then: a model's `state_dict` has flushed them.
        """
        for tables in kernels_in(self.model, SplitTableBatchedEmbeddingBagsCodegen):
            tables.reset_cache_states()
        return state

    def _optimizers(self) -> list[Any]:
        return [] if self.optimizer is None else list(self.optimizer.optimizers)
