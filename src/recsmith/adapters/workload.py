"""Reads a Workload from a TorchRec model: its tables, features, optimizer and element types of messages."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import torch
from torch import nn
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.types import CommOp, ModuleSharder
from torchrec.modules.embedding_configs import BaseEmbeddingConfig, DataType, PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from recsmith.adapters.embedding_collections import Collection, collections, table_names
from recsmith.adapters.index_dedup import deduplicates
from recsmith.adapters.managed_collisions import dynamic_of
from recsmith.adapters.sharders import fused_optimizer, read_optimizer
from recsmith.errors import UsageError
from recsmith.workloads import Feature, Table, Workload
from recsmith.workloads.data_types import ELEMENT_BYTES
from recsmith.workloads.data_types import DataType as TypeName
from recsmith.workloads.optimizers import OPTIMIZERS, OptimizerName

# Collective operations whose codecs encode embeddings and gradients in training (TorchRec 1.8).
POOLED_OPS = (CommOp.POOLED_EMBEDDINGS_ALL_TO_ALL.name, CommOp.POOLED_EMBEDDINGS_REDUCE_SCATTER.name)
SEQUENCE_OPS = (CommOp.SEQUENCE_EMBEDDINGS_ALL_TO_ALL.name,)
# Element types of messages. int8, fp8 and MX4 are sent as bytes and count as one byte per element, as in TorchRec's own
# planner (build_sharder_data of torchrec/distributed/planner/utils.py); scales, and MX4's half bytes, are not counted.
MESSAGE_TYPES: dict[torch.dtype, TypeName] = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.uint8: "int8", torch.int8: "int8",
}  # fmt: skip
BYTES_PER_VALUE = "bytes_per_value"  # attribute of a codec without an element type, or (as a pair) of a sharder
Ways = tuple[TypeName, TypeName]  # element types sent forward and backward


def comm_bytes(found: Sequence[Collection]) -> tuple[float, float] | None:
    """Bytes per value, forward and backward, as stated by sharders or codecs (`bytes_per_value`); None if none does.

    If the statements differ, the largest counts.
    """
    registries = [collection.embedding_sharder.qcomm_codecs_registry or {} for collection in found]
    codecs = [each[op] for each in registries for op in (*POOLED_OPS, *SEQUENCE_OPS) if op in each]
    ways = [[getattr(way, BYTES_PER_VALUE, None) for way in (each.forward, each.backward)] for each in codecs]
    ways += [getattr(collection.embedding_sharder, BYTES_PER_VALUE, (None, None)) for collection in found]
    said = [(forward, backward) for forward, backward in ways if forward is not None and backward is not None]
    return (max(forward for forward, _ in said), max(backward for _, backward in said)) if said else None


def comm_dtypes(found: Sequence[Collection]) -> tuple[TypeName | None, TypeName | None]:
    """comm_dtype and backward_comm_dtype of a workload with these sharders' codecs; None stands for the default.

    If operations or sharders differ, the widest of their types counts, with a warning.

    Raises:
        UsageError: a codec sends a type that is not known.
    """
    sent = dict.fromkeys(pair for collection in found for pair in _operations(collection))
    kinds = {ways for _, ways in sent}
    if kinds <= {("fp32", "fp32")}:
        return None, None
    forward, backward = _widest({one for one, _ in kinds}), _widest({other for _, other in kinds})
    if len(kinds) > 1:
        said = ", ".join(f"{op.lower()} {one} and {other}" for op, (one, other) in sent)
        warnings.warn(
            f"codecs of the sharders send several types (forward and backward: {said}); planning counts the widest, "
            f"{forward} forward and {backward} backward",
            stacklevel=3,
        )
    return forward, None if backward == forward else backward


def _operations(collection: Collection) -> Iterator[tuple[str, Ways]]:
    """Each operation of a collection with the element types it sends forward and backward; fp32 without a codec."""
    registry = collection.embedding_sharder.qcomm_codecs_registry or {}
    for op in POOLED_OPS if isinstance(collection.module, EmbeddingBagCollection) else SEQUENCE_OPS:
        codecs = registry.get(op)
        yield (
            op,
            ("fp32", "fp32") if codecs is None else (_sent_type(op, codecs.forward), _sent_type(op, codecs.backward)),
        )


def _sent_type(op: str, codec: object) -> TypeName:
    if getattr(codec, BYTES_PER_VALUE, None) is not None:
        return "fp32"  # the bytes that it sends are read by comm_bytes
    kind = getattr(codec, "quantized_dtype", None)
    if kind not in MESSAGE_TYPES:
        raise UsageError(
            f"the codec of {op} sends {kind}, which planning does not know; it knows "
            f"{', '.join(map(str, MESSAGE_TYPES))}"
        )
    return MESSAGE_TYPES[kind]


def _widest(kinds: set[TypeName]) -> TypeName:
    return max(sorted(kinds), key=lambda kind: ELEMENT_BYTES[kind])


# Names of torch's and TorchRec's optimizer classes (for apply_optimizer_in_backward), those with most state first.
ATTACHED: dict[str, OptimizerName] = {
    each.torch_class.partition(":")[2]: each.name
    for each in sorted(OPTIMIZERS.values(), key=lambda each: (-each.element_states, -each.row_states))
}
DATA_TYPES = {DataType.FP32: "fp32", DataType.FP16: "fp16", DataType.BF16: "bf16", DataType.INT8: "int8"}
POOLINGS = {PoolingType.SUM: "sum", PoolingType.MEAN: "mean", PoolingType.NONE: "none"}


def read_workload(
    model: nn.Module,
    sharders: Sequence[ModuleSharder[nn.Module]],
    *,
    batch_size: int,
    constraints: Mapping[str, ParameterConstraints] | None = None,
    optimizer: str | Enum | None = None,
    table_optimizers: Mapping[str, OptimizerName] | None = None,
) -> Workload:
    """The workload of a model: its modules give the tables and features, the constraints give the numbers of lookups.

    Args:
        model: the model, before it is sharded; it may be on the meta device.
        sharders: the sharders of the job.
        batch_size: samples per rank and step.
        constraints: TorchRec's, by table name; their pooling_factors, num_poolings and batch_sizes are in the order of
            the table's features. Missing factors and poolings are 1.
        optimizer: RecSmith's or FBGEMM's name, or an EmbOptimType, for all tables. By default each table has the one
            that is attached to its parameters or named in fused_params of its sharder, and the workload's optimizer
            is the one of these with most state.
        table_optimizers: optimizers of the tables whose optimizer differs from the rest, by table name.

    Raises:
        UsageError: a module, data type or optimizer is not planned, there is no embedding collection, or constraints do
            not give one number for each feature.
    """
    found = collections(model, sharders)
    names = table_names(found)
    if not names:
        if any(collection.virtual for collection in found):
            raise UsageError("the model has virtual tables alone, which leave a plan no choice; use TorchRec's planner")
        raise UsageError("the model has no embedding collection that the sharders shard; check the list of sharders")
    tables = tuple(
        _table(collection, config, names[collection.path, config.name], (constraints or {}).get(config.name))
        for collection in found
        for config in collection.configs.values()
    )
    forward, backward = comm_dtypes(found)
    attached = {} if optimizer else _optimizers(found, names)
    of_most = read_optimizer(optimizer) if optimizer else _heaviest(set[OptimizerName]().union(*attached.values()))
    own = {table: _heaviest(each) for table, each in attached.items() if each} | dict(table_optimizers or {})
    return Workload(
        batch_size=batch_size,
        optimizer=of_most,
        tables=tuple(
            replace(table, optimizer=own[table.name]) if own.get(table.name, of_most) != of_most else table
            for table in tables
        ),
        comm_dtype=forward,
        backward_comm_dtype=backward,
        comm_bytes=comm_bytes(found),
        index_dedup="on" if any(deduplicates(collection.embedding_sharder) for collection in found) else "off",
    )


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
        dynamic=dynamic_of(collection, config.name),
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


def _optimizers(found: Sequence[Collection], names: Mapping[tuple[str, str], str]) -> dict[str, set[OptimizerName]]:
    """The optimizers of each table: those attached by apply_optimizer_in_backward, else the one of fused_params."""
    made: dict[str, set[OptimizerName]] = {}
    for collection in found:
        otherwise = fused_optimizer(collection.embedding_sharder.fused_params)
        bags = isinstance(collection.module, EmbeddingBagCollection)
        modules: Any = collection.module.embedding_bags if bags else collection.module.embeddings
        for table in collection.configs:
            kinds = [cls for each in modules[table].parameters() for cls in getattr(each, "_optimizer_classes", [])]
            made[names[collection.path, table]] = {_attached_name(cls) for cls in kinds} or (
                {otherwise} if otherwise else set()
            )
    return made


def _heaviest(names: set[OptimizerName]) -> OptimizerName:
    """The optimizer with most state, so that planned memory suffices; sgd if there is none."""
    return min(names or {"sgd"}, key=list(ATTACHED.values()).index)


def _attached_name(cls: type) -> OptimizerName:
    if cls.__name__ not in ATTACHED:
        raise UsageError(
            f"optimizer {cls.__name__} is not known; pass optimizer= one of {', '.join(ATTACHED.values())}"
        )
    return ATTACHED[cls.__name__]
