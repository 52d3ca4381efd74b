"""Compares a running job with its plan: imports its ShardingPlan, measures its kernels, finds a plan that pays."""

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
    """A Plan made from a TorchRec ShardingPlan of any planner, to save it, explain it, diff it or replan from it.

    sharding_plan: such as `model.plan` of a DistributedModelParallel. module: the model before it was sharded, which
    names tables and features; it may be on the meta device. The other arguments are those of RecSmithPlanner.

    Raises:
        UsageError: the model or an argument cannot be read.
        PlanMismatch: the plan lacks a table of the model, or a placement cannot be run on the cluster.
    """
    machines = find_cluster(cluster, None)
    workload = read_workload(
        module, sharders or get_default_sharders(), batch_size=batch_size, constraints=constraints, optimizer=optimizer
    )
    return price(workload, machines, from_sharding_plan(sharding_plan, workload, machines), cost_model=cost_model)


STEPS, SKIP = 50, 5  # steps measured, skipped: medians of fewer depend on single ones; the first steps are slow
SEARCH_S = 60.0  # seconds of replanning on rank 0 per limit of moved bytes, while the other ranks wait


@noun
class RankKernelTimes:
    """Seconds of a rank's embedding kernels per step: as the cost model predicts, and the median of measured steps."""

    rank: int
    predicted_forward_s: float
    predicted_backward_s: float
    forward_s: float
    backward_s: float

    @property
    def predicted_s(self) -> float:
        """Predicted seconds, forward + backward."""
        return self.predicted_forward_s + self.predicted_backward_s

    @property
    def measured_s(self) -> float:
        """Measured seconds, forward + backward."""
        return self.forward_s + self.backward_s


@noun
class WatchReport:
    """The findings of a watch, equal on every rank.

    steps: number of measured steps. ranks: predicted and measured kernel times of each rank. workload: the plan's
    tables with the statistics of the watched batches. planned_s, running_s: predicted seconds of a step under the
    running plan, with the plan's own workload and with the watched one. plan: a new plan that pays; None if none does
    or the number of steps left was not given. moved_bytes: bytes that a move to it moves. saved_s: seconds that it
    saves over the steps left, after the time of the move is subtracted.
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
        """Measured seconds of the slowest rank's kernels / predicted seconds of the slowest rank's kernels."""
        predicted = max(rank.predicted_s for rank in self.ranks)
        return max(rank.measured_s for rank in self.ranks) / predicted if predicted else float("nan")


class PlanWatch:
    """Watches a training job for some steps, then compares predicted with measured times and looks for a better plan.

        watch = PlanWatch(model, "plan.json")
        for batch in loader:
            train(batch)
            if watch.step(batch):
                report = watch.report(steps_left=500_000)      # on every rank
                recsmith.save_workload(report.workload, "live.json")

    Kernels are timed by hooks, which are removed after the last step. `step` takes the same batches as `observe`.

    Args:
        model: the DistributedModelParallel.
        plan: the plan that it runs, or its file.
        steps: number of steps that are measured.
        skip: number of steps before them that are not measured.

    Raises:
        UsageError: `steps` is below 1, `skip` below 0, or the model has no sharded embedding module.
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
        """Count a step that has ended, and its batch; returns True at the last step of the watch."""
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
        """The findings of the watch, equal on every rank. This is a collective call.

        Args:
            steps_left: steps that the job still has to run; if given, rank 0 searches for a better plan.
            link_bandwidth: as in `recsmith.replan_curve`.
            search_s: the most seconds of that search for each limit.
            limits: as in `recsmith.replan_curve`.
            group: all ranks of the job.

        Raises:
            UsageError: the watch has not ended, or there is no process group.
            RecSmithError: rank 0 raised it; every rank raises it.
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
    """The options of `PlanWatch.report` that `build_report` needs."""

    steps_left: int | None = None
    link_bandwidth: float | None = None
    search_s: float = SEARCH_S
    limits: tuple[int | str, ...] = LIMITS


def build_report(plan: Plan, steps: int, found: list[Any], options: ReportOptions) -> WatchReport:
    """The report made from the findings of all ranks: {forward, backward, counts} of each, in order of ranks."""
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
    """The report with a new plan, if one pays: its steps and the move together take less time than the old plan."""
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
