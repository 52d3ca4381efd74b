"""The embedding collections of a TorchRec model that are planned, and the names of their tables.

Only EmbeddingBagCollection and EmbeddingCollection are planned. Other modules that have a sharder are refused by name:
leave their sharder out, or plan them with TorchRec's own planner and merge the two plans.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn
from torchrec.distributed.types import ModuleSharder
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsmith.errors import UsageError


@dataclass(frozen=True)
class Collection:
    """A module that is planned: where it is in the model, and its tables' configurations by name."""

    path: str
    module: EmbeddingBagCollection | EmbeddingCollection
    configs: dict[str, BaseEmbeddingConfig]
    weighted: bool


def collections(model: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]) -> list[Collection]:
    """The embedding collections of a model that one of the sharders shards, in the order of the model.

    Raises:
        UsageError: a sharder's module is of a kind that RecSmith does not plan.
    """
    by_type = {sharder.module_type: sharder for sharder in sharders}
    return list(_walk(model, "", by_type))


def _walk(module: nn.Module, path: str, by_type: Mapping[type, ModuleSharder[nn.Module]]) -> Iterator[Collection]:
    sharder = by_type.get(type(module))
    if sharder is None:
        for name, child in module.named_children():
            yield from _walk(child, f"{path}.{name}" if path else name, by_type)
        return
    parameters = sharder.shardable_parameters(module)
    if type(module) is EmbeddingBagCollection:
        configs, weighted = list[BaseEmbeddingConfig](module.embedding_bag_configs()), module.is_weighted()
    elif type(module) is EmbeddingCollection:
        configs, weighted = list[BaseEmbeddingConfig](module.embedding_configs()), False
    elif not parameters:
        return
    else:
        raise UsageError(
            f"module '{path}' is a {type(module).__name__}, which RecSmith does not plan; it plans "
            "EmbeddingBagCollection and EmbeddingCollection: leave the sharder of the other kind out"
        )
    mine = {config.name: config for config in configs if config.name in parameters}
    yield Collection(path, module, mine, weighted)


def table_names(found: Sequence[Collection]) -> dict[tuple[str, str], str]:
    """RecSmith's name of each (path, table): the table's own where that is unique, path and table otherwise."""
    counts = Counter(name for collection in found for name in collection.configs)
    return {
        (collection.path, name): name if counts[name] == 1 else f"{collection.path}.{name}"
        for collection in found
        for name in collection.configs
    }
