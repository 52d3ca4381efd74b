"""Plans made by TorchRec's own planner (EmbeddingShardingPlanner), to compare RecSmith's with.

It runs as it ships, but for what the comparison fixes: types and kernels, pooling factors, memory without a
reservation, and a least width of half a table's columns, so that column_wise means two halves. By default TorchRec
splits nothing below 128 columns.
"""

import logging
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlannerError

from recsmith.adapters.convert import from_sharding_plan
from recsmith.clusters import Cluster
from recsmith.errors import NoPlanFound
from recsmith.plans import Placement
from recsmith.problems import Space
from recsmith.sharding import WIDTH_STEP
from recsmith.workloads import Table, Workload

COLLECTION = "tables"  # path of the one collection in the model that TorchRec's planner is given


class _OneCollection(nn.Module):
    """The tables in one collection, without memory."""

    def __init__(self, tables: list[EmbeddingBagConfig]) -> None:
        super().__init__()
        self.tables = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def plan_with_torchrec(workload: Workload, cluster: Cluster, space: Space) -> tuple[Placement, ...]:
    """Placements that TorchRec's planner finds for tables of one feature, pooled by sums, in fp32.

    Raises:
        NoPlanFound: it found none; the message is the beginning of TorchRec's.
    """
    model = _OneCollection([_config(table) for table in workload.tables])
    try:
        with quiet():
            found = _planner(workload, cluster, space).plan(model, [EmbeddingBagCollectionSharder()])  # type: ignore[list-item]
    except PlannerError as error:
        raise NoPlanFound(f"TorchRec's planner: {str(error).splitlines()[0][:200]}") from None
    tables = tuple(replace(table, collection=COLLECTION) for table in workload.tables)
    return from_sharding_plan(found, replace(workload, tables=tables), cluster)


@contextmanager
def quiet() -> Generator[None]:
    """Keep what TorchRec logs and warns of from standard error."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _planner(workload: Workload, cluster: Cluster, space: Space) -> EmbeddingShardingPlanner:
    return EmbeddingShardingPlanner(
        topology=_topology(cluster),
        batch_size=workload.batch_size,
        constraints={table.name: _limits(table, space) for table in workload.tables},
        storage_reservation=FixedPercentageStorageReservation(0.0),
        stats=[],
        debug=False,
    )


def _topology(cluster: Cluster) -> Topology:
    """The cluster as TorchRec has it: counts and memory; its own bandwidths, by which it plans."""
    capacity = min(cluster.capacities)
    on_cpu = cluster.device.kind == "cpu"
    return Topology(
        world_size=cluster.world_size,
        local_world_size=cluster.local_world_size,
        compute_device="cpu" if on_cpu else "cuda",
        ddr_cap=capacity if on_cpu else None,
        hbm_cap=None if on_cpu else capacity,
    )


def _config(table: Table) -> EmbeddingBagConfig:
    return EmbeddingBagConfig(
        name=table.name,
        embedding_dim=table.embedding_dim,
        num_embeddings=table.num_embeddings,
        feature_names=[feature.name for feature in table.features],
    )


def _limits(table: Table, space: Space) -> ParameterConstraints:
    return ParameterConstraints(
        sharding_types=list(space.types),
        compute_kernels=list(space.kernels),
        pooling_factors=[feature.pooling_factor for feature in table.features],
        min_partition=max(WIDTH_STEP, table.embedding_dim // 2),
    )
