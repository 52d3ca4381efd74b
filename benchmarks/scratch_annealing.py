"""Is planner auto ever worse than a minute of plain annealing? An annealing from scratch, of fifty lines, beside it.

    python benchmarks/scratch_annealing.py --seconds 60 -o scratch.json

The annealing shares nothing with RecSmith's searches: it starts from every table on the rank with the least seconds so
far, changes one table at a time (another of its options, pieces on random ranks, often the slowest rank's table), keeps
the loads of all ranks itself, and prices them by the cost model. Simulated costs of cost model analytic, one thread.
"""

import argparse
import math
import random
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
from optimality_tasks import draw_task
from records import Key, Row, resumed

from recsmith.bounds import lower_bound
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model, step_seconds
from recsmith.planning import find_planner
from recsmith.problems import Footprint, build_problem, fits, ordered_footprint
from recsmith.workloads import Workload, load_workload
from recsmith.workloads.sample import sample_workload

HOT, COLD = 0.02, 1e-5  # temperatures as shares of the step
PUBLIC = {"dlrm-v2": "h100:8", "nvidia-jumbo": "h100:8x16"}
SAMPLED = "510 sampled tables"
TASK_SEED = 31
HEADS = ("problem", "cluster", "changes", "annealing from scratch", "auto", "auto takes less", "CPU s of auto")


