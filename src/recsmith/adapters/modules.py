"""What a TorchRec model asks for: its tables, features and optimizer as a Workload, its Topology as a Cluster.

Only EmbeddingBagCollection and EmbeddingCollection are planned. Other modules that have a sharder are refused by name:
leave their sharder out, or plan them with TorchRec's own planner and merge the two plans.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.types import ModuleSharder
from torchrec.modules.embedding_configs import BaseEmbeddingConfig, DataType, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsmith.clusters import Cluster, Device, Links
from recsmith.errors import UsageError
from recsmith.workloads import Feature, Table, Workload

OPTIMIZERS = {  # class names of apply_optimizer_in_backward, torch's and TorchRec's
    "SGD": "sgd",
    "Adagrad": "adagrad",
    "RowWiseAdagrad": "rowwise_adagrad",
    "PartialRowWiseAdam": "partial_rowwise_adam",
    "Adam": "adam",
    "LAMB": "lamb",
}
HEAVIEST_FIRST = ("adam", "lamb", "partial_rowwise_adam", "adagrad", "rowwise_adagrad", "sgd")
DATA_TYPES = {DataType.FP32: "fp32", DataType.FP16: "fp16", DataType.BF16: "bf16", DataType.INT8: "int8"}
POOLINGS = {PoolingType.SUM: "sum", PoolingType.MEAN: "mean", PoolingType.NONE: "none"}


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


def read_workload(
    model: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]],
    *,
    batch_size: int,
    constraints: Mapping[str, ParameterConstraints] | None = None,
    optimizer: str | None = None,
) -> Workload:
    """The workload of a model: tables and features from its modules, how much is looked up from the constraints.

    constraints: TorchRec's, by table name; their pooling_factors, num_poolings and batch_sizes stand in the order of
    the table's features, and count 1 where they are absent. optimizer: instead of the one attached to the parameters.
    """
    found = collections(model, sharders)
    names = table_names(found)
    if not names:
        raise UsageError("the model has no embedding collection that the sharders shard; check the list of sharders")
    tables = tuple(
        _table(collection, config, names[collection.path, config.name], (constraints or {}).get(config.name))
        for collection in found
        for config in collection.configs.values()
    )
    word = optimizer or _optimizer(found)
    return Workload(batch_size=batch_size, optimizer=word, tables=tables)  # type: ignore[arg-type]


def _table(
    collection: Collection, config: BaseEmbeddingConfig, name: str, limits: ParameterConstraints | None
) -> Table:
    features = config.feature_names or [config.name]
    factors = _per_feature(limits.pooling_factors if limits else None, features, config.name, "pooling_factors", 1.0)
    poolings = _per_feature(limits.num_poolings if limits else None, features, config.name, "num_poolings", 1.0)
    batches = _per_feature(limits.batch_sizes if limits else None, features, config.name, "batch_sizes", None)
    weighted = collection.weighted or bool(limits and limits.is_weighted)
    return Table(
        name=name,
        num_embeddings=config.num_embeddings,
        embedding_dim=config.embedding_dim,
        features=tuple(
            Feature(name=feature, pooling_factor=factor, num_poolings=pooling, weighted=weighted, batch_size=batch)
            for feature, factor, pooling, batch in zip(features, factors, poolings, batches, strict=True)
        ),
        pooling=POOLINGS[getattr(config, "pooling", PoolingType.NONE)],  # type: ignore[arg-type]
        data_type=_data_type(config),  # type: ignore[arg-type]
        collection=collection.path,
    )


def _per_feature(values: Sequence[Any] | None, features: list[str], table: str, what: str, default: Any) -> list[Any]:
    if values is None or (len(values) == 1 and len(features) > 1 and values[0] == default):
        return [default] * len(features)
    if len(values) != len(features):
        raise UsageError(
            f"constraints of table '{table}' give {len(values)} {what} for {len(features)} features; give one for each"
        )
    return list(values)


def _data_type(config: BaseEmbeddingConfig) -> str:
    if config.data_type not in DATA_TYPES:
        raise UsageError(
            f"table '{config.name}' has data type {config.data_type}; known: {', '.join(DATA_TYPES.values())}"
        )
    return DATA_TYPES[config.data_type]


def _optimizer(found: Sequence[Collection]) -> str:
    """The optimizer attached by apply_optimizer_in_backward; of several the heaviest, so that memory suffices."""
    classes = {
        cls.__name__
        for collection in found
        for parameter in collection.module.parameters()
        for cls in getattr(parameter, "_optimizer_classes", [])
    }
    unknown = sorted(classes - OPTIMIZERS.keys())
    if unknown:
        raise UsageError(f"optimizer {unknown[0]} is not known; pass optimizer= one of {', '.join(HEAVIEST_FIRST)}")
    words = {OPTIMIZERS[name] for name in classes} or {"sgd"}
    heaviest = next(word for word in HEAVIEST_FIRST if word in words)
    if len(words) > 1:
        warnings.warn(f"tables have several optimizers; memory is counted for {heaviest}", stacklevel=3)
    return heaviest


def read_cluster(topology: Topology) -> Cluster:
    """The cluster of a TorchRec topology: counts, capacities and bandwidths (TorchRec's are bytes per millisecond)."""
    if topology.intra_group_size != topology.local_world_size:
        raise UsageError("the topology has pods of several hosts, which are not covered; leave pod_size out")
    on_device = topology.compute_device != "cpu"
    sizes = tuple(device.storage.hbm if on_device else device.storage.ddr for device in topology.devices)
    per_host = topology.devices[0].storage.ddr * topology.local_world_size
    return Cluster(
        device=Device(
            name=f"topology-{topology.compute_device}",
            kind="cuda" if on_device else "cpu",
            hbm_bytes=max(sizes),
            hbm_bandwidth=(topology.hbm_mem_bw if on_device else topology.ddr_mem_bw) * 1000,
            host_link_bandwidth=topology.hbm_to_ddr_mem_bw * 1000 if on_device else None,
        ),
        local_world_size=topology.local_world_size,
        hosts=topology.world_size // topology.local_world_size,
        links=Links(
            intra_host_bandwidth=topology.intra_host_bw * 1000, inter_host_bandwidth=topology.inter_host_bw * 1000
        ),
        hbm_bytes=sizes if len(set(sizes)) > 1 else None,
        ddr_bytes_per_host=per_host if on_device else None,
    )


def device_type() -> str:
    """'cuda' where PyTorch sees a GPU, 'cpu' elsewhere."""
    return "cuda" if torch.cuda.is_available() else "cpu"
