"""The models of an array as one: tables of all members in one collection, layers of equal shape as batched products.

A feature is looked up in a table of each member. To TorchRec these are what the pieces of a table K times as wide would
be: ids cross once for each, all lookups are one kernel, and row-wise optimizers keep a state for each member.

K members, B samples, L labels, T features, D columns of a table
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedTensor
from torchrec.modules.embedding_modules import get_embedding_names_by_table

from recsmith.training.batches import Place, TrainingBatch
from recsmith.training.job.models import Task, Unsharded, build_task, by_label
from recsmith.training.run import BUILT_IN, Run
from recsmith.training.run.refusals import check_together
from recsmith.training.sources import BatchSource, open_source
from recsmith.training.systems.arrays.gains import ArrayGain, predicted_gain
from recsmith.training.systems.arrays.layer_memory import LayerMemory, StepWithin
from recsmith.training.systems.arrays.members import check_array, members_of
from recsmith.training.systems.arrays.parts import array_parts
from recsmith.training.systems.arrays.scheduling.profiling import logits_of
from recsmith.training.systems.arrays.scheduling.scheduler import ArraySchedule
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

    def __init__(self, members: Sequence[Member], memory: int | None = None) -> None:
        super().__init__()
        self.members = nn.ModuleList(member.task for member in members)
        self.given = [member.given for member in members]
        self.groups = list(_groups(members))
        models = [member.task.model for member in members]
        self.memory = None if memory is None else LayerMemory(memory, self.groups, models, self.given)
        self.alive = torch.ones(len(members), dtype=torch.bool)

    def forward(self, pooled: torch.Tensor, batch: TrainingBatch) -> tuple[torch.Tensor, ArrayOutcome]:
        """(sum of losses, outcome). pooled: vectors of each member (B, K, T * D)."""
        if self.memory is not None and torch.is_grad_enabled():
            own = [each for named in self.named for each in named.values()]
            loss, losses, outputs = StepWithin.apply(self, batch, pooled, *own)  # type: ignore[misc]
        else:
            outputs = self._logits(pooled, batch)
            losses = self.losses(outputs, batch)
            loss = self.loss(losses)
        whole = len(batch.place.samples)
        return loss, (losses.detach(), outputs.detach()[:, :whole], batch.labels[:whole], batch.place)

    @cached_property
    def named(self) -> list[dict[str, torch.Tensor]]:
        """Parameters of each member's layers, found once; buffers of built-in models are alike."""
        return [dict(member.model.named_parameters()) for member in self.members]  # type: ignore[union-attr]

    def losses(self, logits: torch.Tensor, batch: TrainingBatch) -> torch.Tensor:
        """Of members whose logits these are (n, B, L): (n,)."""
        whole = len(batch.place.samples)
        outputs, labels = logits[:, :whole], batch.labels[:whole]
        entropy = nn.functional.binary_cross_entropy_with_logits(outputs, labels.expand_as(outputs), reduction="none")
        return entropy.sum((1, 2)) / batch.labels.numel()

    def loss(self, losses: torch.Tensor, numbers: Sequence[int] | None = None) -> torch.Tensor:
        """The sum of those that count. numbers: of the members; all, where there are none."""
        alive = self.alive if numbers is None else self.alive[list(numbers)]
        return torch.where(alive.to(losses.device), losses, 0.0).sum()

    def _logits(self, pooled: torch.Tensor, batch: TrainingBatch) -> torch.Tensor:
        """(K, B, L): as batched products of members whose models are alike."""
        logits: list[Any] = [None] * len(self.members)
        for group in self.groups:
            models: list[Any] = [self.members[number].model for number in group]
            named = {name: [self.named[number][name] for number in group] for name in self.named[group[0]]}
            theirs = pooled if len(group) == pooled.shape[1] else pooled[:, group]
            inputs = batch.dense_features, batch.sparse_features
            found = logits_of(models, self.given[group[0]], named, theirs, inputs)
            for number, each in zip(group, found, strict=True):
                logits[number] = by_label(each.float(), batch)
        return torch.stack(logits)


class ArrayTask(nn.Module):
    """All members: one lookup in the tables of all, and the layers of each."""

    def __init__(self, members: Sequence[Member], weighted: bool, memory: int | None = None) -> None:
        super().__init__()
        configs = [replace(config, name=member.table(config.name)) for member in members for config in member.configs]
        self.tables = plain(configs, torch.device("meta"), weighted)
        self.layers = Layers(members, memory)
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

    def schedule(self, ranks: int, device: torch.device) -> ArraySchedule | None:
        """How a step of the layers goes under array.layer_memory, for the largest batch; None without it.

        Raises what LayerMemory.plan raises.
        """
        task: Any = self.parts.task
        memory: LayerMemory | None = task.layers.memory
        if memory is None:
            return None
        columns = sum(config.embedding_dim * config.num_features() for config in self.members[0].configs)
        samples, schema = self.parts.run.data.local_batch_size(ranks), self.parts.source.schema
        return memory.plan(((samples, columns), (samples, max(1, len(schema.dense))), len(schema.labels)), device)


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
    task: Any = ArrayTask(members, weighted, run.array.memory_bytes if run.array else None)
    features = features_of(task)
    once = replace(features, names=tuple(dict.fromkeys(features.names)))
    return UnshardedArray(members, Unsharded(run, source, task, once))


def weighed(run: Run, source: BatchSource, ranks: int, device: torch.device) -> tuple[ArrayGain, list[str]]:
    """What training the members of a run's array together brings on so many ranks, and what is said of it.

    Raises what predicting it, building the models and LayerMemory.plan raise.
    """
    assert run.array is not None
    on_gpu, limit = device.type == "cuda", run.array.memory_bytes
    gain = predicted_gain(run, source.schema, on_gpu=on_gpu)
    if limit is None:
        return gain, [gain.line()]
    schedule = unsharded_array(run, source).schedule(ranks, device) if gain.together else None
    if schedule is not None:
        gain = predicted_gain(run, source.schema, on_gpu=on_gpu, again=schedule.again_share)
        if gain.together:
            return gain, [gain.line(), schedule.line(limit)]
    return gain, [gain.line(), "array.layer_memory limits no member that is trained in turn, since it keeps all"]
