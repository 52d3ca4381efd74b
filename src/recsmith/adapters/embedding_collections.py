"""The embedding collections of a TorchRec model that are planned, and the names of their tables.

`MODULE_TYPES` of adapters/field_policies.py lists which types of modules are planned, and why the rest are refused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn
from torchrec.distributed.types import ModuleSharder
from torchrec.modules.embedding_configs import BaseEmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsmith.adapters.field_policies import (
    MODULE_TYPES,
    Planned,
    check_config,
    is_virtual,
    planned_collection,
    remaps_ids,
    type_name,
)
from recsmith.errors import UsageError

INNER_SHARDERS = ("_e_sharder", "_ebc_sharder")  # attributes that hold the inner sharder in TorchRec 1.8 and 1.9
Sharders = Mapping[type, ModuleSharder[nn.Module]]  # sharders by the type of module that they shard


@dataclass(frozen=True)
class Collection:
    """A module that is planned: its path in the model, and its tables' configurations by name.

    module: the collection that holds the tables. virtual: configurations of virtual tables, which a plan does not place
    (virtual_tables.py). outer: the module that the sharder shards: the collection itself, or a module around it.
    """

    path: str
    module: Planned
    configs: dict[str, BaseEmbeddingConfig]
    weighted: bool
    outer: nn.Module
    sharder: ModuleSharder[nn.Module]
    virtual: dict[str, BaseEmbeddingConfig] = field(default_factory=dict[str, BaseEmbeddingConfig])

    @property
    def embedding_sharder(self) -> Any:
        """The sharder whose fused_params and codecs the tables use: the module's own, or the inner one it calls."""
        return next(
            (getattr(self.sharder, name) for name in INNER_SHARDERS if hasattr(self.sharder, name)), self.sharder
        )


def collections(model: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]) -> list[Collection]:
    """The embedding collections of a model that one of the sharders shards, in the order of the model.

    Raises:
        UsageError: a sharded module is of a type that RecSmith does not plan, or a table has a setting that it refuses.
    """
    by_type = {sharder.module_type: sharder for sharder in sharders}
    return list(_walk(model, "", by_type))


def _walk(module: nn.Module, path: str, by_type: Sharders) -> Iterator[Collection]:
    sharder = by_type.get(type(module))
    if sharder is None:
        _check_unsharded(module, path, by_type)
        for name, child in module.named_children():
            yield from _walk(child, f"{path}.{name}" if path else name, by_type)
    elif type_name(type(module)) in MODULE_TYPES or sharder.shardable_parameters(module):
        yield _collection(module, path, sharder)


def _collection(module: nn.Module, path: str, sharder: ModuleSharder[nn.Module]) -> Collection:
    inner = planned_collection(module, path)
    pooled = isinstance(inner, EmbeddingBagCollection)
    configs = list[BaseEmbeddingConfig](inner.embedding_bag_configs() if pooled else inner.embedding_configs())
    parameters = sharder.shardable_parameters(module)
    mine = {config.name: config for config in configs if config.name in parameters}
    for config in mine.values():
        check_config(config)
    planned = {name: config for name, config in mine.items() if not is_virtual(config)}
    virtual = {name: config for name, config in mine.items() if is_virtual(config)}
    return Collection(path, inner, planned, pooled and inner.is_weighted(), module, sharder, virtual)


def _check_unsharded(module: nn.Module, path: str, by_type: Sharders) -> None:
    """Refuse to shard only the collection inside a module that remaps ids: each rank would remap ids on its own."""
    if remaps_ids(module) and any(type(child) in by_type for child in module.modules()):
        name = type_name(type(module))
        raise UsageError(
            f"module '{path}' is a {name}, and no sharder is given for it, but one for the collection inside: ranks "
            f"would remap ids each on its own; add {name}Sharder() to the sharders"
        )


def table_names(found: Sequence[Collection]) -> dict[tuple[str, str], str]:
    """RecSmith's name of each (path, table): the table's own name if it is unique, else path and name."""
    counts = Counter(name for collection in found for name in collection.configs)
    return {
        (collection.path, name): name if counts[name] == 1 else f"{collection.path}.{name}"
        for collection in found
        for name in collection.configs
    }
