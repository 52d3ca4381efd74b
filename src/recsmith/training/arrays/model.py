"""The models of an array as one: tables of all members in one collection, layers of equal shape as batched products.

A feature is looked up in a table of each member. To TorchRec these are what the pieces of a table K times as wide would
be: ids cross once for each, all lookups are one kernel, and row-wise optimizers keep a state for each member.

K members, B samples, L labels, T features, D columns of a table
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, vmap
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedTensor
from torchrec.modules.embedding_modules import get_embedding_names_by_table

from recsmith.training.arrays.members import check_array, members_of
from recsmith.training.batches import Place, TrainingBatch
from recsmith.training.models import Task, Unsharded, build_task
from recsmith.training.refusals import array_parts, check_together
from recsmith.training.run import BUILT_IN, Run
from recsmith.training.sources import BatchSource, open_source
from recsmith.training.tables.plain import features_of, initial_weights_of, plain
from recsmith.training.tables.protocol import InitialWeights

ArrayOutcome = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Place]  # losses (K,), logits (K, B, L), labels, place


class GivenTables(nn.Module):
    """In place of a member's tables: it answers with the pooled vectors that it was given last (B, T * D)."""

    def __init__(self, tables: EmbeddingBagCollection) -> None:
        super().__init__()
        configs = tables.embedding_bag_configs()
        self.keys = [name for config in configs for name in config.feature_names]
        self.widths = [config.embedding_dim for config in configs for _ in config.feature_names]
        self.pooled: Any = None

    def forward(self, _: Any) -> KeyedTensor:
        """What was given."""
        return KeyedTensor(self.keys, self.widths, self.pooled)


@dataclass(frozen=True)
class Member:
    """A model of an array: its run, its layers, and by what names its parameters go when it is trained alone.

    number: its place among the members. path: of its tables in its model. initial: how these start.
    """

    name: str
    number: int
    run: Run
    task: Task
    given: GivenTables
    configs: tuple[EmbeddingBagConfig, ...]
    path: str
    initial: Mapping[str, InitialWeights]

    def table(self, name: str) -> str:
        """The array's name of a table of the member."""
        return f"{name}__{self.name}"

    def names(self) -> dict[str, str]:
        """Names of tables' parameters alone, by those in the array."""
        return {
            f"tables.embedding_bags.{self.table(config.name)}.weight":
            f"{self.path}.embedding_bags.{config.name}.weight" for config in self.configs
        }  # fmt: skip

    def alone(self, parameter: str) -> str | None:
        """The name that a parameter of the array has in the member's own model; None of another member's."""
        own = f"layers.members.{self.number}."
        return parameter.removeprefix(own) if parameter.startswith(own) else self.names().get(parameter)


def member_of(name: str, number: int, run: Run, source: BatchSource) -> Member:
    """A member's layers as its own run begins with them; its tables are taken out."""
    task = build_task(run.model, source.schema, run.seed)
    initial = initial_weights_of(task)
    found: list[Any] = [each for each in task.named_modules() if isinstance(each[1], EmbeddingBagCollection)]
    [(path, tables)] = found
    given, configs = GivenTables(tables), tuple(tables.embedding_bag_configs())
    for module in list(task.modules()):
        for child, inner in list(module.named_children()):
            if inner is tables:
                setattr(module, child, given)
    return Member(name, number, run, task, given, configs, path, initial)


