"""Plans made by TorchRec's own planner (EmbeddingShardingPlanner), for comparisons with RecSmith's plans.

The planner runs as released, except that a comparison fixes some inputs (types and kernels of the space, pooling
factors, memory), and that its settings can differ (torchrec_settings.py).
"""

import logging
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner, SortBy
from torchrec.distributed.planner.proposers import (
    DynamicProgrammingProposer,
    GreedyProposer,
    GridSearchProposer,
    UniformProposer,
)
from torchrec.distributed.planner.storage_reservations import (
    FixedPercentageStorageReservation,
    HeuristicalStorageReservation,
)
from torchrec.distributed.planner.types import Enumerator, PlannerError, Proposer, ShardingOption, StorageReservation
from torchrec.distributed.types import ShardingPlan

from recsmith.adapters.convert import from_sharding_plan
from recsmith.adapters.topology import PER_S, counts_of
from recsmith.adapters.torchrec_settings import STOCK, TorchRecSettings, least_width
from recsmith.clusters import Cluster
from recsmith.costs import Evaluator, step_seconds
from recsmith.errors import NoPlanFound, PlanMismatch
from recsmith.plans import Placement
from recsmith.problems import Space, footprint_of
from recsmith.sharding import TYPE_NAMES
from recsmith.workloads import Table, Workload


class LimitedProposer(Proposer):
    """Wraps a proposer and ends its proposals once the process has used cpu_s CPU seconds since the first proposal.

    TorchRec's own limit is in wall-clock seconds for all proposers together, so the first can use up all of it.
    """

    def __init__(self, proposer: Proposer, cpu_s: float) -> None:
        self._proposer, self._cpu_s = proposer, cpu_s
        self._ends: float | None = None

    def load(self, search_space: list[ShardingOption], enumerator: Enumerator | None = None) -> None:
        """Pass the search space to the proposer; its CPU time is counted from its first proposal."""
        self._ends = None
        self._proposer.load(search_space, enumerator)

    def propose(self) -> list[ShardingOption] | None:
        """The proposer's next proposal; None once its CPU time is used up."""
        if self._ends is None:
            self._ends = time.process_time() + self._cpu_s
        return self._proposer.propose() if time.process_time() < self._ends else None

    def feedback(
        self,
        partitionable: bool,
        plan: list[ShardingOption] | None = None,
        perf_rating: float | None = None,
        storage_constraint: Topology | None = None,
    ) -> None:
        """Pass the outcome of the last proposal to the proposer."""
        given: dict[str, Any] = {"plan": plan, "perf_rating": perf_rating, "storage_constraint": storage_constraint}
        self._proposer.feedback(partitionable, **given)


PROPOSERS: dict[str, Callable[[], list[Proposer]]] = {  # makers of proposers, by the names in TorchRecSettings
    "default": lambda: [GridSearchProposer(), GreedyProposer(), GreedyProposer(use_depth=False), UniformProposer()],
    "greedy": lambda: [GreedyProposer()],
    "greedy_sum": lambda: [GreedyProposer(use_depth=False)],
    "uniform": lambda: [UniformProposer()],
    "grid": lambda: [GridSearchProposer()],
    "dynamic_programming": lambda: [DynamicProgrammingProposer()],
}
COLLECTION = "tables"  # path of the single collection in the model that is passed to TorchRec's planner


class _OneCollection(nn.Module):
    """A model with all tables in one collection, on the meta device."""

    def __init__(self, tables: list[EmbeddingBagConfig]) -> None:
        super().__init__()
        self.tables = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))


def plan_with_torchrec(
    workload: Workload, cluster: Cluster, space: Space, settings: TorchRecSettings = STOCK
) -> tuple[Placement, ...]:
    """Placements that TorchRec's planner finds; it sees every table as sum-pooled and in fp32.

    Raises:
        NoPlanFound: TorchRec's planner found no plan; the message quotes the beginning of its error.
    """
    _, found = _find(workload, cluster, space, settings)
    tables = tuple(replace(table, collection=COLLECTION) for table in workload.tables)
    return from_sharding_plan(found, replace(workload, tables=tables), cluster)


def rate_with_torchrec(workload: Workload, cluster: Cluster, space: Space, settings: TorchRecSettings = STOCK) -> float:
    """Seconds per step of the plan that TorchRec's planner finds, by its own estimator and the settings' bandwidths.

    The plan is not converted, so it may have shards that a job cannot run, such as row blocks without rows.

    Raises:
        NoPlanFound: TorchRec's planner found no plan; the message quotes the beginning of its error.
    """
    planner, _ = _find(workload, cluster, space, settings)
    return planner._perf_model.rate(planner._best_plan or []) / 1e3  # from milliseconds


