"""Families of generated problems, each unlike the others in what makes it hard: of optimality.py families.

Settings were chosen by seeds of four of them (TUNED), so the other four (JUDGED) say more; and all by other seeds.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from records import Key, Row, resumed

from recsmith.bounds import lower_bound
from recsmith.bounds.lower_bound import prove
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.errors import NoPlanFound, RecSmithError
from recsmith.planners import Budget
from recsmith.planning import find_planner
from recsmith.problems import build_problem
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.sample import sample_workload

Random = np.random.Generator
Made = tuple[Workload, str]
DEVICE_BYTES = 80e9


def equal_rows(random: Random) -> Made:
    """Many tables that are alike in all but their pooling factors, which take few values."""
    count, devices = int(random.integers(64, 400)), str(random.choice(["8", "8x2", "8x8"]))
    rows, dim = int(10 ** random.uniform(5, 6.5)), int(random.choice([32, 64, 128]))
    lengths = random.choice([1, 10, 40], count)
    return _workload("equal-rows", [(rows, dim, float(length), 1.05) for length in lengths]), f"h100:{devices}"


def two_sizes(random: Random) -> Made:
    """Two pools of equal tables: small and narrow ones, and large wide ones."""
    many, few = int(random.integers(60, 300)), int(random.integers(8, 60))
    small = (int(10 ** random.uniform(3, 5)), int(random.choice([8, 16, 32])), float(random.integers(1, 20)), 0.9)
    large = (int(10 ** random.uniform(6, 7.5)), int(random.choice([64, 128, 256])), float(random.integers(5, 80)), 1.1)
    devices = str(random.choice(["8", "8x2", "8x4"]))
    return _workload("two-sizes", [small] * many + [large] * few), f"h100:{devices}"


def long_tail(random: Random) -> Made:
    """Rows, columns and lengths that span five orders of magnitude; in all at most half of the devices' memory."""
    count, devices = int(random.integers(80, 500)), str(random.choice(["8", "8x2", "8x8"]))
    rows = (10 ** np.minimum(3 + random.pareto(1.2, count), 8.3)).astype(int)
    dims = random.choice([4, 8, 16, 32, 64, 128, 256], count, p=[0.1, 0.25, 0.25, 0.2, 0.1, 0.07, 0.03])
    lengths = np.minimum(1 + random.pareto(0.9, count), 600)
    zipf = random.uniform(0.3, 1.3, count)
    share = (rows * dims * 4).sum() / (DEVICE_BYTES * sum_of(devices))
    rows = (rows / max(1.0, 2 * share)).astype(int)
    return _workload("long-tail", list(zip(rows, dims, lengths, zipf, strict=True))), f"h100:{devices}"


def few_giants(random: Random) -> Made:
    """Three to nine tables that fill a good part of a host, and some small ones."""
    giants, small, devices = (
        int(random.integers(3, 10)),
        int(random.integers(0, 12)),
        str(random.choice(["4", "8", "8x2"])),
    )
    made = [(int(10 ** random.uniform(7.3, 8.2)), int(random.choice([64, 128])), float(random.integers(1, 100)), 1.05)
            for _ in range(giants)]  # fmt: skip
    made += [(int(10 ** random.uniform(3, 5)), 32, float(random.integers(1, 30)), 0.8) for _ in range(small)]
    return _workload("few-giants", made), f"h100:{devices}"


def sampled(random: Random) -> Made:
    """Tables of `recsmith workload sample`, 100 to 600 of them."""
    count, devices = int(random.integers(100, 600)), str(random.choice(["8", "8x2", "8x8"]))
    return sample_workload(count, int(random.integers(1000, 2**31)), max_bytes=60 * 2**30), f"h100:{devices}"


def one_width(random: Random) -> Made:
    """Tables of one width, with rows drawn evenly by their logarithm."""
    count, devices, dim = (
        int(random.integers(26, 260)),
        str(random.choice(["4", "8", "8x4"])),
        int(random.choice([64, 128])),
    )
    made = [(int(10 ** random.uniform(2, 7.7)), dim, float(np.ceil(random.exponential(6))), 1.05) for _ in range(count)]
    return _workload("one-width", made), f"h100:{devices}"


