"""What a job's tables cost with any changes: kept where they are placed, and searched from there.

A change is priced under the placements that the job has, which takes a price and no search. Where these cannot stay,
for want of memory or on other devices, a quick plan is made. A search then goes on from either (planners/warm.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recsmith.analyses.aims import JobPrice
from recsmith.analyses.table_changes import TableSwitch
from recsmith.clusters import Cluster
from recsmith.costs.published import error_of
from recsmith.planners.warm import EFFORT, WarmSearch
from recsmith.planning import plan
from recsmith.planning.simulate import price, price_plan
from recsmith.plans import Plan
from recsmith.workloads import Workload

SEARCHED = 2_000  # tables times devices, up to which a plan from scratch is made by the default planner
SMALL = 400  # of them, up to which every change that may pay is planned from scratch, too
DRAFTS = 4  # placements by formulas that a quick plan is the best of
THOROUGH = 2 * EFFORT  # of the job as it is, so that what is searched for a change does not gain by that alone
MEASURED = (None, "best")  # cost models that take long to ask, beside which formulas draft
RateOf = Callable[[str], float | None]


def is_quick(work: Workload, where: Cluster) -> bool:
    """Whether a plan from scratch is made in seconds."""
    return len(work.tables) * where.world_size <= SEARCHED


def is_small(work: Workload, where: Cluster) -> bool:
    """Whether all changes that may pay are planned from scratch, not only those that look best."""
    return len(work.tables) * where.world_size <= SMALL


def quick_plan(work: Workload, where: Cluster, search: Mapping[str, Any]) -> Plan:
    """A plan in a second or two: drafted by formulas where the cost model is learned, and priced by the latter."""
    model = search.get("cost_model")
    formulas = ("fitted" if where.device.kind == "cuda" else "analytic") if model in MEASURED else model
    options: dict[str, Any] = {**search, "cost_model": formulas, "iterations": DRAFTS}
    drafted = plan(work, where, **options).plan
    if formulas == model:
        return drafted
    limits = {name: search[name] for name in ("constraints", "space") if name in search}
    return price(work, where, drafted.placements, cost_model=model, bound=False, **limits)


def base_plan(work: Workload, where: Cluster, search: Mapping[str, Any]) -> Plan:
    """The plan of a job that has none: by the default planner, or quickly for very many tables."""
    if is_quick(work, where):
        return plan(work, where, **search).plan
    return searched_plan(quick_plan(work, where, search), search, THOROUGH)


def searched_plan(start: Plan, search: Mapping[str, Any], effort: int = EFFORT) -> Plan:
    """The plan that a search finds from a start, never worse."""
    return plan(start.workload, start.cluster, start=start, **_by_warm_search(search, WarmSearch(effort))).plan


def _by_warm_search(search: Mapping[str, Any], planner: WarmSearch) -> dict[str, Any]:
    return {**search, "planner": planner}


@dataclass
class PricedChanges:
    """Prices of a job with changes.

    base: its plan. rest_s: seconds of a step that are not the embeddings'. changes: by name. search: as `plan` takes
    it. rate_of: dollars an hour of a device, by name. plans: that were made, by names of changes.
    """

    base: Plan
    rest_s: float
    changes: dict[str, TableSwitch]
    search: Mapping[str, Any]
    rate_of: RateOf
    plans: dict[tuple[str, ...], Plan] = field(default_factory=dict[tuple[str, ...], Plan])

    def kept(self, switches: Sequence[Any]) -> JobPrice:
        """The job's price with switches, placements kept where they can."""
        return self._priced(self._plan(tuple(each.name for each in switches)))

    def searched(self, switches: Sequence[Any]) -> JobPrice:
        """The same after a search from there."""
        names = tuple(each.name for each in switches)
        start = self._plan(names)
        if is_quick(start.workload, start.cluster):
            found = plan(start.workload, start.cluster, **self.search).plan
        else:
            found = searched_plan(start, self.search)
        self.plans[names] = min(start, found, key=lambda each: each.cost.step_s)
        return self._priced(self.plans[names])

    def _plan(self, names: tuple[str, ...]) -> Plan:
        """The plan with changes, each made under the plan of those before it."""
        if not names:
            return self.base
        if names not in self.plans:
            self.plans[names] = self._changed(self._plan(names[:-1]), self.changes[names[-1]])
        return self.plans[names]

    def _changed(self, before: Plan, change: TableSwitch) -> Plan:
        work, where = change.edit(before.workload, before.cluster)
        if not change.planned and where.world_size == before.cluster.world_size:
            made = _repriced(before, work, where)
            if all(each.hbm_bytes <= each.hbm_capacity_bytes for each in made.cost.per_device):
                return made
            like = WarmSearch(like=before.placements)
            return plan(work, where, **_by_warm_search(self.search, like)).plan
        if (work, where) != (before.workload, before.cluster):
            return quick_plan(work, where, self.search)
        found = base_plan(work, where, self.search)
        return before if before.cost.step_s <= found.cost.step_s else found

    def _priced(self, made: Plan) -> JobPrice:
        """The step of a plan with the rest of the job, which grows with the batch."""
        samples = made.workload.batch_size
        rest_s = self.rest_s * samples / self.base.workload.batch_size
        step_s, known = made.cost.step_s + rest_s, error_of(made)
        share = made.cost.step_s / step_s if step_s else 0.0
        return JobPrice(
            step_s=step_s, samples=samples, memory_bytes=max(each.hbm_bytes for each in made.cost.per_device),
            error=known.share * share, apart=known.spread * share, devices=devices_of(made.cluster),
            dollars_per_hour=self.rate_of(made.cluster.device.name),
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
