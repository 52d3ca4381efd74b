"""What a job's tables cost with any changes: each change is sought a plan as hard as the job as it is, under one aim.

Where no plan runs, the job is the best plan that is found for it, and so is the job with each change: sought from the
placements that there are, and never slower nor fuller than these. Where a plan runs, placements stay, for a change is
worth what it brings without moving tables; a new plan is a change of its own. What cannot keep placements (other
devices, sharding groups, no room) is compared with a new plan of the job as it is (`beside`).

How hard is decided once, by the size of the job: by planner `auto`, or by a quick plan and a search from there
(planners/warm.py). Of plans that are about as fast, the one whose fullest device holds less is taken; where memory is
what there is to be less of, that may be as much slower as steps may be off.
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

SEARCHED = 2_000  # tables times devices of the job, up to which plans are made by the default planner
DRAFTS = 4  # placements by formulas that a quick plan is the best of
THOROUGH = 2 * EFFORT  # of a plan that begins from nothing
FURTHER = 2 * EFFORT // 3  # of one that begins from placements that were sought so
MEASURED = (None, "best")  # cost models that take long to ask, beside which formulas draft
AS_FAST = 0.01  # of a step: plans that are no longer by more count as equally fast
LEVEL = 1.05  # times the mean device: a fullest device that holds no more is not made less full
ROUNDS = 4  # of looking for a less full plan, where memory is what there is to be less of; otherwise until one is found
TIMES = 2  # that one is looked for


def is_quick(work: Workload, where: Cluster) -> bool:
    """Whether plans are made in seconds by the default planner."""
    return len(work.tables) * where.world_size <= SEARCHED


def fullest(made: Plan) -> int:
    """Bytes of the device that holds the most."""
    return max(each.hbm_bytes for each in made.cost.per_device)


def fits(made: Plan) -> bool:
    """Whether every device has room for what it holds."""
    return all(each.hbm_bytes <= each.hbm_capacity_bytes for each in made.cost.per_device)


@dataclass(frozen=True)
class PlanSearch:
    """How plans are sought: as hard for every change as for the job as it is.

    search: as `plan` takes it. aim: what there is to be less of. thorough: by the default planner.
    """

    search: Mapping[str, Any]
    aim: Aim = STEP
    thorough: bool = True

    def made(self, work: Workload, where: Cluster) -> Plan:
        """A plan from nothing."""
        if self.thorough:
            found = self._thoroughly(work, where)
        else:
            found = self._within(self._drafted(work, where), where, THOROUGH)
        return self._levelled(found)

    def _thoroughly(self, work: Workload, where: Cluster) -> Plan:
        """A plan of the default planner, or of the one that was asked for."""
        by_planner: dict[str, Any] = {"planner": Auto(brief=True), **self.search}
        return plan(work, where, **by_planner).plan

    def improved(self, start: Plan) -> Plan:
        """The plan that a search finds which is never slower, nor has a fuller device, than one that fits."""
        room = start.cluster.with_memory(fullest(start), 0)
        try:
            found = self._within(start, room)
        except (Infeasible, NoPlanFound):  # a planner that does not begin from the start may find no room
            found = start
        best = start if start.cost.step_s <= found.cost.step_s else found
        return self._levelled(best, rounds=ROUNDS // 2) if self.aim.objective == "memory" else best

    def _levelled(self, made: Plan, rounds: int = ROUNDS) -> Plan:
        """A plan about as fast whose fullest device holds less; the same where none is found."""
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
        """A plan on devices with so much room, for those of the start: from there where its size asks for that."""
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
        """A plan in a second or two: by formulas where the cost model is learned, and priced by the latter."""
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
    """Prices of a job with changes.

    base: its plan. runs: whether that runs already. rest_s: seconds of a step that are not the embeddings'; None where
    nobody said. changes: by name. by: how plans are sought. rate_of: dollars an hour of a device, by name. plans: that
    were made, by names of changes.
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
        """The job's price with switches."""
        return self.priced(self._plan(tuple(each.name for each in switches)))

    def beside(self, switch: Any) -> JobPrice | None:
        """The job under a new plan, where a change has made one of a plan that runs; None: the job as it is."""
        if not self.runs or switch.name == NEW_PLAN or switch.name not in self.planned:
            return None
        try:
            return self.priced(self._plan((NEW_PLAN,)))
        except RecSmithError:
            return None

    def _plan(self, names: tuple[str, ...]) -> Plan:
        """The plan with changes, each made under the plan of those before it."""
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
        """The step of a plan with the rest of the job, which grows with the batch."""
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
    """Devices of the whole job, all sharding groups together."""
    return cluster.world_size * (1 if cluster.replication is None else cluster.replication.replicas)


def _repriced(before: Plan, work: Workload, where: Cluster) -> Plan:
    """The same placements for changed tables on changed devices."""
    if (work, where) == (before.workload, before.cluster):
        return before
    made = replace(
        before, workload=work, cluster=where, digest="", error=None if where != before.cluster else before.error
    )
    return replace(made, cost=price_plan(made))
