"""A member of an array as a job of its own sees it: its model, and its rows by the names that they have alone."""

from collections.abc import Iterator
from typing import Any

from torch import nn
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.optim.keyed import CombinedOptimizer

from recsmith.jobs.sharded_model import NamedShard
from recsmith.training.arrays.model import Member
from recsmith.training.batches import TrainingBatch
from recsmith.training.stores.device import DeviceRows
from recsmith.training.stores.protocol import WholeTensor


class MemberModel(nn.Module):
    """One model of an array; the others are asked as well, since all have one lookup."""

    def __init__(self, model: DistributedModelParallel, number: int) -> None:
        super().__init__()
        self.model, self.number = model, number

    def forward(self, batch: TrainingBatch) -> Any:
        """(loss, outcome) of this member."""
        _, (losses, logits, labels, place) = self.model(batch)
        loss = losses[self.number]
        return loss, (loss, logits[self.number], labels, place)


class MemberRows(DeviceRows):
    """The parameters of one member of an array, and the state of its optimizers."""

    def __init__(self, model: nn.Module, optimizer: CombinedOptimizer, member: Member) -> None:
        super().__init__(model, optimizer)
        self.member = member

    def shards(self) -> Iterator[NamedShard]:
        """The member's own."""
        for shard in super().shards():
            name = self.member.alone(shard.parameter)
            if name is not None:
                yield shard._replace(parameter=name)

    def whole(self) -> dict[str, WholeTensor]:
        """The member's own."""
        return self._mine(super().whole())

    def state_dict(self) -> dict[str, Any]:
        """As a checkpoint of the member's own run has it."""
        state = super().state_dict()
        return {**state, "model": self._mine(state["model"])}

    def _mine(self, named: dict[str, Any]) -> dict[str, Any]:
        found = {self.member.alone(name): value for name, value in named.items()}
        return {name: value for name, value in found.items() if name is not None}
