"""A TorchRec model's tables, features and optimizer as a Workload."""

import warnings
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from torch import nn
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.types import ModuleSharder
from torchrec.modules.embedding_configs import BaseEmbeddingConfig, DataType, PoolingType

from recsmith.adapters.codecs import comm_bytes, comm_dtypes
from recsmith.adapters.embedding_collections import Collection, collections, table_names
from recsmith.adapters.fused_params import fused_optimizer
from recsmith.adapters.optimizer_names import read_optimizer
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


def read_workload(
    model: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]],
    *,
    batch_size: int,
    constraints: Mapping[str, ParameterConstraints] | None = None,
    optimizer: str | Enum | None = None,
) -> Workload:
    """The workload of a model: tables and features from its modules, how much is looked up from the constraints.

    constraints: TorchRec's, by table name; their pooling_factors, num_poolings and batch_sizes are in the order of the
    table's features; where they are absent, factors and poolings are 1. optimizer: RecSmith's or FBGEMM's name, or
    an EmbOptimType, instead of the one attached to the parameters or named in fused_params of their sharder.

    Raises:
        UsageError: a module, data type or optimizer that is not planned, no embedding collection, or constraints that
            do not give one number for each feature.
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
    word = read_optimizer(optimizer or _optimizer(found))
    forward, backward = comm_dtypes(found)
    return Workload(
        batch_size=batch_size, optimizer=word, tables=tables, comm_dtype=forward, backward_comm_dtype=backward,
        comm_bytes=comm_bytes(found),
    )  # fmt: skip


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
    """The optimizer of the tables; of several the heaviest, so that memory suffices.

    Of a table it is the one attached by apply_optimizer_in_backward, or else that of fused_params.
    """
    words: set[str] = set()
    for collection in found:
        otherwise = fused_optimizer(collection.embedding_sharder.fused_params)
        for parameter in collection.module.parameters():
            attached = [_attached_word(cls) for cls in getattr(parameter, "_optimizer_classes", [])]
            words.update(attached or ([otherwise] if otherwise else []))
    words = words or {"sgd"}
    heaviest = next(word for word in HEAVIEST_FIRST if word in words)
    if len(words) > 1:
        warnings.warn(f"tables have several optimizers; memory is counted for {heaviest}", stacklevel=3)
    return heaviest


def _attached_word(cls: type) -> str:
    if cls.__name__ not in OPTIMIZERS:
        raise UsageError(f"optimizer {cls.__name__} is not known; pass optimizer= one of {', '.join(HEAVIEST_FIRST)}")
    return OPTIMIZERS[cls.__name__]