def sequences_like(random: Random) -> Made:
    """A dozen features with hundreds of ids, among many with one."""
    long, short, devices = int(random.integers(6, 20)), int(random.integers(40, 200)), str(random.choice(["8", "8x2"]))
    made = [(int(10 ** random.uniform(5.5, 7.5)), int(random.choice([32, 64, 128])), float(random.integers(100, 900)),
             1.0) for _ in range(long)]  # fmt: skip
    made += [(int(10 ** random.uniform(2, 7)), int(random.choice([16, 32, 64])), 1.0, 1.0) for _ in range(short)]
    return _workload("long-bags", made), f"h100:{devices}"


def tight_memory(random: Random) -> Made:
    """Tables that fill four fifths of the devices' memory."""
    count = int(random.integers(40, 250))
    made = [(int(10 ** random.uniform(5, 7)), int(random.choice([32, 64, 128])), float(random.integers(1, 30)), 1.05)
            for _ in range(count)]  # fmt: skip
    total = sum(rows * dim * 4 for rows, dim, _, _ in made)
    grown = 0.8 * 8 * DEVICE_BYTES / total
    made = [(int(rows * grown), dim, length, zipf) for rows, dim, length, zipf in made]
    return _workload("tight-memory", made), "h100:8"


TUNED: dict[str, Callable[[Random], Made]] = {
    "equal-rows": equal_rows, "two-sizes": two_sizes, "long-tail": long_tail, "few-giants": few_giants,
}  # fmt: skip
JUDGED: dict[str, Callable[[Random], Made]] = {
    "sampled": sampled, "one-width": one_width, "long-bags": sequences_like, "tight-memory": tight_memory,
}  # fmt: skip
PROVED = 1e-6  # relative gap that counts as none
FIRST_JUDGED = 1000  # seed from which on no setting was chosen by


def whose_of_families(names: Sequence[str], count: int, seconds: float, path: str | None, jobs: int) -> None:
    """Of each problem: what a long proof adds to the bound, and planner exact to the plan; and what is left."""
    keys = [("whose", seconds, name, FIRST_JUDGED + seed) for name in names for seed in range(count)]
    rows = list[Row]()
    print("| problem | tables | cluster | gap | of the plan | of the bound | left |\n|---|---|---|---|---|---|---|")
    for row in resumed(whose_row, keys, path, jobs):
        rows.append(row)
        print(f"| {row['key'][2]} {row['key'][3]} | {row['tables']} | {row['cluster']} | "
              f"{' | '.join(f'{value:.2%}' for value in _parts(row))} |", flush=True)  # fmt: skip
    for number, what in enumerate(("gap", "of the plan", "of the bound", "left")):
        print(f"{what}: {_spread([_parts(row)[number] for row in rows], '.2%')}")
    print(f"proved best: {sum(_parts(row)[3] < PROVED for row in rows)} of {len(rows)}")


def whose_row(key: Key) -> Row:
    """One problem: `auto` and its bound, then `seconds` of a longer proof, and as many of planner exact."""
    _, seconds, family, seed = key
    workload, cluster = problem_of(family, seed)
    evaluator = cost_model("analytic").compile(build_problem(workload, load_cluster(cluster)))
    auto = best = find_planner("auto").plan(evaluator.problem, evaluator).total_s
    bound = lower_bound(evaluator).bound.value_s or 0.0
    ends = time.perf_counter() + seconds
    proven = prove(evaluator, best, lambda: time.perf_counter() < ends).value_s or bound
    with suppress(RecSmithError):
        found = find_planner("exact").plan(evaluator.problem, evaluator, budget=Budget(time_limit_s=seconds))
        best, proven = min(best, found.total_s), max(proven, (found.bound and found.bound.value_s) or 0.0)
    return {"tables": len(workload.tables), "cluster": cluster, "auto": auto, "bound": bound, "best": best,
            "proven": proven}  # fmt: skip


def _parts(row: Row) -> tuple[float, float, float, float]:
    """The gap, and what of it is the plan's, the bound's, and nobody's yet."""
    auto, best, proven, bound = (row[name] for name in ("auto", "best", "proven", "bound"))
    return auto / bound - 1, auto / best - 1, proven / bound - 1, best / proven - 1


