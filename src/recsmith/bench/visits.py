"""Visits of a task: the kernels of every planner's plan, measured in turns.

A visit measures each distinct load of a rank once, rank after rank on one device, with all planners in turn
(verifying/visits.py). Collectives are not measured, since there are not as many devices as ranks: they are priced by
cost model `analytic` for the task's cluster, by the same formula for every planner.

Legend: W ranks; the last axis of kernels and collectives is forward, backward.
"""

import time
from collections.abc import Iterator, Sequence

import numpy as np

from recsmith._types import Floats, noun
from recsmith.bench.journal import MeasuredVisit
from recsmith.bench.plans import Attempt
from recsmith.bench.tasks import SPACE
from recsmith.costs import Evaluator, cost_model, price
from recsmith.hardware import Hardware
from recsmith.hardware.loads import Load, loads_of
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.measuring.columns import origin_columns
from recsmith.plans import Bound, Plan
from recsmith.problems import build_problem, constraints_to_raw, footprint_of
from recsmith.problems.constraints import Constraints
from recsmith.verifying.visits import measure_load, turns

COMM_MODEL = "analytic"  # the cost model that prices collectives


@noun
class PlacedTask:
    """The plans of a task by planner: the load of each rank (W,), and the seconds of its collectives (W, 2)."""

    task: str
    loads: dict[str, tuple[Load, ...]]
    comm: dict[str, Floats]

    @property
    def all_loads(self) -> Iterator[Load]:
        """The loads of all ranks of all plans."""
        return (load for ranks in self.loads.values() for load in ranks)


def place_task(task: PlacementTask, attempts: Sequence[Attempt], seed: int) -> PlacedTask:
    """The loads and collectives of a task's plans. seed: of the ids."""
    evaluator = cost_model(COMM_MODEL).compile(build_problem(task.workload, task.cluster, SPACE))
    plans = {each.planner: _plan(task, each, evaluator) for each in attempts}
    return PlacedTask(
        task=task.name,
        loads={planner: loads_of(plan, seed) for planner, plan in plans.items()},
        comm={
            planner: np.array([[device.forward_comm_s, device.backward_comm_s] for device in plan.cost.per_device])
            for planner, plan in plans.items()
        },
    )


def _plan(task: PlacementTask, attempt: Attempt, evaluator: Evaluator) -> Plan:
    """An attempt as a plan, priced by COMM_MODEL; no bound is computed."""
    return Plan(
        workload=task.workload, cluster=task.cluster, constraints=constraints_to_raw(SPACE, Constraints()),
        placements=attempt.placements, planner=attempt.planner, cost_model=COMM_MODEL,
        cost=price(evaluator, footprint_of(evaluator.problem, attempt.placements)),
        bound=Bound(value_s=None, kind="not sought", space=SPACE.describe()), gap=None,
    )  # fmt: skip


def measure_visit(hardware: Hardware, placed: PlacedTask, visit: int) -> MeasuredVisit:
    """Measure every distinct load of a task once.

    Raises:
        RecSmithError: the hardware failed.
    """
    begun = time.monotonic()
    plans = list(placed.loads.values())
    seconds: dict[Load, tuple[float, float]] = {(): (0.0, 0.0)}
    probes: list[float] = []
    for load in turns(plans, visit) if plans else ():
        if load:
            what = f"a rank's kernels of task {placed.task}"
            seconds[load], probe_s = measure_load(hardware, load, visit, what=what)
            probes.append(probe_s)
    where = origin_columns(time.monotonic() - begun, hardware.name, hardware.device, hardware.versions)
    return MeasuredVisit(
        task=placed.task, visit=visit, comm=placed.comm,
        kernels={planner: np.array([seconds[load] for load in ranks]) for planner, ranks in placed.loads.items()},
        probe_s=float(np.median(probes)) if probes else 0.0,
        device=where["device"], versions=where["versions"], date=where["date"], elapsed_s=where["elapsed_s"],
    )  # fmt: skip
