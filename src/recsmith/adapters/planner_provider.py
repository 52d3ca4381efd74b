"""RecSmith as the planner of TorchRec's planning service (1.9 and later): `DefaultPlannerExecutor(provider)`.

TorchRec plans for one kind of device after another (`DryRunOrchestrator`), or for the job that runs
(`ProductionPlannerOrchestrator`). The caller passes a provider, which builds the topology, the reserve and the planner.
This provider takes devices from RecSmith's catalogue and plans with RecSmithPlanner.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torchrec.distributed.planner import Topology
from torchrec.distributed.planner.types import PlannerError, PlannerErrorType, ShardingOption, StorageReservation
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder, ShardingPlan

from recsmith._version import __version__
from recsmith.adapters.convert import to_sharding_plan
from recsmith.adapters.drop_in_planner import RecSmithPlanner
from recsmith.adapters.plan_loader import PlanFileLoader
from recsmith.adapters.topology import to_topology
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import Infeasible, MissingExtra, NoPlanFound, PlanMismatch, RecSmithError, UsageError
from recsmith.plans import Plan, load_plan, save_plan

SERVICE = "torchrec.distributed.planner.provider"
FROM = "hardware of RecSmith's catalogue"
OF_THE_SEARCH = (  # fields of TorchRec's PlannerConfig that choose parts of TorchRec's own search
    "proposer_type", "proposer_config", "partitioner_type", "partitioner_sort_by", "performance_model",
)  # fmt: skip


class RecSmithPlannerProvider:
    """Have TorchRec's planning service plan with RecSmith.

        executor = DefaultPlannerExecutor(RecSmithPlannerProvider(cache="plans"))
        results = DryRunOrchestrator(executor).plan(request, PlannerSessionContext(request=request, results={}))

    A SKU is a device of RecSmith's catalogue, in upper or lower case ('H100', 'gb200').

    Args:
        clusters: for SKUs with other names, the device of the catalogue or the cluster, by SKU.
        cache: folder of plan files; a request that was planned before, for the same SKU, settings and release, is
            answered from there. None keeps no files.
        planner: further arguments of RecSmithPlanner: all except cluster, batch size, constraints and reserve.

    Raises:
        MissingExtra: TorchRec is older than 1.9.
    """

    def __init__(
        self, clusters: Mapping[str, Cluster | str] | None = None, *, cache: str | Path | None = None, **planner: Any
    ) -> None:
        if find_spec(SERVICE) is None:
            raise MissingExtra(
                "TorchRec's planning service came with 1.9, and an older release is installed here; install TorchRec "
                "1.9 or later, or plan with RecSmithPlanner"
            )
        self.clusters, self.planner = dict(clusters or {}), planner
        self.cache = None if cache is None else Path(cache)

    def cluster_of(self, sku: str, request: Any) -> Cluster:
        """The cluster of a ShardingPlanRequest on devices of a SKU; UsageError if the SKU is no known device."""
        local, hosts = request.local_world_size, request.world_size // request.local_world_size
        known = self.clusters.get(sku, "cpu" if request.compute_device == "cpu" else sku.lower())
        if isinstance(known, Cluster):
            made = replace(known, local_world_size=local, hosts=hosts)
        else:
            try:
                made = load_cluster(f"{known}:{local}x{hosts}")
            except UsageError as error:
                raise UsageError(
                    f"SKU '{sku}': {error}; or say which one it is: clusters={{'{sku}': 'h100'}}"
                ) from None
        if request.pod_size is not None and request.pod_size > 1:
            made = replace(
                made, local_world_size=local * request.pod_size, hosts=hosts // request.pod_size,
                devices_per_tray=local,
            )  # fmt: skip
        if request.hbm_gb is not None:
            made = replace(made, hbm_bytes=int(request.hbm_gb * 2**30))
        if request.ddr_gb is not None:
            made = replace(made, ddr_bytes_per_host=int(request.ddr_gb * 2**30) * made.local_world_size)
        return made

    def build_topology(self, sku: str, request: Any, ctx: Any) -> Topology:
        """The devices as TorchRec's Topology, which it needs for its records; RecSmith plans for the cluster itself."""
        types: Any = import_module("torchrec.distributed.planner.types")
        ctx.hw_source[sku], ctx.hw_overrides_applied[sku] = FROM, types.HardwareConfig()
        return to_topology(self.cluster_of(sku, request))

    def build_storage_reservation(self, sku: str, request: Any) -> StorageReservation:
        """The reservation that a request asks for, built as TorchRec's own provider does; RecSmith's if it names none.

        TorchRec's default keeps too much memory free in a dry run, and warns of it.
        """
        policy = request.planner_config.storage_reservation_policy
        if request.storage_reservation is None and policy.name == "UNSET":
            return OwnReserve()
        provider: Any = import_module(SERVICE)
        reservation: StorageReservation = provider.DefaultPlannerProvider().build_storage_reservation(sku, request)
        return reservation

    def build_planner(
        self, sku: str, *, topology: Topology, storage_reservation: StorageReservation, ctx: Any
    ) -> "ServicePlanner":
        """RecSmith's planner for a SKU; UsageError if the request chooses parts of TorchRec's own search."""
        request, config = ctx.request, ctx.request.planner_config
        if config.planner_variant.name not in ("UNSET", "OSS"):
            raise UsageError(f"the request asks for planner {config.planner_variant.value}, and RecSmith's is another")
        for name in OF_THE_SEARCH:
            if getattr(config, name, None) is not None:
                raise UsageError(f"the request sets {name}, which is of TorchRec's own search; leave it out")
        planner = RecSmithPlanner(
            self.cluster_of(sku, request), batch_size=request.batch_size, constraints=request.constraints,
            storage_reservation=None if isinstance(storage_reservation, OwnReserve) else storage_reservation,
            **self.planner,
        )  # fmt: skip
        return ServicePlanner(planner, self._file(sku, request), lambda hit: ctx.cache_hit.update({sku: hit}))

    def _file(self, sku: str, request: Any) -> Path | None:
        """The cache file of a request's plan; None without a cache."""
        if self.cache is None:
            return None
        about = [
            request.request_hash,
            sku,
            str(self.clusters.get(sku)),
            repr(sorted(self.planner.items())),
            __version__,
        ]
        return self.cache / f"{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]}.json"


