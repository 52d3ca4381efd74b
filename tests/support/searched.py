"""A small problem for modules of local search: tables of many sizes on four devices, all on the first at the start."""

from functools import cache

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.local_search import TableOptions
from recsmith.planners.search.piece_moves import CurrentPlan
from recsmith.planners.search.plan_copies import PlanCopies
from recsmith.problems import Space
from support.cases import Case, cluster, table, workload

SHARPNESS = 24


@cache
def lopsided(types: tuple[str, ...] = ("table_wise", "column_wise"), tables: int = 12) -> Case:
    """Tables that differ in rows, dim and pooling."""
    made = [table(f"t{i}", 5_000 * (i + 1), 4 * (1 + i % 9), 1.0 + 3 * (i % 5)) for i in range(tables)]
    return Case(workload(*made, batch_size=512), cluster(4), Space(types=types))


def heap(case: Case) -> Assignment:
    """Every table by its first option, which is whole, on the first device."""
    made = Assignment.of(case.problem, case.problem.options.start[:-1])
    made.target[:] = 0
    return made


def begun(case: Case, draft: Assignment | None = None) -> tuple[CurrentPlan, TableOptions]:
    """A round of local search from a draft, or from all tables on one device."""
    devices = DeviceState(case.evaluator)
    copies = PlanCopies.of(devices, draft or heap(case))
    return CurrentPlan.of(devices, copies, SHARPNESS), TableOptions(shared_relaxation(case.evaluator))
