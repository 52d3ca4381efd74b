"""The models of an array as one: tables of all members in one collection, layers of equal shape as batched products.

A feature is looked up in a table of each member. TorchRec treats these like the column-wise shards of a table K times
as wide: ids are sent once for each, all lookups are one kernel, and row-wise optimizers keep a state for each member.

K members, B samples, L labels, T features, D columns of a table
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection, KeyedTensor
from torchrec.modules.embedding_modules import get_embedding_names_by_table

from recsmith.errors import NoPlanFound, UsageError
from recsmith.prediction.activations.scheduler import ArraySchedule
from recsmith.training.batches import Place, TrainingBatch
from recsmith.training.job.losses import by_label
from recsmith.training.job.models import Task, Unsharded, build_task
from recsmith.training.run import BUILT_IN, Run
from recsmith.training.run.refusals import check_together
from recsmith.training.sources import BatchSource, open_source
from recsmith.training.systems.arrays.layer_memory import LayerMemory, StepWithin
from recsmith.training.systems.arrays.members import check_array, members_of
from recsmith.training.systems.arrays.parts import array_parts
from recsmith.training.systems.arrays.scheduling.profiling import logits_of
from recsmith.training.tables.plain import features_of, initial_weights_of, plain
from recsmith.training.tables.protocol import InitialWeights

ArrayOutcome = tuple[torch.Tensor, torch.Tensor, torch.Tensor, Place]  # losses (K,), logits (K, B, L), labels, place


class GivenTables(nn.Module):
    """Stands in for a member's pooled tables: it returns the pooled vectors (B, T * D) last assigned to it."""

    def __init__(self, tables: EmbeddingBagCollection) -> None:
        super().__init__()
        configs = tables.embedding_bag_configs()
        self.keys = [name for config in configs for name in config.feature_names]
        self.widths = [config.embedding_dim for config in configs for _ in config.feature_names]
        self.pooled: Any = None

    def forward(self, _: Any) -> KeyedTensor:
        """The assigned vectors."""
        return KeyedTensor(self.keys, self.widths, self.pooled)


class GivenRows(nn.Module):
    """Stands in for a member's tables that are not pooled: it returns the rows last assigned to it."""

    def __init__(self, tables: EmbeddingCollection) -> None:
        super().__init__()
        self.keys = [name for config in tables.embedding_configs() for name in config.feature_names]
        self.rows: dict[str, Any] = {}

    def forward(self, _: Any) -> dict[str, Any]:
        """The assigned rows, a JaggedTensor for each feature."""
        return self.rows


@dataclass(frozen=True)
class TakenTables:
    """A collection taken out of a member's model. given: its stand-in. path: its module path in the model."""

    given: Any
    configs: tuple[Any, ...]
    path: str

    @property
    def pooled(self) -> bool:
        """Whether the tables are pooled."""
        return isinstance(self.given, GivenTables)

    @property
    def word(self) -> str:
        """TorchRec's attribute name for the tables of such a collection."""
        return "embedding_bags" if self.pooled else "embeddings"


@dataclass(frozen=True)
class Member:
    """A model of an array: its run, its layers, and the names that its parameters have in its own run.

    number: its index among the members. taken: its tables. initial: how the tables are initialized.
    """

    name: str
    number: int
    run: Run
    task: Task
    taken: tuple[TakenTables, ...]
    initial: Mapping[str, InitialWeights]

    def of(self, *, pooled: bool) -> TakenTables | None:
        """The collection of its pooled tables, or of the others; None if it has none."""
        return next((each for each in self.taken if each.pooled == pooled), None)

    def configs_of(self, *, pooled: bool) -> tuple[Any, ...]:
        """TorchRec's configs of its pooled tables, or of the others."""
        taken = self.of(pooled=pooled)
        return () if taken is None else taken.configs

    @property
    def configs(self) -> tuple[Any, ...]:
        """TorchRec's configs of all its tables."""
        return tuple(config for each in self.taken for config in each.configs)

    def table(self, name: str) -> str:
        """The name in the array of a table of the member."""
        return f"{name}__{self.name}"

    def paths(self) -> dict[str, str]:
        """Module paths of its tables in its model, by their names in the array."""
        return {self.table(config.name): each.path for each in self.taken for config in each.configs}

    def names(self) -> dict[str, str]:
        """Parameter names of its tables in its own run, by those in the array."""
        return {
            f"{'tables' if each.pooled else 'sequences'}.{each.word}.{self.table(config.name)}.weight":
            f"{each.path}.{each.word}.{config.name}.weight" for each in self.taken for config in each.configs
        }  # fmt: skip

    def alone(self, parameter: str) -> str | None:
        """The name in the member's own model of a parameter of the array; None if it is another member's."""
        own = f"layers.members.{self.number}."
        return parameter.removeprefix(own) if parameter.startswith(own) else self.names().get(parameter)


