"""Plans with towers: tables in groups of equal load, each group on the ranks of one host (docs/towers.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np

from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.analyses.tower_groups import Strategy, groups_of, interactions_of
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import cost_model as find_cost_model
from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.planning import Result, plan
from recsmith.plans import Plan
from recsmith.plans.towers import ON_A_HOST, placed_towers
from recsmith.problems import Constraints, Space, TableRule, load_constraints
from recsmith.problems.constraint_files import constraints_from_raw
from recsmith.problems.footprint import footprint_of, problem_of
from recsmith.units import counted
from recsmith.workloads import Workload, load_workload


@dataclass(frozen=True)
class TowerRequest:
    """The towers that are asked for. trained: the folder `model` of a run; needed for coherent and diverse towers."""

    count: int
    strategy: Strategy = "random"
    trained: str | None = None


def plan_towers(request: TowerRequest, **asked: Any) -> Result:
    """The plan of `plan(**asked)` with one tower on each host; the plan lists the tables of each tower.

    Raises what `plan` raises, and:
        UsageError: the numbers of towers and hosts differ, there are sequence tables or tables that share a feature, or
            the strategy needs trained tables and none are given.
        MissingExtra: OR-Tools is not installed.
    """
    workload, cluster = load_workload(asked["workload"]), load_cluster(asked["cluster"])
    _check(request, workload, cluster)
    trained = None if request.trained is None else interactions_of(Path(request.trained))
    words: dict[str, Any] = {**asked, "workload": workload, "cluster": cluster}
    free = plan(**words)
    names = sorted(table.name for table in workload.tables)
    towers = groups_of(names, table_seconds(free.plan), request.count, request.strategy, asked.get("seed", 0), trained)
    given = load_constraints(asked.get("constraints") or Constraints())
    words["constraints"] = replace(given, rules=(*given.rules, *tower_rules(towers)))
    found = plan(**words)
    return replace(found, plan=replace(found.plan, towers=towers))


def tower_rules(towers: Sequence[Sequence[str]]) -> tuple[TableRule, ...]:
    """The rules of towers: tables of tower i are placed on host i, by sharding types that use a single host."""
    return tuple(
        TableRule(tables=escape(name), hosts=(host,), sharding_types=ON_A_HOST)
        for host, tower in enumerate(towers)
        for name in tower
    )


def plan_without_towers(made: Plan, rules: tuple[TableRule, ...] = ()) -> Plan:
    """The plan that `recsmith plan` makes for the same tables and cluster without the rules of towers.

    Jobs without towers are planned like this. rules: further rules, in addition to those of the plan. The given plan is
    returned if the search finds no better one.
    """
    space, given = constraints_from_raw(made.constraints, "the plan")
    of_towers = tower_rules(placed_towers(made.placements, made.cluster))
    kept = replace(given, rules=(*(each for each in given.rules if each not in of_towers), *rules))
    found = _planned(made.workload, made.cluster, made.cost_model, space, kept)
    return made if found is None or found.cost.step_s >= made.cost.step_s else found


@lru_cache(maxsize=8)
def _planned(
    workload: Workload, cluster: Cluster, cost_model: str, space: Space, constraints: Constraints
) -> Plan | None:
    try:
        with catch_warnings(action="ignore"):  # the plan's maker has already been warned about its cost model
            return plan(workload, cluster, cost_model=cost_model, space=space, constraints=constraints).plan
    except (Infeasible, NoPlanFound):
        return None


def table_seconds(made: Plan) -> dict[str, float]:
    """Seconds that each table costs all ranks of a plan together, under the plan's cost model."""
    problem = problem_of(made)
    costs = PlacedCosts(find_cost_model(made.cost_model).compile(problem), footprint_of(problem, made.placements))
    return {table.name: float(costs.saved_by(number)[1].sum()) for number, table in enumerate(problem.tables)}


def imbalance(made: Plan) -> float:
    """Busy seconds of a plan's busiest host / mean of all hosts - 1; 0.1 is 10 %."""
    local = made.cluster.local_world_size
    busy = np.array([device.busy_s for device in made.cost.per_device]).reshape(-1, local).sum(axis=1)
    return float(busy.max() / max(busy.mean(), 1e-30) - 1)


def _check(request: TowerRequest, workload: Workload, cluster: Cluster) -> None:
    """Raise UsageError for a workload or cluster that cannot have towers."""
    if request.count != cluster.hosts:
        raise UsageError(
            f"--towers asks for {counted(request.count, 'tower')}, and the cluster has "
            f"{counted(cluster.hosts, 'host')}; each has one tower: --towers {cluster.hosts}, or a cluster of as many "
            "hosts"
        )
    sequence = next((table.name for table in workload.tables if not table.pooled), None)
    if sequence is not None:
        raise UsageError(f"table '{sequence}' has pooling none, which towers do not have; pool it, or drop --towers")
    owner: dict[str, str] = {}
    for table in workload.tables:
        for feature in table.features:
            if owner.setdefault(feature.name, table.name) != table.name:
                raise UsageError(
                    f"feature '{feature.name}' is looked up in '{owner[feature.name]}' and '{table.name}', which may "
                    "be of two towers; give each table features of its own"
                )