def families(
    names: Sequence[str], count: int, limits: Sequence[float], seeds: int, path: str | None, jobs: int
) -> None:
    """Gaps and seconds of `auto` by family; with limits, whether a longer one ever means a longer step.

    seeds: of the search, so many for each problem.
    """
    names = names or (*TUNED, *JUDGED)
    problems = [(name, FIRST_JUDGED + seed) for name in names for seed in range(count)]
    keys = [(*problem, of_search, *limits) for problem in problems for of_search in range(seeds)]
    rows = list[Row]()
    for row in resumed(solve_problem, keys, path, jobs):
        rows.append(row)
        print(f"{' '.join(map(str, row['key'][:3]))}: {row['tables']} tables on {row['cluster']}, gap {_gap(row):.2%} "
              f"in {row['cpu_s']:.1f} CPU s", *(f"{at:g} s {total_s * 1e3:.4f} ms" for at, total_s in row["limited"]),
              flush=True)  # fmt: skip
    print("\n| family | problems | gap | CPU seconds |\n|---|---|---|---|")
    for name, chosen in ("all", names), ("the last four", JUDGED), *((name, (name,)) for name in names):
        mine = [row for row in rows if row["key"][0] in chosen and row["total_s"] is not None]
        if not mine:
            continue
        gaps, seconds = [_gap(row) for row in mine], [row["cpu_s"] for row in mine]
        print(f"| {name} | {len(mine)} | {_spread(gaps, '.2%')} | {_spread(seconds, '.1f')} |")
    print("\nMedian, 90th percentile, largest.")
    if limits:
        _print_limits(rows, limits)


def _print_limits(rows: Sequence[Row], limits: Sequence[float]) -> None:
    """Gaps by limit of time, to the bounds of searches without one; and where a longer limit has the longer step."""
    rows = [row for row in rows if row["total_s"] is not None]
    print("\n| limit | problems and seeds | gap |\n|---|---|---|")
    for number, limit in enumerate(limits):
        gaps = [row["limited"][number][1] / row["bound"] - 1 for row in rows]
        print(f"| {limit:g} s | {len(rows)} | {_spread(gaps, '.2%')} |")
    worse = [(row["key"][:3], at) for row in rows for at in _longer(row)]
    print(f"\nLonger steps with longer limits: {len(worse)} {worse or ''}")


def _spread(values: Sequence[float], form: str) -> str:
    """Median, 90th percentile and largest."""
    return ", ".join(f"{value:{form}}" for value in np.quantile(values, (0.5, 0.9, 1)))


def _gap(row: Row) -> float:
    return row["total_s"] / row["bound"] - 1 if row["total_s"] is not None else float("nan")


def _longer(row: Row) -> list[float]:
    """Limits under which the step is longer than under a shorter one, or than without where that took less time."""
    limited, found = row["limited"], list[float]()
    for number, (at, total_s) in enumerate(limited):
        before = [seconds for _, seconds in limited[:number]] + [row["total_s"]] * (at > row["seconds"])
        found += [at] if before and total_s > min(before) else []
    return found


def solve_problem(key: Key) -> Row:
    """The row of one problem: `auto` whole (problem, cost model, bound, search), then under limits of time."""
    family, seed, of_search, *limits = key
    workload, cluster = problem_of(family, seed)
    row: Row = {"tables": len(workload.tables), "cluster": cluster, "total_s": None, "limited": []}
    begun, cpu = time.perf_counter(), time.process_time()
    problem, planner = build_problem(workload, load_cluster(cluster)), find_planner("auto")
    evaluator = cost_model("analytic").compile(problem)
    with suppress(NoPlanFound):
        row["total_s"] = planner.plan(problem, evaluator, seed=of_search).total_s
    row |= {"seconds": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu}
    row |= {"bound": lower_bound(evaluator).bound.value_s}
    for limit in limits if row["total_s"] is not None else ():
        anew = cost_model("analytic").compile(problem)  # which knows no bound yet
        found = planner.plan(problem, anew, seed=of_search, budget=Budget(time_limit_s=limit))
        row["limited"].append((limit, found.total_s))
    return row


def problem_of(family: str, seed: int) -> Made:
    """The problem of a family and a seed."""
    number = sorted((*TUNED, *JUDGED)).index(family)
    return {**TUNED, **JUDGED}[family](np.random.default_rng([number, seed]))


def sum_of(devices: str) -> int:
    """Devices of '8' or '8x2'."""
    return int(np.prod([int(part) for part in devices.split("x")]))


def _workload(name: str, rows: list[tuple[int, int, float, float]]) -> Workload:
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=max(2, int(count)), embedding_dim=int(dim),
              features=(Feature(name=f"f{i}", pooling_factor=round(float(length), 3)),),
              access=AccessProfile(zipf=round(float(zipf), 3)))
        for i, (count, dim, length, zipf) in enumerate(rows)
    )  # fmt: skip
    return Workload(name=name, batch_size=8192, tables=tables, optimizer="rowwise_adagrad")
