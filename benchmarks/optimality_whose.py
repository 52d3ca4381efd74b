"""Whose the gap is, plan's or bound's, where a target is missed: a part of optimality.py, which names the command.

Each problem whose gap is above its target is planned again for minutes, under several seeds, and bounded again for
minutes. What the plan gains thereby was the plan's part of the gap, what the bound gains was the bound's, and what is
left of the gap is nobody's yet.
"""

import os
import time

from optimality_large import TARGETS, large_problems
from optimality_tasks import draw_task
from records import THREADS, Key, Row, resumed

from recsmith.bounds import lower_bound
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model
from recsmith.planners import Budget
from recsmith.planning import find_planner
from recsmith.problems import build_problem
from recsmith.workloads import Workload

TASK_TARGET = 0.01  # of a random task: what is asked of their median
WORK_AT_ONCE = 100_000_000  # numbers between two looks at the clock
HEADS = ("problem", "cluster", "gap", "of the plan", "of the bound", "left")


def whose(
    report: str, seconds: float, seeds: int, seed: int, tasks: list[int], drawn: tuple[str, int], model: str,
    output: str | None,
) -> None:  # fmt: skip
    """A row for each problem that misses its target: its bound and plan as they are by default, and after long runs.

    drawn: device and samples of the tasks.
    """
    os.environ.update(dict.fromkeys(THREADS, "1"))
    names = [
        *(TARGETS if model == "analytic" else ()),
        *(f"task {seed}-{attempt} {drawn[0]} {drawn[1]}" for attempt in tasks),
    ]
    keys: list[Key] = [("whose", seconds, seeds, name, report, model) for name in names]
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for row in resumed(whose_row, keys, output, jobs=1):
        if row["best"] is not None:
            print(_words(row), flush=True)


def whose_row(key: Key) -> Row:
    """One problem; best and proven are None where its gap is within the target."""
    _, seconds, seeds, name, report, model = key
    workload, cluster, target = _problem(name, report)
    evaluator = _compiled(workload, cluster, model)
    plan, bound = _planned(evaluator, 0, None), lower_bound(evaluator).bound.value_s or 0.0
    row = {"name": name, "cluster": cluster, "target": target, "plan": plan, "bound": bound}
    if plan <= bound * (1 + target):
        return {**row, "best": None, "proven": None}
    best = min(plan, *(_planned(_compiled(workload, cluster, model), each, seconds) for each in range(seeds)))
    return {**row, "best": best, "proven": max(bound, _proven(evaluator, best, seconds))}


def _problem(name: str, report: str) -> tuple[Workload, str, float]:
    """A problem by its name, its cluster, and the gap that is asked of it."""
    if name in TARGETS:
        workload, cluster = large_problems(report)[name]
        return workload, cluster, TARGETS[name]
    _, task, device, batch = name.split()
    seed, attempt = map(int, task.split("-"))
    workload, cluster = draw_task(seed, attempt, device, int(batch))
    return workload, cluster, TASK_TARGET


def _compiled(workload: Workload, cluster: str, model: str) -> Evaluator:
    return cost_model(model).compile(build_problem(workload, load_cluster(cluster)))


def _planned(evaluator: Evaluator, seed: int, seconds: float | None) -> float:
    """The step of auto's plan under a seed, by default or after so many seconds."""
    budget = Budget(time_limit_s=seconds) if seconds else None
    return find_planner("auto").plan(evaluator.problem, evaluator, seed=seed, budget=budget).total_s


def _proven(evaluator: Evaluator, best: float, seconds: float) -> float:
    """The bound after so many seconds of branching, for problems of any size, from the mean of all planes."""
    price = max(each.price for each in lower_bound(evaluator).promising) / evaluator.problem.cluster.world_size
    dominated = groups_dominated_by_type(evaluator)
    branching = PhaseBranching(evaluator, dominated=dominated, below=best, byte_price=price)
    ends = time.perf_counter() + seconds
    while branching.bound < best and not branching.done and time.perf_counter() < ends:
        branching.solve(branching.work + WORK_AT_ONCE, best)
    return min(branching.bound, best)


def _words(row: Row) -> str:
    plan, best, bound, proven = (row[name] for name in ("plan", "best", "bound", "proven"))
    parts = (f"{each - 1:.2%}" for each in (plan / bound, plan / best, proven / bound, best / proven))
    name = " ".join(row["name"].split()[:2]) if row["name"].startswith("task ") else row["name"]
    cells = (name, row["cluster"], *parts)
    return f"| {' | '.join(cells)} |"