def member_of(name: str, number: int, run: Run, source: BatchSource) -> Member:
    """A member with its layers as its own run initializes them, and its tables taken out."""
    task = build_task(run.model, source.schema, run.seed)
    initial = initial_weights_of(task)
    found: list[Any] = [
        each for each in task.named_modules() if isinstance(each[1], EmbeddingBagCollection | EmbeddingCollection)
    ]
    taken = tuple(_taken(path, tables) for path, tables in found)
    given = {id(tables): each.given for (_, tables), each in zip(found, taken, strict=True)}
    for module in list(task.modules()):
        for child, inner in list(module.named_children()):
            if id(inner) in given:
                setattr(module, child, given[id(inner)])
    return Member(name, number, run, task, taken, initial)


def _taken(path: str, tables: EmbeddingBagCollection | EmbeddingCollection) -> TakenTables:
    if isinstance(tables, EmbeddingBagCollection):
        return TakenTables(GivenTables(tables), tuple(tables.embedding_bag_configs()), path)
    return TakenTables(GivenRows(tables), tuple(tables.embedding_configs()), path)


class Layers(nn.Module):
    """The dense layers of all members. alive: (K,), False for members that diverged, whose loss does not count."""

    def __init__(self, members: Sequence[Member], memory: int | None = None) -> None:
        super().__init__()
        self.members = nn.ModuleList(member.task for member in members)
        self.given = [None if (taken := member.of(pooled=True)) is None else taken.given for member in members]
        self.rows = [None if (taken := member.of(pooled=False)) is None else taken.given for member in members]
        self.groups = list(_groups(members))
        self.own_losses = members[0].run.model.loss == "softmax" or bool(members[0].run.model.tasks)
        models = [member.task.model for member in members]
        self.memory = None if memory is None else LayerMemory(memory, self.groups, models, self.given)
        self.alive = torch.ones(len(members), dtype=torch.bool)
        self.row_keys = keys_of(members, pooled=False)

    def forward(
        self, pooled: torch.Tensor | None, rows: Mapping[str, Any] | None, batch: TrainingBatch
    ) -> tuple[torch.Tensor, ArrayOutcome]:
        """(sum of losses, outcome) of a batch.

        pooled: vectors of each member (B, K, T * D), or None. rows: of each feature that is not pooled, by its name in
        the array's tables, or None.
        """
        for given, keys in zip(self.rows, self.row_keys, strict=True):
            if given is not None and rows is not None:
                given.rows = {name: rows[key] for name, key in zip(given.keys, keys, strict=True)}
        if self.own_losses:
            return self._by_own_losses(pooled, batch)
        if self.memory is not None and torch.is_grad_enabled():
            own = [each for named in self.named for each in named.values()]
            loss, losses, outputs = StepWithin.apply(self, batch, pooled, *own)  # type: ignore[misc]
        else:
            outputs = torch.stack([by_label(each, batch) for each in self._logits(pooled, batch)])
            losses = self.losses(outputs, batch)
            loss = self.loss(losses)
        whole = len(batch.place.samples)
        return loss, (losses.detach(), outputs.detach()[:, :whole], batch.labels[:whole], batch.place)

    @cached_property
    def named(self) -> list[dict[str, torch.Tensor]]:
        """Parameters of each member's layers, collected once; buffers of built-in models are the same for all."""
        return [dict(member.model.named_parameters()) for member in self.members]  # type: ignore[union-attr]

    def losses(self, logits: torch.Tensor, batch: TrainingBatch) -> torch.Tensor:
        """The loss (n,) of each member whose logits (n, B, L) are given."""
        whole = len(batch.place.samples)
        outputs, labels = logits[:, :whole], batch.labels[:whole]
        entropy = nn.functional.binary_cross_entropy_with_logits(outputs, labels.expand_as(outputs), reduction="none")
        factors = batch.place.samples.factors
        if factors is not None:
            entropy = entropy * torch.from_numpy(factors).to(entropy)[:, None]
        return entropy.sum((1, 2)) / batch.labels.numel()

    def loss(self, losses: torch.Tensor, numbers: Sequence[int] | None = None) -> torch.Tensor:
        """The sum of the losses of members that have not diverged. numbers: of the members; None: all members."""
        alive = self.alive if numbers is None else self.alive[list(numbers)]
        return torch.where(alive.to(losses.device), losses, 0.0).sum()

    def _by_own_losses(
        self, pooled: torch.Tensor | None, batch: TrainingBatch
    ) -> tuple[torch.Tensor, ArrayOutcome]:  # fmt: skip
        """The result of `forward` if the loss of each member's own model is used."""
        logits: Any = zip(self.members, self._logits(pooled, batch), strict=True)
        made = [member.loss(each, batch) for member, each in logits]
        losses = torch.stack([loss for loss, _ in made])
        told = torch.stack([each[1] for _, each in made])
        _, _, labels, place = made[0][1]
        return self.loss(losses), (losses.detach(), told, labels, place)

    def _logits(self, pooled: torch.Tensor | None, batch: TrainingBatch) -> list[torch.Tensor]:
        """The logits (B, ...) of each member, computed as batched products for members whose models are alike."""
        logits: list[Any] = [None] * len(self.members)
        for group in self.groups:
            models: list[Any] = [self.members[number].model for number in group]
            named = {name: [self.named[number][name] for number in group] for name in self.named[group[0]]}
            theirs = pooled if pooled is None or len(group) == pooled.shape[1] else pooled[:, group]
            inputs = batch.dense_features, batch.sparse_features
            found = logits_of(models, self.given[group[0]], named, theirs, inputs)
            for number, each in zip(group, found, strict=True):
                logits[number] = each
        return logits


