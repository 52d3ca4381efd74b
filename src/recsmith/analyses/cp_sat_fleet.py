# pyright: basic
"""Chooses a pool and a number of hosts for each of many jobs by CP-SAT: least dollars, without overbooking a pool."""

from collections.abc import Sequence
from typing import Any

from ortools.sat.python import cp_model

SETTINGS = {"num_workers": 1, "random_seed": 0}
UNITS = 10_000_000  # number of units into which the most expensive option is divided; dollars are rounded down to units


def assign(
    ways: Sequence[Any], room: dict[str, int], time_limit_s: float, late: Sequence[bool] | None = None
) -> tuple[list[Any], float] | None:  # fmt: skip
    """One option for each job, and a proved lower bound on the dollars; None if it is proved that not all jobs fit.

    Args:
        ways: the options; each has a job, a pool, hosts and dollars.
        room: number of hosts of each pool.
        time_limit_s: limit of the search, in CP-SAT's deterministic time.
        late: whether each option misses its deadline; if given, the number of late jobs is minimized, not the dollars.
    """
    model = cp_model.CpModel()
    takes = [model.new_bool_var(f"{way.job} {way.pool} {way.hosts}") for way in ways]
    for job in dict.fromkeys(way.job for way in ways):
        model.add_exactly_one(take for take, way in zip(takes, ways, strict=True) if way.job == job)
    for pool, hosts in room.items():
        model.add(sum(way.hosts * take for take, way in zip(takes, ways, strict=True) if way.pool == pool) <= hosts)
    unit = max((way.dollars for way in ways), default=0.0) / UNITS or 1.0
    costs = [int(way.dollars / unit) for way in ways] if late is None else list(map(int, late))
    model.minimize(sum(cost * take for cost, take in zip(costs, takes, strict=True)))
    solver = cp_model.CpSolver()
    for name, value in SETTINGS.items():
        setattr(solver.parameters, name, value)
    solver.parameters.max_deterministic_time = time_limit_s
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        from recsmith.errors import NoPlanFound

        raise NoPlanFound("no way for all jobs was found in the time, and none was ruled out; give more time")
    chosen = [way for take, way in zip(takes, ways, strict=True) if solver.boolean_value(take)]
    return chosen, solver.best_objective_bound * unit
