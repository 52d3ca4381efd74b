"""TorchRec's own collections as table modules, and the tables of a whole model, which are all of its table modules."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from torchrec.modules.embedding_modules import get_embedding_names_by_table

from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.training.tables.features import Features, joined
from recsmith.training.tables.protocol import InitialWeights, TableModule


def plain(configs: Sequence[EmbeddingBagConfig], device: torch.device, is_weighted: bool) -> EmbeddingBagCollection:
    """Pooled tables, stored as they are."""
    return EmbeddingBagCollection(device=device, tables=list(configs), is_weighted=is_weighted)


class Plain(TableModule):
    """One of TorchRec's collections, pooled or of sequences, as a table module."""

    def __init__(self, collection: EmbeddingBagCollection | EmbeddingCollection) -> None:
        self.collection = collection

    def stored(self) -> list[BaseEmbeddingConfig]:
        """The collection's tables as they are."""
        if isinstance(self.collection, EmbeddingBagCollection):
            return list(self.collection.embedding_bag_configs())
        return list(self.collection.embedding_configs())

    def vectors(self, name: str) -> torch.Tensor | None:
        """The table's weights."""
        pooled = isinstance(self.collection, EmbeddingBagCollection)
        modules: Any = self.collection.embedding_bags if pooled else self.collection.embeddings
        return modules[name].weight.detach() if name in modules else None


def table_modules(model: nn.Module) -> list[TableModule]:
    """The table modules of a model, in its order; for a sharded model, the modules around sharded collections."""
    return list(_found(model, set()))


def _found(module: nn.Module, seen: set[nn.Module]) -> Iterator[TableModule]:
    if module in seen:
        return
    seen.add(module)
    if hasattr(type(module), "stored") and isinstance(module, TableModule):  # the first check is fast
        yield module
    elif isinstance(module, EmbeddingBagCollection | EmbeddingCollection):
        yield Plain(module)
    else:
        for child in module.children():
            yield from _found(child, seen)


def features_of(model: nn.Module) -> Features:
    """The features that a model's tables look up."""
    return joined([tables.features() for tables in table_modules(model)])


class Output(NamedTuple):
    """The vectors of one feature of one table. name: key in what the collection returns."""

    name: str
    feature: str
    config: Any


def outputs_of(configs: Sequence[Any]) -> list[Output]:
    """The outputs of a collection, in the order of its tables: 'user', or 'user@wide' if several look 'user' up."""
    named = zip(configs, get_embedding_names_by_table(list(configs)), strict=True)
    return [
        Output(name, feature, config)
        for config, names in named
        for name, feature in zip(names, config.feature_names, strict=True)
    ]


def configs_of(model: nn.Module) -> list[BaseEmbeddingConfig]:
    """TorchRec's configs of the tables that a model trains."""
    return [config for tables in table_modules(model) for config in tables.stored()]


def initial_weights_of(model: nn.Module) -> dict[str, InitialWeights]:
    """The distribution of initial weights of each stored table of a model."""
    return {name: start for tables in table_modules(model) for name, start in tables.initial().items()}


def vectors_of(model: nn.Module, name: str) -> torch.Tensor:
    """The vectors of all ids of a table (num_embeddings, embedding_dim) in a model that is not sharded.

    Raises:
        UsageError: there is no such table.
    """
    modules = table_modules(model)
    found = next((vectors for tables in modules if (vectors := tables.vectors(name)) is not None), None)
    if found is None:
        known = [each for tables in modules for each in tables.names()]
        raise UsageError(f"there is no table '{name}'{did_you_mean(name, known)}")
    return found


def exported_names(model: nn.Module, parameters: Iterable[str]) -> dict[str, str]:
    """The names under which the parameters of a model are exported."""
    modules = table_modules(model)
    return {name: reduce(lambda named, tables: tables.exported(named), modules, name) for name in parameters}


def why_not_ahead(model: nn.Module) -> str | None:
    """Why ids of the next batch cannot be sent between ranks ahead, as far as the tables know; None if they can."""
    return next((reason for tables in table_modules(model) if (reason := tables.why_not_ahead())), None)