class OwnReserve(StorageReservation):
    """Placeholder for the reserve that RecSmithPlanner itself estimates for the rest of the model (docs/memory.md)."""

    def reserve(self, topology: Topology, *_: Any, **__: Any) -> Topology:
        """The topology unchanged: RecSmith plans for a cluster."""
        return topology

    @property
    def last_reserved_topology(self) -> Topology | None:
        """None: nothing is subtracted from a topology."""
        return None


class ServicePlanner:
    """A RecSmithPlanner with the interface that TorchRec's executor expects; it can answer from a cached plan file.

    file: the plan file that is read and written; None for no cache. report: called with whether the plan came from it.
    """

    def __init__(self, planner: RecSmithPlanner, file: Path | None, report: Callable[[bool], object]) -> None:
        self.planner, self.file, self.report = planner, file, report
        self._options: list[ShardingOption] = []

    def plan(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None = None) -> ShardingPlan:
        """The sharding plan of a model; if there is none, PlannerError with the error type that TorchRec records."""
        with _as_planner_errors():
            kept = self._kept(module, sharders)
            if kept is not None:
                return kept
            made = self.planner.plan(module, sharders)
            assert self.planner.result is not None
            self._keep(self.planner.result.plan)
            self._show(self.planner.result.plan, module, sharders)
            return made

    def collective_plan(
        self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None = None,
        pg: dist.ProcessGroup | None = None,
    ) -> ShardingPlan:  # fmt: skip
        """The same plan on every rank; only rank 0 has selected options. Cached plan files are not read here."""
        with _as_planner_errors():
            made = self.planner.collective_plan(module, sharders, pg)
            if self.planner.result is not None:
                self._keep(self.planner.result.plan)
                self._show(self.planner.result.plan, module, sharders)
            return made

    def get_selected_options(self) -> list[ShardingOption]:
        """The chosen options with TorchRec's estimates; empty if TorchRec does not enumerate one of the choices."""
        return self._options

    def get_search_space(self) -> None:
        """None: RecSmith's search space has too many options to list."""

    def _kept(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None) -> ShardingPlan | None:
        """The cached plan, if the file exists and fits this model; else None."""
        if self.file is None:
            return None
        try:
            plan = load_plan(self.file)
            made = to_sharding_plan(plan, module, sharders=sharders, constraints=self.planner.constraints)
        except (UsageError, PlanMismatch):  # the file is missing, cut short, or of another model
            self.report(False)
            return None
        self.report(True)
        self._show(plan, module, sharders)
        return made

    def _keep(self, plan: Plan) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            save_plan(plan, self.file)

    def _show(self, plan: Plan, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]] | None) -> None:
        try:
            self._options = list(PlanFileLoader(plan, module, sharders or get_default_sharders()).load().values())
        except (PlanMismatch, UsageError):
            self._options = []


@contextmanager
def _as_planner_errors() -> Generator[None]:
    """Raise RecSmith's errors as TorchRec's PlannerError, which its executor records."""
    try:
        yield
    except RecSmithError as error:
        raise PlannerError(str(error), _type_of(error)) from error


def _type_of(error: RecSmithError) -> PlannerErrorType:
    if isinstance(error, Infeasible):
        return PlannerErrorType.INSUFFICIENT_STORAGE
    if isinstance(error, NoPlanFound):
        return PlannerErrorType.PARTITION
    return getattr(PlannerErrorType, "INPUT_VALIDATION", PlannerErrorType.OTHER)