class ArrayTask(nn.Module):
    """The model of all members: one lookup in the tables of all, then the layers of each."""

    def __init__(self, members: Sequence[Member], weighted: bool, memory: int | None = None) -> None:
        super().__init__()
        device, (bags, sequences) = torch.device("meta"), (renamed(members, pooled=each) for each in (True, False))
        self.tables = plain(bags, device, weighted) if bags else None
        self.sequences = EmbeddingCollection(tables=sequences, device=device) if sequences else None
        self.layers = Layers(members, memory)
        self.keys = [key for each in keys_of(members, pooled=True) for key in each]
        self.count = len(members)

    def forward(self, batch: TrainingBatch) -> tuple[torch.Tensor, ArrayOutcome]:
        """(loss, outcome), as TorchRec's pipelines expect."""
        pooled = None if self.tables is None else self.split(self.tables(batch.sparse_features))
        rows = None if self.sequences is None else self.sequences(batch.sparse_features)
        return self.layers(pooled, rows, batch)

    def split(self, pooled: KeyedTensor) -> torch.Tensor:
        """The vectors of each member (B, K, T * D), with features in the order of the member's own model."""
        [ordered] = KeyedTensor.regroup([pooled], [self.keys])
        return ordered.unflatten(1, (self.count, -1))


def renamed(members: Sequence[Member], *, pooled: bool) -> list[Any]:
    """TorchRec's configs of the pooled tables of all members, or of the others, with their names in the array."""
    return [
        replace(config, name=member.table(config.name)) for member in members
        for config in member.configs_of(pooled=pooled)
    ]  # fmt: skip


def keys_of(members: Sequence[Member], *, pooled: bool) -> list[list[str]]:
    """For each member, the keys of its features in the output of the array's tables, in the member's order."""
    names = iter(get_embedding_names_by_table(renamed(members, pooled=pooled)))
    return [[key for _ in member.configs_of(pooled=pooled) for key in next(names)] for member in members]


def _groups(members: Sequence[Member]) -> Iterator[list[int]]:
    """Groups of members whose layers are alike; a user's own model is alone, since its layers may do anything."""
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
    """An array with its members, its data and its model. parts: those of a run, with the model of all members."""

    members: tuple[Member, ...]
    parts: Unsharded

    def schedule(self, ranks: int, device: torch.device) -> ArraySchedule | None:
        """The schedule of a step of the layers under array.layer_memory, for the largest batch; None without a limit.

        Raises:
            UsageError: the limit is too small, or a user's own model cannot be traced.
        """
        task: Any = self.parts.task
        memory: LayerMemory | None = task.layers.memory
        if memory is None:
            return None
        columns = sum(config.embedding_dim * config.num_features() for config in self.members[0].configs)
        samples, schema = self.parts.run.data.local_batch_size(ranks), self.parts.source.schema
        shapes = (samples, columns), (samples, max(1, len(schema.dense))), len(schema.labels)
        try:
            return memory.plan(shapes, device)
        except NoPlanFound as error:
            raise UsageError(str(error)) from None


def unsharded_array(run: Run, source: BatchSource | None = None, without: Sequence[str] = ()) -> UnshardedArray:
    """The models of an array, built for its data. without: names of members that have ended.

    Raises what opening data and building a model raise.
    """
    check_array(run)
    source = source or open_source(run)
    runs = {name: each for name, each in members_of(run).items() if name not in without}
    for each in (run, *runs.values()):
        check_together(array_parts(each))
    members = tuple(member_of(name, number, each, source) for number, (name, each) in enumerate(runs.items()))
    weighted = any(feature.weighted for feature in source.schema.features)
    if run.array is not None and run.array.layer_memory and any(each.of(pooled=False) for each in members):
        raise UsageError(
            "array.layer_memory plans a step whose shapes are always the same, and tables with pooling none give other "
            "numbers of rows in each step; leave layer_memory out"
        )
    task: Any = ArrayTask(members, weighted, run.array.memory_bytes if run.array else None)
    features = features_of(task)
    once = replace(features, names=tuple(dict.fromkeys(features.names)))
    return UnshardedArray(members, Unsharded(run, source, task, once))
