"""Cached outputs of a model's tables for a batch, so that dense layers can be computed again without the tables.

B samples of a batch on this rank
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.distributed.types import ShardedModule
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedTensor

from recsmith.training.batches import TrainingBatch
from recsmith.training.job.agreement import asked_to_end
from recsmith.training.job.models import Task
from recsmith.training.systems.second_order.flat import FlatLayers

TABLES = (ShardedModule, EmbeddingBagCollection, EmbeddingCollection)


@dataclass(frozen=True)
class CachedBatch:
    """A batch, and the outputs of the tables for it, in the order in which the model called them."""

    batch: TrainingBatch
    tables: tuple[Any, ...]

    @property
    def samples(self) -> int:
        """Number of samples that could be read."""
        return len(self.batch.place.samples)


class CachedTables:
    """The tables of a task, sharded or not, whose outputs can be recorded, and replaced by recorded ones."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.modules = _outermost(task)

    @contextmanager
    def recorded(self, batch: TrainingBatch, found: list[CachedBatch]) -> Generator[None]:
        """Record the outputs of tables while the caller calls the task once with the batch; appends them to `found`."""
        given: list[Any] = []

        def listen(ask: Callable[..., Any]) -> Callable[..., Any]:
            def asked(*inputs: Any) -> Any:
                made = ask(*inputs)
                made = made.wait() if hasattr(made, "wait") else made
                given.append(_detached(made))
                return made

            return asked

        with self._answering(listen):
            yield
        found.append(CachedBatch(batch, tuple(given)))

    def losses(self, parameters: Mapping[str, torch.Tensor], part: CachedBatch) -> torch.Tensor:
        """The loss of each sample (B,) under other dense parameters, given by their names in the model."""
        left = iter(part.tables)
        batch, whole = part.batch, part.samples
        with self._answering(lambda _: lambda *_: next(left)):
            logits = functional_call(
                self.task.model, dict(parameters), (batch.dense_features, batch.sparse_features), tie_weights=False
            )
        logits, labels = logits.float().reshape(batch.labels.shape)[:whole], batch.labels[:whole]
        return nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(1)

    def layers(self, parameters: Mapping[str, nn.Parameter]) -> FlatLayers:
        """Parameters of the model as a vector, with the losses of cached batches, which a signal interrupts."""
        return FlatLayers(parameters, self.losses, asked=asked_to_end)

    @contextmanager
    def _answering(self, how: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Generator[None]:
        """Replace the forward pass of each table by what `how` makes of it, within this context."""
        before = [(module, module.__dict__.get("forward"), module.forward) for module in self.modules]
        for module, _, forward in before:
            module.forward = how(forward)
        try:
            yield
        finally:
            for module, own, _ in before:
                if own is None:
                    del module.forward
                else:
                    module.forward = own


def dense_parameters(task: Task, kept: Mapping[Any, Any]) -> dict[str, nn.Parameter]:
    """The parameters of a task's model that are also in `kept`, by their names in the model."""
    wanted = {id(each) for each in kept.values()}
    return {name: each for name, each in task.model.named_parameters() if id(each) in wanted}


def _outermost(module: nn.Module) -> list[Any]:
    """The outermost modules that hold tables."""
    if isinstance(module, TABLES):
        return [module]
    return [found for child in module.children() for found in _outermost(child)]


def _detached(made: Any) -> Any:
    """The same outputs, detached from the autograd graph."""
    if isinstance(made, KeyedTensor):
        return KeyedTensor(made.keys(), made.length_per_key(), made.values().detach(), made.key_dim())
    if isinstance(made, dict):
        return {name: _detached(each) for name, each in made.items()}
    if isinstance(made, JaggedTensor):
        return JaggedTensor(made.values().detach(), lengths=made.lengths(), offsets=made.offsets())
    return made.detach() if isinstance(made, torch.Tensor) else made