class Scratch:
    """A plan as Python lists and the summed terms of every rank."""

    def __init__(self, evaluator: Evaluator, seed: int) -> None:
        self.evaluator, self.problem, self.random = evaluator, evaluator.problem, random.Random(seed)
        problem = self.problem
        self.world = problem.cluster.world_size
        self.terms = evaluator.terms(problem.pieces.mode, problem.pieces.width)
        self.seconds = evaluator.loads(self.terms).sum(axis=0)
        self.group = evaluator.group[problem.pieces.mode]
        self.cover = problem.modes.coverage[problem.pieces.mode]
        alone = problem.fits_alone(problem.pieces.mode, problem.pieces.head, problem.pieces.tail)
        usable = problem.options.fits(alone) & ~problem.options.barred & ((problem.options.count > 0).sum(axis=1) == 1)
        usable &= problem.options.count[:, 0] * problem.modes.coverage[problem.options.mode] <= self.world
        starts = problem.options.start
        self.options = [np.flatnonzero(usable[a:b]) + a for a, b in pairwise(starts)]
        self.sums = np.zeros((self.world, evaluator.groups, self.terms.shape[1]))
        self.free, self.held = problem.capacity.copy(), np.zeros(evaluator.groups, dtype=int)
        self.placed: list[tuple[int, list[int]]] = []
        for table in range(len(problem.tables)):
            option = min(self.options[table].tolist(), key=lambda each: self._alone(each))
            self.placed.append((option, self._targets(option, quiet=True)))
            self._put(table, 1)
        self.total = self._step()

    def _alone(self, option: int) -> float:
        piece = int(self.problem.options.piece[option, 0])
        return float(self.seconds[piece]) * int(self.cover[piece] * self.problem.options.count[option, 0])

    def _targets(self, option: int, quiet: bool = False) -> list[int]:
        piece, count = int(self.problem.options.piece[option, 0]), int(self.problem.options.count[option, 0])
        size = int(self.cover[piece])
        if quiet:
            load = self.evaluator.loads(self.sums).sum(axis=(0, 2))
            load = (
                np.where(self.free < self.problem.pieces.head.device[piece], np.inf, load).reshape(-1, size).max(axis=1)
            )
            return np.argsort(load, kind="stable")[:count].tolist()
        return self.random.sample(range(self.world // size), count)

    def _put(self, table: int, sign: int) -> None:
        option, targets = self.placed[table]
        piece = int(self.problem.options.piece[option, 0])
        size, pieces = int(self.cover[piece]), self.problem.pieces
        self.held[self.group[piece]] += sign
        for target in targets:
            ranks = slice(target * size, (target + 1) * size)
            self.sums[ranks, self.group[piece]] += sign * self.terms[piece]
            self.free[ranks] -= sign * pieces.head.device[piece]
            self.free[(target + 1) * size - 1] += sign * (pieces.head.device[piece] - pieces.tail.device[piece])

    def _step(self) -> float:
        if (self.free < 0).any():
            return math.inf
        self.loads = self.evaluator.loads(self.sums).sum(axis=2)
        return float(self.loads.max(axis=1).sum() + self.evaluator.shared[self.held > 0].sum())

    def change(self, heat: float) -> None:
        """Another option or other ranks for one table; taken where it is better, or by chance."""
        table = self.random.randrange(len(self.placed))
        before = self.placed[table]
        option = int(self.random.choice(self.options[table].tolist())) if self.random.random() < 0.3 else before[0]
        targets = self._targets(option)
        if option == before[0] and len(targets) > 1:  # one piece of several
            kept = self.random.randrange(len(targets))
            moved = targets[kept]
            targets = list(before[1])
            if moved in targets:
                return
            targets[kept] = moved
        self._put(table, -1)
        self.placed[table] = (option, targets)
        self._put(table, 1)
        total = self._step()
        if total > self.total * (1 - heat * math.log(1 - self.random.random())):
            self._put(table, -1)
            self.placed[table] = before
            self._put(table, 1)
        else:
            self.total = total

    def footprint(self) -> Footprint:
        """The placed pieces."""
        rows = [(int(self.problem.options.piece[option, 0]), target) for option, t in self.placed for target in t]
        piece, target = np.array(rows).T
        return ordered_footprint(
            self.problem, self.problem.pieces.mode[piece], self.problem.pieces.width[piece], target
        )


def annealed(evaluator: Evaluator, seconds: float, seed: int) -> tuple[float, int]:
    """(seconds of the best plan, changes tried)."""
    plan, begun, changes = Scratch(evaluator, seed), time.process_time(), 0
    best = plan.total
    while (spent := time.process_time() - begun) < seconds:
        plan.change(HOT * (COLD / HOT) ** (spent / seconds))
        best, changes = min(best, plan.total), changes + 1
    assert math.isclose(step_seconds(evaluator, plan.footprint()), plan.total, rel_tol=1e-6)
    assert fits(evaluator.problem, plan.footprint())
    return best, changes


def problem_of(name: str) -> tuple[Workload, str]:
    """A public model, sampled tables, or a random task of tables that no search was tuned on, and its cluster."""
    if name in PUBLIC:
        return load_workload(name), PUBLIC[name]
    if name == SAMPLED:
        return replace(sample_workload(510, seed=11), batch_size=1024), "h100:8x8"
    return draw_task(TASK_SEED, int(name.removeprefix("task ")))


def beside(key: Key) -> Row:
    """A problem annealed from scratch and planned by auto."""
    name, seconds = key
    workload, cluster = problem_of(name)
    evaluator = cost_model("analytic").compile(build_problem(workload, load_cluster(cluster)))
    begun = time.process_time()
    lower_bound(evaluator)
    auto = find_planner("auto").plan(evaluator.problem, evaluator).total_s
    took = time.process_time() - begun
    scratch, changes = annealed(evaluator, seconds, seed=0)
    return {"cluster": cluster, "auto": auto, "auto_s": took, "scratch": scratch, "changes": changes}


def main() -> None:
    """One row for each problem, and how often auto's step is the longer one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of CPU, for the annealing from scratch")
    parser.add_argument("--tasks", type=int, default=20, help="random tasks")
    parser.add_argument("-o", "--output", metavar="FILE.json", help="rows that it holds are not computed again")
    words = parser.parse_args()
    names = [*PUBLIC, SAMPLED, *(f"task {number}" for number in range(words.tasks))]
    rows: list[Row] = []
    for row in resumed(beside, [(name, words.seconds) for name in names], words.output, jobs=1):
        rows.append(row)
        print(f"{row['key'][0]}, {row['cluster']}: scratch {row['scratch'] * 1e3:.4g} ms, auto {row['auto'] * 1e3:.4g} "
              f"ms, {_gain(row):.1%} less", flush=True)  # fmt: skip
    print(f"\n| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for row in rows:
        if not row["key"][0].startswith("task "):
            steps = f"{row['scratch'] * 1e3:.4g} ms | {row['auto'] * 1e3:.4g} ms"
            cells = f"{row['changes']:,} | {steps} | {_gain(row):.1%} | {row['auto_s']:.1f}"
            print(f"| {row['key'][0]} | {row['cluster']} | {cells} |")
    tasks = [row for row in rows if row["key"][0].startswith("task ")]
    if tasks:
        gains, seconds = [_gain(row) for row in tasks], [row["auto_s"] for row in tasks]
        changes, spread = np.median([row["changes"] for row in tasks]), f"{min(gains):.1%} to {max(gains):.1%}"
        print(f"| {len(tasks)} random tasks, median | h100:4, h100:8 | {changes:,.0f} | - | - | "
              f"{np.median(gains):.1%} ({spread}) | {np.median(seconds):.1f} |")  # fmt: skip
    gains = [_gain(row) for row in rows]
    print(f"\nauto takes longer in {sum(gain < 0 for gain in gains)} of {len(gains)}")


def _gain(row: Row) -> float:
    """By how much auto's step is shorter, as a share of the other."""
    return 1 - row["auto"] / row["scratch"]


if __name__ == "__main__":
    main()
