"""Prices a job's tables with any changes; each change is planned with the same effort as the job as it is.

If no plan is running, the price of the job is that of the best plan found for it. So is the price with each change; its
search starts from the present placements, and its result is never slower or fuller than these. If a plan is running,
placements are kept, so that a change is worth its gain without moving tables; a new plan is a separate change. A change
that cannot keep placements (other devices, sharding groups, no room) is compared with a new plan for the job as it is
(`beside`).

The effort is chosen once, by the size of the job: planner `auto`, or a quick plan and a search from there
(planners/warm.py). Of plans that are about equally fast, the one whose fullest device holds less is taken; if memory is
the objective, that plan may be slower by as much as the error of a predicted step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recsmith.analyses.aims import STEP, Aim, JobPrice
from recsmith.analyses.table_changes import NEW_PLAN, TableSwitch
from recsmith.clusters import Cluster
from recsmith.costs.published import error_of
from recsmith.errors import Infeasible, NoPlanFound, RecSmithError
from recsmith.planners.auto import Auto
from recsmith.planners.warm import EFFORT, WarmSearch
from recsmith.planning import plan
from recsmith.planning.simulate import price, price_plan
from recsmith.plans import Plan
from recsmith.problems.plain_reserve import estimated_anew
from recsmith.workloads import Workload

SEARCHED = 2_000  # tables x devices of the job up to which the default planner makes the plans
DRAFTS = 4  # iterations of the quick plan, which is the best of this many placements
THOROUGH = 2 * EFFORT  # effort of a search that starts from a quick plan
FURTHER = 2 * EFFORT // 3  # effort of a search that starts from placements already searched for
MEASURED = (None, "best")  # cost models that are slow to evaluate; quick plans use formulas in their place
AS_FAST = 0.01  # relative: a plan whose step is longer by at most this counts as equally fast
LEVEL = 1.05  # a fullest device with at most this multiple of the mean bytes is not made less full
ROUNDS = 4  # most searches for a less full plan if memory is the objective
TIMES = 2  # most searches for a less full plan otherwise; the first success ends them


def is_quick(work: Workload, where: Cluster) -> bool:
    """Whether the default planner plans a job of this size in seconds."""
    return len(work.tables) * where.world_size <= SEARCHED


def fullest(made: Plan) -> int:
    """Bytes on the fullest device of a plan."""
    return max(each.hbm_bytes for each in made.cost.per_device)


def fits(made: Plan) -> bool:
    """Whether no device of a plan needs more bytes than it has."""
    return all(each.hbm_bytes <= each.hbm_capacity_bytes for each in made.cost.per_device)


@dataclass(frozen=True)
class PlanSearch:
    """Searches for plans, with the same effort for every change as for the job as it is.

    search: further arguments of `plan`. aim: the objective. thorough: whether the default planner is used.
    """

    search: Mapping[str, Any]
    aim: Aim = STEP
    thorough: bool = True

    def made(self, work: Workload, where: Cluster) -> Plan:
        """A plan made from scratch."""
        if self.thorough:
            found = self._thoroughly(work, where)
        else:
            found = self._within(self._drafted(work, where), where, THOROUGH)
        return self._levelled(found)

    def _thoroughly(self, work: Workload, where: Cluster) -> Plan:
        """A plan of the default planner, or of the planner named in `search`."""
        by_planner: dict[str, Any] = {"planner": Auto(brief=True), **self.search}
        return plan(work, where, **by_planner).plan

    def improved(self, start: Plan) -> Plan:
        """A plan found from a fitting start, which is neither slower than the start nor has a fuller device."""
        room = start.cluster.with_memory(fullest(start), 0)
        try:
            found = self._within(start, room)
        except (Infeasible, NoPlanFound):  # a planner that ignores the start may find no room
            found = start
        best = start if start.cost.step_s <= found.cost.step_s else found
        return self._levelled(best, rounds=ROUNDS // 2) if self.aim.objective == "memory" else best

    def _levelled(self, made: Plan, rounds: int = ROUNDS) -> Plan:
        """A plan that is about as fast and whose fullest device holds less; the given plan if none is found."""
        of_memory = self.aim.objective == "memory"
        longest = made.cost.step_s * (1 + (error_of(made).share if of_memory else AS_FAST))
        least = sum(each.hbm_bytes for each in made.cost.per_device) // len(made.cost.per_device)
        for _ in range(rounds if of_memory else TIMES):
            if fullest(made) <= LEVEL * least:
                break
            half = (least + fullest(made)) // 2
            try:
                found = self._within(made, made.cluster.with_memory(half, 0))
            except (Infeasible, NoPlanFound):
                found = None
            if found is not None and found.cost.step_s <= longest and fullest(found) < fullest(made):
                made = found
                if not of_memory:
                    break
            else:
                least = half
        return made

    def _within(self, start: Plan, room: Cluster, effort: int = FURTHER) -> Plan:
        """A plan within the memory of `room`, priced on the start's cluster; a large job is searched from the start."""
        if self.thorough:
            found = self._thoroughly(start.workload, room)
        else:
            planner = WarmSearch(effort, like=start.placements)
            begin = replace(start, cluster=room, digest="") if fullest(start) <= min(room.hbm_per_rank) else None
            by_planner: dict[str, Any] = {**self.search, "planner": planner, "start": begin}
            found = plan(start.workload, room, **by_planner).plan
        made = replace(found, cluster=start.cluster, digest="")
        return replace(made, cost=price_plan(made))

    def _drafted(self, work: Workload, where: Cluster) -> Plan:
        """A plan made in a second or two: if the cost model is learned, formulas search and the model prices."""
        model = self.search.get("cost_model")
        formulas = ("fitted" if where.device.kind == "cuda" else "analytic") if model in MEASURED else model
        options: dict[str, Any] = {**self.search, "cost_model": formulas, "iterations": DRAFTS}
        drafted = plan(work, where, **options).plan
        if formulas == model:
            return drafted
        limits = {name: self.search[name] for name in ("constraints", "space") if name in self.search}
        return price(work, where, drafted.placements, cost_model=model, bound=False, **limits)


