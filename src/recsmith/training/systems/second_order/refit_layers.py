"""The layers of a trained model that are fitted to other data, as a vector, and their inputs for a batch.

B samples of a batch; h inputs of the last layer; L labels
"""

from typing import Any

import torch
from torch import nn

from recsmith.errors import UsageError
from recsmith.training.batches import TrainingBatch
from recsmith.training.job.models import Task
from recsmith.training.job.sharded import table_of
from recsmith.training.systems.second_order.cached_tables import CachedBatch, CachedTables
from recsmith.training.systems.second_order.flat import FlatLayers


class LastLayer:
    """The linear layer that makes the logits, copied to float64, and its inputs."""

    def __init__(self, task: Task, batch: TrainingBatch) -> None:
        self.task = task
        seen: list[tuple[str, Any, torch.Tensor]] = []
        named: dict[Any, str] = {each: name for name, each in task.model.named_modules() if isinstance(each, nn.Linear)}

        def notice(module: Any, _: Any, made: Any) -> None:
            seen.append((named[module], module, made))

        hooks = [each.register_forward_hook(notice) for each in named]
        try:
            with torch.no_grad():
                _, (_, logits, _, _) = self.task(batch)
        finally:
            for hook in hooks:
                hook.remove()
        if not seen or not torch.equal(seen[-1][2].float().reshape(logits.shape), logits):
            raise UsageError("the model's logits are not what its last linear layer makes; give --layers dense")
        name, self.linear, _ = seen[-1]
        layer = nn.Linear(self.linear.in_features, self.linear.out_features, self.linear.bias is not None).double()
        layer.load_state_dict(self.linear.state_dict())
        self.names = {each: f"model.{name}.{each}" for each in layer.state_dict()}
        self.fitted = f"the last layer, {sum(each.numel() for each in layer.parameters()):,} weights"
        self.layers = FlatLayers(dict(layer.named_parameters()), self.losses)

    def part(self, batch: TrainingBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """(inputs of the layer (B, h), labels (B, L)) of a batch."""
        kept: list[torch.Tensor] = []
        hook = self.linear.register_forward_pre_hook(lambda _, given: kept.append(given[0].detach().double()))
        try:
            with torch.no_grad():
                self.task(batch)
        finally:
            hook.remove()
        return kept[-1].reshape(len(batch.labels), -1), batch.labels.double()

    @staticmethod
    def losses(parameters: Any, part: Any) -> torch.Tensor:
        """A loss for each sample (B,)."""
        logits = nn.functional.linear(part[0], parameters["weight"], parameters.get("bias"))
        return nn.functional.binary_cross_entropy_with_logits(logits, part[1], reduction="none").mean(1)


class AllLayers:
    """All dense parameters of the model, with cached outputs of its tables."""

    def __init__(self, task: Task, _: TrainingBatch) -> None:
        self.tables = CachedTables(task)
        named = {name: each for name, each in task.model.named_parameters() if not table_of(name)}
        if not named:
            raise UsageError("the model has no dense layer to fit again; train its tables on the data")
        self.names = {name: f"model.{name}" for name in named}
        self.fitted = f"all dense layers, {sum(each.numel() for each in named.values()):,} weights"
        self.layers = self.tables.layers(named)

    def part(self, batch: TrainingBatch) -> CachedBatch:
        """The batch with the outputs of the tables for it."""
        found: list[CachedBatch] = []
        with self.tables.recorded(batch, found), torch.no_grad():
            self.tables.task(batch)
        return found[0]


LAYERS: dict[str, Any] = {"last": LastLayer, "dense": AllLayers}


def size_of(part: Any) -> int:
    """Number of samples of a part."""
    return part.samples if isinstance(part, CachedBatch) else len(part[1])
