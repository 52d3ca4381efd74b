"""Costs of placements on hardware: measured kernels of every device, and priced collectives.

Kernels are measured one device after the other (hardware/loads.py). There are not enough devices with links between
them to measure collectives, so cost model `analytic` prices them, as in `recsmith bench sharding`.

Legend: D devices; costs are seconds forward, of communication, and backward.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.costs import Evaluator, cost_model, price
from recsmith.costs.protocol import READY_THEN_FORWARD
from recsmith.errors import UsageError
from recsmith.hardware import Hardware, default_scale, load_hardware, scale_of
from recsmith.hardware.case import CaseScale
from recsmith.hardware.loads import Load, loads_of
from recsmith.jobs.machine import free_bytes
from recsmith.learning.policies.tasks import SPACE, PlacementTask
from recsmith.planners.placing import TRAINED, ColumnSplitRule, ItemBatch, items_of
from recsmith.plans import Bound, Plan
from recsmith.problems import Footprint, build_problem, constraints_to_raw, placements_of
from recsmith.problems.constraints import Constraints
from recsmith.units import format_size
from recsmith.verifying.visits import measure_load

COMM_MODEL = "analytic"  # the cost model that prices collectives
SHARDS = 8  # shards of a table on one device for which hardware has room: each reads all ids


@dataclass(frozen=True)
class MeasuredPlacement:
    """Seconds of each device (D, 3), forward, of communication, backward; and of the step."""

    costs: Floats
    step_s: float


class PlacementMeter:
    """Measures the costs of placements of some tasks on hardware. count: number of measured placements.

    Raises:
        UsageError: there is no such hardware, or a CPU's memory does not hold a device of these tasks.
        MissingExtra: PyTorch or FBGEMM is missing.
    """

    def __init__(self, hardware: str, tasks: Sequence[PlacementTask]) -> None:
        scale = _scale_for(hardware, tasks)
        free = free_bytes() if hardware == "cpu" else None
        if free is not None and scale.size > free:
            raise UsageError(
                f"a device of these tasks needs up to {format_size(scale.size)} of memory, and this machine has "
                f"{format_size(free)} available; train on tasks of fewer tables or more devices, such as --row 4x20"
            )
        self.hardware: Hardware = load_hardware(hardware, scale)
        self.count = 0

    def measure(self, evaluator: Evaluator, footprint: Footprint, visit: int = 0) -> MeasuredPlacement:
        """Measure a placement. evaluator: of COMM_MODEL, for the task's problem.

        Raises:
            RecSmithError: the hardware failed.
        """
        self.count += 1
        problem = evaluator.problem
        cost = price(evaluator, footprint)
        plan = Plan(
            workload=problem.workload, cluster=problem.cluster, constraints=constraints_to_raw(SPACE, Constraints()),
            placements=placements_of(problem, footprint), planner="training", cost_model=COMM_MODEL, cost=cost,
            bound=Bound(value_s=None, kind="not sought", space=SPACE.describe()), gap=None,
        )  # fmt: skip
        kernels = np.array([self._seconds(load, visit) for load in loads_of(plan)])
        comm = np.array([[each.forward_comm_s, each.backward_comm_s] for each in cost.per_device])
        parts = np.column_stack([kernels, comm])
        costs = np.column_stack([kernels[:, 0], comm.sum(axis=1), kernels[:, 1]])
        return MeasuredPlacement(costs, READY_THEN_FORWARD.step_seconds(parts))

    def _seconds(self, load: Load, visit: int) -> tuple[float, float]:
        if not load:
            return 0.0, 0.0
        return measure_load(self.hardware, load, visit, what="a device's kernels")[0]


def evaluator_of(task: PlacementTask) -> Evaluator:
    """The evaluator that prices a task's collectives."""
    return cost_model(COMM_MODEL).compile(build_problem(task.workload, task.cluster, SPACE))


def _scale_for(hardware: str, tasks: Sequence[PlacementTask]) -> CaseScale:
    """A scale with room for all tables of a task on one device, as far as its memory allows."""
    usual = scale_of(default_scale(hardware))
    ids = outputs = elements = 2**20
    for task in tasks:
        bags = task.workload.batch_size * task.row.devices
        ids = max(ids, SHARDS * sum(round(t.features[0].pooling_factor * bags) for t in task.workload.tables))
        outputs = max(outputs, sum(bags * table.embedding_dim for table in task.workload.tables))
        elements = max(elements, task.cluster.capacities[0] // 4 + 64 * len(task.workload.tables))
    return CaseScale(
        name="placements", least_work=usual.least_work, most_work=usual.most_work, lookups=ids + 2**12,
        elements=elements, outputs=outputs,
    )  # fmt: skip


@dataclass(frozen=True)
class TrainingTask:
    """A task under a rule of column splits: its evaluator (of collectives), and its items before they are ordered.

    number: index among all tasks under all rules, including those in which a table finds no room.
    """

    number: int
    evaluator: Evaluator
    items: ItemBatch


def training_tasks(tasks: Sequence[PlacementTask], rules: Sequence[ColumnSplitRule] = TRAINED) -> list[TrainingTask]:
    """All tasks under all rules, except those in which a table finds no room."""
    made = [training_task(tasks, number, rules) for number in range(len(tasks) * len(rules))]
    return [each for each in made if each is not None]


def training_task(
    tasks: Sequence[PlacementTask], number: int, rules: Sequence[ColumnSplitRule] = TRAINED
) -> TrainingTask | None:
    """The task under a rule at this index; None if a table that is placed before finds no room."""
    task, rule = divmod(number, len(rules))
    evaluator = evaluator_of(tasks[task])
    items = items_of(evaluator.problem, evaluator, rules[rule])
    return None if items is None else TrainingTask(number, evaluator, items)