@dataclass
class PricedChanges:
    """Prices a job with any changes.

    base: the plan of the job as it is. runs: whether that plan is running. rest_s: seconds of a step without the
    embeddings; None if not stated. changes: the changes by name. by: the search for plans. rate_of: returns the dollars
    per hour of a device by name. plans: the plans made so far, by names of changes. planned: names of changes that
    needed a new plan.
    """

    base: Plan
    runs: bool
    rest_s: float | None
    changes: dict[str, TableSwitch]
    by: PlanSearch
    rate_of: Callable[[str], float | None]
    plans: dict[tuple[str, ...], Plan] = field(default_factory=dict[tuple[str, ...], Plan])
    planned: set[str] = field(default_factory=set[str])

    def price(self, switches: Sequence[Any]) -> JobPrice:
        """The job's price with these switches."""
        return self.priced(self._plan(tuple(each.name for each in switches)))

    def beside(self, switch: Any) -> JobPrice | None:
        """The price of the job under a new plan, if a switch had to replace a running plan; else None."""
        if not self.runs or switch.name == NEW_PLAN or switch.name not in self.planned:
            return None
        try:
            return self.priced(self._plan((NEW_PLAN,)))
        except RecSmithError:
            return None

    def _plan(self, names: tuple[str, ...]) -> Plan:
        """The plan with these changes, each applied to the plan of the previous ones."""
        if not names:
            return self.base
        if names not in self.plans:
            self.plans[names] = self._changed(self._plan(names[:-1]), self.changes[names[-1]])
        return self.plans[names]

    def _changed(self, before: Plan, change: TableSwitch) -> Plan:
        work, where = change.edit(before.workload, before.cluster)
        where = estimated_anew(where, before.workload, work)
        if not change.planned and where.world_size == before.cluster.world_size:
            kept = _repriced(before, work, where)
            if fits(kept):
                return kept if self.runs else self.by.improved(kept)
        self.planned.add(change.switch.name)
        found = self.by.made(work, where)
        value = self.by.aim.value
        if change.switch.name == NEW_PLAN and fits(before) and value(self.priced(before)) <= value(self.priced(found)):
            return before
        return found

    def priced(self, made: Plan) -> JobPrice:
        """The price of a plan together with the rest of the step, whose seconds grow in proportion to the batch."""
        samples = made.workload.batch_size
        rest_s = (self.rest_s or 0.0) * samples / self.base.workload.batch_size
        step_s, known = made.cost.step_s + rest_s, error_of(made)
        share = made.cost.step_s / step_s if step_s else 0.0
        return JobPrice(
            step_s=step_s, samples=samples, memory_bytes=fullest(made), error=known.share * share,
            apart=known.spread * share, devices=devices_of(made.cluster),
            dollars_per_hour=self.rate_of(made.cluster.device.name), whole=self.rest_s is not None,
        )  # fmt: skip


def devices_of(cluster: Cluster) -> int:
    """Number of devices of the whole job, over all sharding groups."""
    return cluster.world_size * (1 if cluster.replication is None else cluster.replication.replicas)


def _repriced(before: Plan, work: Workload, where: Cluster) -> Plan:
    """The same placements, priced for changed tables on changed devices."""
    if (work, where) == (before.workload, before.cluster):
        return before
    made = replace(
        before, workload=work, cluster=where, digest="", error=None if where != before.cluster else before.error
    )
    return replace(made, cost=price_plan(made))