def _find(
    workload: Workload, cluster: Cluster, space: Space, settings: TorchRecSettings
) -> tuple[EmbeddingShardingPlanner, ShardingPlan]:
    model = _OneCollection([_config(table) for table in workload.tables])
    try:
        with quiet():
            planner = _planner(workload, cluster, space, settings)
            return planner, planner.plan(model, [EmbeddingBagCollectionSharder()])  # type: ignore[list-item]
    except PlannerError as error:
        raise NoPlanFound(f"TorchRec's planner: {str(error).splitlines()[0][:200]}") from None


@contextmanager
def quiet() -> Generator[None]:
    """Suppress TorchRec's log messages and warnings."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _planner(
    workload: Workload, cluster: Cluster, space: Space, settings: TorchRecSettings
) -> EmbeddingShardingPlanner:
    return EmbeddingShardingPlanner(
        topology=_topology(cluster, settings),
        batch_size=workload.batch_size,
        constraints=_limits(workload, cluster, space, settings),
        storage_reservation=_reservation(settings),
        proposer=_proposers(settings),
        partitioner=GreedyPerfPartitioner(sort_by=SortBy(settings.order)),
        stats=[],
        debug=False,
        timeout_seconds=settings.timeout_s,
    )


def _proposers(settings: TorchRecSettings) -> list[Proposer]:
    found, limit = PROPOSERS[settings.proposers](), settings.proposer_cpu_s
    return found if limit is None else [LimitedProposer(each, limit) for each in found]


def _reservation(settings: TorchRecSettings) -> StorageReservation:
    if settings.reserve == "heuristic":
        return HeuristicalStorageReservation(percentage=0.15)  # the default of TorchRec's planner
    return FixedPercentageStorageReservation(float(settings.reserve))


def _topology(cluster: Cluster, settings: TorchRecSettings) -> Topology:
    """The cluster as a TorchRec topology: counts, memory, and the bandwidths that the settings choose."""
    capacity = min(cluster.capacities)
    on_cpu = cluster.device.kind == "cpu"
    return Topology(
        world_size=cluster.world_size,
        **counts_of(cluster),
        compute_device="cpu" if on_cpu else "cuda",
        ddr_cap=capacity if on_cpu else None,
        hbm_cap=None if on_cpu else capacity,
        **(_bandwidths(cluster) if settings.bandwidths == "cluster" else {}),
    )


def _bandwidths(cluster: Cluster) -> dict[str, Any]:
    """The cluster's bandwidths as arguments of a Topology, in bytes per millisecond."""
    device = cluster.device
    found = {
        "ddr_mem_bw" if device.kind == "cpu" else "hbm_mem_bw": device.hbm_bandwidth,
        "hbm_to_ddr_mem_bw": device.host_link_bandwidth,
        "intra_host_bw": cluster.links.intra_host_bandwidth,
        "inter_host_bw": cluster.links.inter_host_bandwidth,
    }
    return {name: value / PER_S for name, value in found.items() if value is not None}


def _config(table: Table) -> EmbeddingBagConfig:
    return EmbeddingBagConfig(
        name=table.name,
        embedding_dim=table.embedding_dim,
        num_embeddings=table.num_embeddings,
        feature_names=[feature.name for feature in table.features],
    )


def _limits(
    workload: Workload, cluster: Cluster, space: Space, settings: TorchRecSettings
) -> dict[str, ParameterConstraints]:
    values = {table.name: _values(table) for table in workload.tables}
    heavy = settings.heavy * sum(values.values()) / cluster.world_size
    return {
        table.name: ParameterConstraints(
            sharding_types=list(settings.types_in(space)),
            compute_kernels=list(space.kernels),
            pooling_factors=[feature.pooling_factor for feature in table.features],
            min_partition=least_width(settings.min_partition, table.embedding_dim)
            if values[table.name] >= heavy
            else None,
        )
        for table in workload.tables
    }


def _values(table: Table) -> float:
    return table.embedding_dim * sum(feature.pooling_factor for feature in table.features)


def best_of_settings(
    evaluator: Evaluator, settings: Sequence[TorchRecSettings]
) -> tuple[tuple[Placement, ...], TorchRecSettings]:
    """The placements with the least seconds per step by the evaluator, and the settings that found them.

    TorchRec may use the sharding types that some table can have in this problem, so not grid_shard on one host. A plan
    that cannot be run, such as one with row blocks without rows, does not count.

    Raises:
        NoPlanFound: no setting found a plan.
    """
    problem = evaluator.problem
    here = {TYPE_NAMES[kind] for kind in problem.modes.type.tolist()}
    space = replace(problem.space, types=tuple(name for name in problem.space.types if name in here))
    best: tuple[float, tuple[Placement, ...], TorchRecSettings] | None = None
    for each in settings:
        try:
            placements = plan_with_torchrec(problem.workload, problem.cluster, space, each)
        except (NoPlanFound, PlanMismatch):
            continue
        seconds = step_seconds(evaluator, footprint_of(problem, placements))
        if best is None or seconds < best[0]:
            best = seconds, placements, each
    if best is None:
        raise NoPlanFound(f"TorchRec's planner found no plan under any of {len(settings)} settings")
    return best[1], best[2]