class Layers(nn.Module):
    """The dense layers of all members. alive: (K,), whether a member's loss counts; one that has diverged does not."""

    def __init__(self, members: Sequence[Member]) -> None:
        super().__init__()
        self.members = nn.ModuleList(member.task for member in members)
        self.given = [member.given for member in members]
        self.groups = list(_groups(members))
        self.alive = torch.ones(len(members), dtype=torch.bool)
        self.named: dict[int, dict[str, list[torch.Tensor]]] = {}  # parameters of a group's members, found once

    def forward(self, pooled: torch.Tensor, batch: TrainingBatch) -> tuple[torch.Tensor, ArrayOutcome]:
        """(sum of losses, outcome). pooled: vectors of each member (B, K, T * D)."""
        logits: list[Any] = [None] * len(self.members)
        for group in self.groups:
            for number, each in zip(group, self._logits(group, pooled, batch), strict=True):
                logits[number] = each.float().reshape(batch.labels.shape)
        whole = len(batch.place.samples)
        outputs, labels = torch.stack(logits)[:, :whole], batch.labels[:whole]
        entropy = nn.functional.binary_cross_entropy_with_logits(outputs, labels.expand_as(outputs), reduction="none")
        losses = entropy.sum((1, 2)) / batch.labels.numel()
        loss = torch.where(self.alive.to(losses.device), losses, 0.0).sum()
        return loss, (losses.detach(), outputs.detach(), labels, batch.place)

    def _logits(self, group: Sequence[int], pooled: torch.Tensor, batch: TrainingBatch) -> Any:
        """Of the members of a group: as batched products where there are several, whose models are alike."""
        models: list[Any] = [self.members[number].model for number in group]
        given = self.given[group[0]]
        if len(group) == 1:
            given.pooled = pooled[:, group[0]]
            return [models[0](batch.dense_features, batch.sparse_features)]

        def one(weights: dict[str, torch.Tensor], vectors: torch.Tensor) -> torch.Tensor:
            given.pooled = vectors
            return functional_call(models[0], weights, (batch.dense_features, batch.sparse_features))

        if group[0] not in self.named:
            each = [dict(model.named_parameters()) for model in models]  # buffers of built-in models are alike
            self.named[group[0]] = {name: [named[name] for named in each] for name in each[0]}
        stacked = {name: torch.stack(found) for name, found in self.named[group[0]].items()}
        theirs = pooled if len(group) == pooled.shape[1] else pooled[:, group]
        return vmap(one, in_dims=(0, 1))(stacked, theirs)


class ArrayTask(nn.Module):
    """All members: one lookup in the tables of all, and the layers of each."""

    def __init__(self, members: Sequence[Member], weighted: bool) -> None:
        super().__init__()
        configs = [replace(config, name=member.table(config.name)) for member in members for config in member.configs]
        self.tables = plain(configs, torch.device("meta"), weighted)
        self.layers = Layers(members)
        names = iter(get_embedding_names_by_table(configs))
        self.keys = [key for member in members for _ in member.configs for key in next(names)]
        self.count = len(members)

    def forward(self, batch: TrainingBatch) -> tuple[torch.Tensor, ArrayOutcome]:
        """(loss, outcome), as TorchRec's pipelines want it."""
        return self.layers(self.split(self.tables(batch.sparse_features)), batch)

    def split(self, pooled: KeyedTensor) -> torch.Tensor:
        """The vectors of each member (B, K, T * D), its features in the order in which it has them alone."""
        [ordered] = KeyedTensor.regroup([pooled], [self.keys])
        return ordered.unflatten(1, (self.count, -1))


def _groups(members: Sequence[Member]) -> Iterator[list[int]]:
    """Members whose layers are alike; one of the user's has a group of its own, since nobody knows what it does."""
    left = list(members)
    while left:
        first = left[0]
        alike = [each for each in left if each.run.model == first.run.model] if _batches(first) else [first]
        left = [each for each in left if each not in alike]
        yield [each.number for each in alike]


def _batches(member: Member) -> bool:
    return member.run.model.name in BUILT_IN


@dataclass(frozen=True)
class UnshardedArray:
    """An array with its data and its model. parts: as a run's."""

    members: tuple[Member, ...]
    parts: Unsharded


def unsharded_array(run: Run, source: BatchSource | None = None, without: Sequence[str] = ()) -> UnshardedArray:
    """An array's models, built for its data. without: members that have ended.

    Raises what opening data and building a model raise.
    """
    check_array(run)
    source = source or open_source(run)
    runs = {name: each for name, each in members_of(run).items() if name not in without}
    for each in (run, *runs.values()):
        check_together(array_parts(each))
    members = tuple(member_of(name, number, each, source) for number, (name, each) in enumerate(runs.items()))
    weighted = any(feature.weighted for feature in source.schema.features)
    task: Any = ArrayTask(members, weighted)
    features = features_of(task)
    once = replace(features, names=tuple(dict.fromkeys(features.names)))
    return UnshardedArray(members, Unsharded(run, source, task, once))
