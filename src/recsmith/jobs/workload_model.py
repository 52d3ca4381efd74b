"""A plain TorchRec model of a workload, and random batches for it, for local jobs.

There is one collection per (weighted, pooled, dim of sequences), as TorchRec requires; mean-pooled tables have separate
collections, one for each collection of the workload. Every feature of a table has its own key, `<table>/<feature>`, so
that features with equal names in several tables have separate outputs.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig
from torchrec.distributed.types import Awaitable
from torchrec.modules.embedding_configs import DataType, PoolingType
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor, KeyedTensor

from recsmith.errors import UsageError
from recsmith.plans import Plan
from recsmith.workloads import Feature, Table, Workload
from recsmith.workloads.access import HotRows
from recsmith.workloads.row_blocks import draw_rows, hot_rows_of, law_of
from recsmith.workloads.scattered_rows import scatter

DATA_TYPES = {"fp32": DataType.FP32, "fp16": DataType.FP16, "bf16": DataType.BF16}
POOLINGS = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}
COLLECTIONS = "collections"  # attribute of WorkloadModel, and so the first part of its tables' paths


class WorkloadModel(nn.Module):
    """A model of the embedding collections of a workload, and nothing else."""

    def __init__(self, workload: Workload, device: torch.device) -> None:
        super().__init__()
        self.groups = collection_groups(workload)
        made = [_collection(tables, device) for tables in self.groups]
        setattr(self, COLLECTIONS, nn.ModuleList(made))

    def forward(self, batch: "CollectionBatch") -> dict[str, torch.Tensor]:
        """Embeddings by feature key: (B, dim), or (ids, dim) for a sequence."""
        outputs: dict[str, torch.Tensor] = {}
        for collection, features in zip(getattr(self, COLLECTIONS), batch.features, strict=True):
            answer = collection(features)
            answer = answer.wait() if isinstance(answer, Awaitable) else answer  # a sharded module returns an Awaitable
            if isinstance(answer, KeyedTensor):
                outputs |= answer.to_dict()
            else:
                outputs |= {key: _values(jagged) for key, jagged in answer.items()}
        return outputs


def _values(jagged: JaggedTensor) -> torch.Tensor:
    return jagged.values()


class CollectionBatch:
    """One KeyedJaggedTensor per collection, with the methods that TorchRec's pipelines call."""

    def __init__(self, features: list[KeyedJaggedTensor]) -> None:
        self.features = features

    def to(self, device: torch.device, non_blocking: bool = False) -> "CollectionBatch":
        """The batch on a device."""
        return CollectionBatch([features.to(device, non_blocking=non_blocking) for features in self.features])

    def record_stream(self, stream: torch.Stream) -> None:
        """Keep the batch's memory until a stream has finished with it."""
        for features in self.features:
            features.record_stream(stream)  # type: ignore[arg-type]


def collection_groups(workload: Workload) -> list[list[Table]]:
    """Tables grouped by the collection that can hold them, in order of their names."""
    groups: dict[tuple[object, ...], list[Table]] = {}
    for table in sorted(workload.tables, key=lambda table: table.name):
        if table.data_type not in DATA_TYPES:
            raise UsageError(f"table '{table.name}' is {table.data_type}; TorchRec trains {', '.join(DATA_TYPES)}")
        apart = table.collection if table.pooling == "mean" else None  # alone, these may be split by rows
        dim = 0 if table.pooled else table.embedding_dim
        groups.setdefault((table.pooled, table.weighted, dim, apart), []).append(table)
    return list(groups.values())


def with_model_collections(plan: Plan) -> Plan:
    """The plan with its tables' collections renamed to those of WorkloadModel; placements do not change."""
    path = {
        table.name: f"{COLLECTIONS}.{i}"
        for i, tables in enumerate(collection_groups(plan.workload))
        for table in tables
    }
    tables = tuple(replace(table, collection=path[table.name]) for table in plan.workload.tables)
    return replace(plan, workload=replace(plan.workload, tables=tables))


def feature_key(table: Table, feature: Feature) -> str:
    """The key of a table's feature in batches and outputs."""
    return f"{table.name}/{feature.name}"


def _collection(tables: list[Table], device: torch.device) -> nn.Module:
    if tables[0].pooled:
        bags = [EmbeddingBagConfig(**_config(table), pooling=POOLINGS[table.pooling]) for table in tables]
        return EmbeddingBagCollection(tables=bags, device=device, is_weighted=tables[0].weighted)
    return EmbeddingCollection(tables=[EmbeddingConfig(**_config(table)) for table in tables], device=device)


def _config(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "embedding_dim": table.embedding_dim,
        "num_embeddings": table.num_embeddings,
        "feature_names": [feature_key(table, feature) for feature in table.features],
        "data_type": DATA_TYPES[table.data_type],
    }


def random_batch(workload: Workload, batch_size: int, generator: torch.Generator) -> CollectionBatch:
    """A batch of random ids; the mean length of bags is the pooling factor of their feature.

    Ids are drawn from the table's access profile, with hot rows at the position that the table or the workload states,
    or scattered; without a profile they are uniform. The poolings of a sample are drawn as one bag.
    """
    groups = collection_groups(workload)
    return CollectionBatch([_random_features(each, batch_size, generator, workload.hot_rows) for each in groups])


def _random_features(
    tables: list[Table], batch_size: int, generator: torch.Generator, hot_rows: HotRows | None
) -> KeyedJaggedTensor:
    keys: list[str] = []
    lengths: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    for table in tables:
        for feature in table.features:
            keys.append(feature_key(table, feature))
            lengths.append(_lengths(feature.pooling_factor * feature.num_poolings, batch_size, generator))
            values.append(_random_ids(table, int(lengths[-1].sum()), generator, hot_rows))
    ids = torch.cat(values)
    weights = torch.rand(len(ids), generator=generator) if tables[0].weighted else None
    return KeyedJaggedTensor(keys=keys, values=ids, lengths=torch.cat(lengths), weights=weights)


def _random_ids(table: Table, ids: int, generator: torch.Generator, hot_rows: HotRows | None) -> torch.Tensor:
    access, rows = table.access, table.num_embeddings
    scattered = hot_rows_of(table, hot_rows) == "scattered"
    if scattered and (access is None or (access.zipf is None and access.reuse_bins is None)):
        return torch.randint(0, rows, (ids,), generator=generator)
    if scattered and access is not None:
        table = replace(table, access=replace(access.scattered(), hot_rows="in_front"))
    uniform = torch.rand(ids, generator=generator, dtype=torch.float64)
    drawn = draw_rows(_law(table, hot_rows), uniform.numpy())
    return torch.from_numpy(scatter(drawn, rows) if scattered else drawn)


_law = lru_cache(maxsize=256)(law_of)  # reused in every batch; with more tables drawing is slower, not wrong


def _lengths(mean: float, batch_size: int, generator: torch.Generator) -> torch.Tensor:
    """Random whole bag lengths with this mean: its floor, plus one with the probability of its fraction."""
    whole = int(mean)
    extra = torch.rand(batch_size, generator=generator) < mean - whole
    return whole + extra.to(torch.int64)
