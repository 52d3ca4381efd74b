"""A running job beside its plan: its ShardingPlan as a Plan, its kernels as measured, and whether to plan anew."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch.distributed as dist
from torch import nn
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder, ShardingPlan

from recsmith._types import noun
from recsmith.adapters.access_counts import AccessCounts
from recsmith.adapters.convert import from_sharding_plan
from recsmith.adapters.kernel_times import KernelTimer
from recsmith.adapters.rank_0 import from_rank_0
from recsmith.adapters.topology import find_cluster
from recsmith.adapters.workload import read_workload
from recsmith.analyses.replan_curve import LIMITS, replan_curve
from recsmith.clusters import Cluster
from recsmith.costs import CostModel
from recsmith.errors import UsageError
from recsmith.files import Source, decode, encode
from recsmith.planning.simulate import price
from recsmith.plans import Plan, load_plan, plan_from_raw, plan_to_raw
from recsmith.workloads import Workload


def import_plan(
    sharding_plan: ShardingPlan,
    module: nn.Module,
    cluster: Cluster | Topology | Source,
    *,
    batch_size: int,
    sharders: Sequence[ModuleSharder[nn.Module]] | None = None,
    constraints: Mapping[str, ParameterConstraints] | None = None,
    optimizer: str | Enum | None = None,
    cost_model: str | CostModel | None = None,
) -> Plan:
    """A Plan of a TorchRec ShardingPlan, whichever planner made it: save it, explain it, diff it, plan from it.

    sharding_plan: such as `model.plan` of a DistributedModelParallel. module: the model before it was sharded, which
    names tables and features; it may be on the meta device. The other arguments are those of RecSmithPlanner.

    Raises:
        UsageError: the model or an argument cannot be read.
        PlanMismatch: the plan misses a table of the model, or holds what cannot be run on the cluster.
    """
    machines = find_cluster(cluster, None)
    workload = read_workload(
        module, sharders or get_default_sharders(), batch_size=batch_size, constraints=constraints, optimizer=optimizer
    )
    return price(workload, machines, from_sharding_plan(sharding_plan, workload, machines), cost_model=cost_model)


STEPS, SKIP = 50, 5  # of a watch: medians of fewer steps hang on single ones; the first steps of a job are slow
SEARCH_S = 60.0  # of planning anew on rank 0, while the other ranks wait


@noun
class RankKernelTimes:
    """Seconds of a rank's embedding kernels in a step: predicted by the cost model, and the median of the measured."""

    rank: int
    predicted_forward_s: float
    predicted_backward_s: float
    forward_s: float
    backward_s: float

    @property
    def predicted_s(self) -> float:
        """Forward and backward, predicted."""
        return self.predicted_forward_s + self.predicted_backward_s

    @property
    def measured_s(self) -> float:
        """Forward and backward, measured."""
        return self.forward_s + self.backward_s


@noun
class WatchReport:
    """What a watch found, the same on every rank.

    steps: that were measured. ranks: predicted and measured kernels. workload: the plan's tables with the statistics of
    the watched batches. planned_s, running_s: what the running plan costs under its own workload and under that one,
    predicted. plan: the plan that pays, with what it moves; None where none does, or the steps left were not said.
    saved_s: by how much the steps that are left take less time under it, the move taken off.
    """

    steps: int
    ranks: tuple[RankKernelTimes, ...]
    workload: Workload
    planned_s: float
    running_s: float
    plan: Plan | None = None
    moved_bytes: int = 0
    saved_s: float = 0.0

    @property
    def factor(self) -> float:
        """How many times longer the slowest rank's kernels take than those of the slowest are predicted to."""
        predicted = max(rank.predicted_s for rank in self.ranks)
        return max(rank.measured_s for rank in self.ranks) / predicted if predicted else float("nan")


class PlanWatch:
    """Watches a training job for some steps, then says how far its plan is from what is measured, and what would help.

        watch = PlanWatch(model, "plan.json")
        for batch in loader:
            train(batch)
            if watch.step(batch):
                report = watch.report(steps_left=500_000)      # on every rank
                recsmith.save_workload(report.workload, "live.json")

    model: the DistributedModelParallel. plan: the one that it runs. steps: that are measured, after `skip` others.
    Kernels are timed by hooks, which are gone after the last step. `step` takes what `observe` takes.

    Raises:
        UsageError: steps are none, or the model has no sharded module.
    """

    def __init__(self, model: nn.Module, plan: Plan | Source, *, steps: int = STEPS, skip: int = SKIP) -> None:
        if steps < 1 or skip < 0:
            raise UsageError(f"watch at least 1 step after 0 or more that are skipped, not {steps} after {skip}")
        self.plan = load_plan(plan)
        self.steps, self.skip, self.seen = steps, skip, 0
        self.counts = AccessCounts(self.plan.workload.tables)
        self.times = KernelTimer(model)
        if not self.times.lookups:
            raise UsageError("the model has no sharded embedding module; give the DistributedModelParallel of the job")

    def step(self, batch: object) -> bool:
        """Count one step that has ended, and its batch; True when the last one of the watch has been seen."""
        if self.done:
            return False
        keep = self.seen >= self.skip
        self.times.step(keep)
        if keep:
            self.counts.add(batch)
        self.seen += 1
        if self.done:
            self.times.remove()
        return self.done

    @property
    def done(self) -> bool:
        """Whether all steps have been seen."""
        return self.seen >= self.skip + self.steps

    def report(
        self, *, steps_left: int | None = None, link_bandwidth: float | None = None, search_s: float = SEARCH_S,
        limits: tuple[int | str, ...] = LIMITS, group: dist.ProcessGroup | None = None,
    ) -> WatchReport:  # fmt: skip
        """What was found, on every rank alike: a collective call.

        steps_left: steps that the job still makes; with it rank 0 plans anew, for `search_s` seconds a limit at most.
        link_bandwidth, limits: as in `recsmith.replan_curve`.

        Raises:
            UsageError: the watch has not ended, or there is no process group.
            RecSmithError: rank 0 met it; every rank raises it.
        """
        if not self.done:
            raise UsageError(f"the watch has seen {self.seen} of {self.skip + self.steps} steps; go on with `step`")
        if not dist.is_initialized():
            raise UsageError("report needs a process group; call torch.distributed.init_process_group() first")
        found: list[Any] = [None] * dist.get_world_size(group)
        mine = {
            "forward": statistics.median(self.times.forward), "backward": statistics.median(self.times.backward),
            "counts": self.counts.to_raw(),
        }  # fmt: skip
        dist.all_gather_object(found, json.dumps(mine), group=group)
        options = ReportOptions(steps_left, link_bandwidth, search_s, limits)
        ranks = [json.loads(each) for each in found]
        return _from_raw(from_rank_0(lambda: _to_raw(build_report(self.plan, self.steps, ranks, options)), group))


@dataclass(frozen=True)
class ReportOptions:
    """What `report` was options for besides the watch."""

    steps_left: int | None = None
    link_bandwidth: float | None = None
    search_s: float = SEARCH_S
    limits: tuple[int | str, ...] = LIMITS


def build_report(plan: Plan, steps: int, found: list[Any], options: ReportOptions) -> WatchReport:
    """The report of what all ranks found: {forward, backward, counts} of each, in order of ranks."""
    counts = AccessCounts(plan.workload.tables)
    for each in found:
        counts.add_raw(each["counts"])
    counts.check()
    tables = tuple(counts.measured(table) for table in plan.workload.tables)
    size = max(1, round(counts.samples / counts.batches))
    workload = replace(plan.workload, batch_size=size, tables=tables, source=f"watched: {steps} steps")
    running = price(workload, plan.cluster, plan, cost_model=plan.cost_model, bound=False)
    report = WatchReport(
        steps=steps, workload=workload, planned_s=plan.cost.step_s, running_s=running.cost.step_s,
        ranks=tuple(
            RankKernelTimes(
                rank=device.rank, forward_s=each["forward"], backward_s=each["backward"],
                predicted_forward_s=device.forward_compute_s, predicted_backward_s=device.backward_compute_s,
            )
            for device, each in zip(running.cost.per_device, found, strict=True)
        ),
    )  # fmt: skip
    return report if options.steps_left is None else _with_plan(report, plan, options.steps_left, options)


def _with_plan(report: WatchReport, plan: Plan, steps_left: int, options: ReportOptions) -> WatchReport:
    """The report with the plan that pays, if one does: steps and move together take less than going on."""
    curve = replan_curve(
        plan, report.workload, limits=options.limits, steps_left=steps_left, link_bandwidth=options.link_bandwidth,
        time_limit_s=options.search_s,
    )  # fmt: skip
    saved = steps_left * report.running_s - (curve.points[curve.recommended or 0].total_s or 0.0)
    if saved <= 0 or not curve.best.moved_bytes:
        return report
    return replace(report, plan=curve.best.result.plan, moved_bytes=curve.best.moved_bytes, saved_s=saved)


def _from_raw(raw: dict[str, Any]) -> WatchReport:
    plan = raw.pop("plan", None)
    report = decode(WatchReport, raw, "rank 0's report")
    return report if plan is None else replace(report, plan=plan_from_raw(plan, "rank 0's plan"))


def _to_raw(report: WatchReport) -> dict[str, Any]:
    raw = encode(replace(report, plan=None))
    return raw if report.plan is None else raw | {"plan": plan_to_raw(report.plan)}
