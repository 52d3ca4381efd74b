"""How far plans are from the best: gaps to proven bounds, plans beside brute force, and every outcome checked.

    python benchmarks/optimality.py tasks -o tasks.json      # random tasks like NeuroShard's: auto, neuroshard, bound
    python benchmarks/optimality.py brute --exact            # small problems whose best plan is known
    python benchmarks/optimality.py random -o random.json    # is every plan valid, every 'infeasible' true?
    python benchmarks/optimality.py families --count 20      # problems that are hard in eight different ways
    python benchmarks/optimality.py families --families few-giants --count 10 --whose 20  # plan's gap or bound's?
    python benchmarks/optimality.py published sharding_stats_example.txt  # a published plan, under its own costs
    python benchmarks/optimality.py tight sharding_stats_example.txt      # production tables where memory is short
    python benchmarks/optimality.py large sharding_stats_example.txt      # public models and production tables
    python benchmarks/optimality.py whose sharding_stats_example.txt      # of missed targets: plan's gap or bound's?
    python benchmarks/optimality.py anytime nvidia-jumbo h100:8x16        # the best plan after 0.1 to 30 s

All costs are predictions of cost models; nothing here is measured on a device. With -o, rows are kept one JSON line
each, and those that the file holds are not computed again: take a new file after a change of the code. `brute` and
`random` need what the tests need (make venv), `brute --exact` OR-Tools. The report is
torchrec/docs/wiki/sharding_stats_example.txt of meta-pytorch/torchrec (BSD-3).
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
from optimality_tasks import GLOBAL_BATCH, LARGEST_SHARE, draw_task, largest_share
from production import NAMES, SEVEN, TWO, simplified
from records import Key, Row, resumed

import recsmith
from recsmith.bounds import lower_bound
from recsmith.bounds.lower_bound import prove
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model, step_seconds
from recsmith.errors import RecSmithError
from recsmith.planners import Budget
from recsmith.planning import find_planner
from recsmith.problems import Constraints, Space, build_problem, footprint_of
from recsmith.workloads import Workload, load_workload

EXACT_TABLES = 15  # up to which planner exact has a chance at a task
MARKS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # seconds of search
# (devices, GiB, types): the rows of benchmarks/production.py with less memory
TIGHT = (("8x12", 20.0, SEVEN), ("8x12", 14.5, TWO), ("8x12", 14.0, TWO), ("8", 144.2, TWO), ("8", 144.2, SEVEN))


def main() -> None:
    """Run one of the parts."""
    words = _parser().parse_args()
    if words.part == "tasks":
        tasks(words)
    elif words.part == "brute":
        from optimality_cases import brute

        brute(words.count, words.seed, words.exact, words.output, words.jobs)
    elif words.part == "random":
        from optimality_cases import random

        random(words.count, words.first, words.output, words.jobs)
    elif words.part == "families":
        from optimality_families import families, whose_of_families

        if words.whose:
            whose_of_families(words.families, words.count, words.whose, words.output, words.jobs)
        else:
            families(words.families, words.count, words.limits, words.seeds, words.output, words.jobs)
    elif words.part == "published":
        from optimality_published import published

        published(words.report)
    elif words.part == "tight":
        tight(words.report)
    elif words.part == "large":
        from optimality_large import large

        large(words.report)
    elif words.part == "whose":
        from optimality_whose import whose

        drawn = (words.device, words.batch)
        whose(words.report, words.seconds, words.seeds, words.seed, words.tasks, drawn, words.cost_model, words.output)
    else:
        anytime(words.workload, words.cluster, words.cost_model, words.torchrec)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    made = {
        name: parts.add_parser(name)
        for name in ("tasks", "families", "brute", "random", "published", "tight", "large", "whose", "anytime")
    }
    for name, number in (("tasks", 100), ("families", 20), ("brute", 300), ("random", 10_000)):
        made[name].add_argument("--count", type=int, default=number)
        made[name].add_argument("-o", "--output", metavar="FILE.json")
        made[name].add_argument("--jobs", type=int, default=1, help="processes")
    made["tasks"].add_argument("--seed", type=int, default=2026)
    made["tasks"].add_argument("--cost-model", default="analytic")
    made["tasks"].add_argument("--device", default="h100", help="of the clusters of 4 and 8")
    made["tasks"].add_argument("--batch", type=int, default=GLOBAL_BATCH, help="samples of all devices")
    made["tasks"].add_argument("--prove", type=float, default=0.0, metavar="SECONDS", help="for a better bound")
    made["tasks"].add_argument("--exact", type=int, default=0, metavar="N", help="iterations of planner exact")
    made["families"].add_argument("--families", nargs="*", default=[], metavar="NAME", help="by default all")
    made["families"].add_argument("--limits", type=float, nargs="*", default=[], help="of time, seconds, to compare")
    made["families"].add_argument("--seeds", type=int, default=1, help="of the search, for each problem")
    made["families"].add_argument("--whose", type=float, default=0.0, metavar="SECONDS", help="of proof, and of exact")
    made["brute"].add_argument("--seed", type=int, default=1, help="of the first case; the others follow")
    made["brute"].add_argument("--exact", action="store_true", help="planner exact as well")
    made["random"].add_argument("--first", type=int, default=0, help="seed of the first case")
    made["whose"].add_argument("--seconds", type=float, default=120.0, help="of each search, and of the bound")
    made["whose"].add_argument("--seeds", type=int, default=3, help="searches of a problem")
    made["whose"].add_argument("--tasks", type=int, nargs="*", default=[], help="numbers of random tasks, too")
    made["whose"].add_argument("--seed", type=int, default=2026, help="of those tasks")
    made["whose"].add_argument("--cost-model", default="analytic", help="of random tasks; by default the targets, too")
    made["whose"].add_argument("--device", default="h100", help="of those tasks")
    made["whose"].add_argument("--batch", type=int, default=GLOBAL_BATCH, help="samples of all devices of those tasks")
    made["whose"].add_argument("-o", "--output", metavar="FILE.json")
    for name in ("published", "tight", "large", "whose"):
        made[name].add_argument("report")
    made["anytime"].add_argument("workload")
    made["anytime"].add_argument("cluster")
    made["anytime"].add_argument("--cost-model", default="analytic")
    made["anytime"].add_argument("--torchrec", action="store_true", help="TorchRec's planner too; it knows no limit")
    return parser


def tasks(words: argparse.Namespace) -> None:
    """Gaps and seconds of `auto` on random tasks; the space is all seven types, any widths."""
    setting, number = (words.device, words.batch), words.count
    attempts = [attempt for attempt, _ in zip(_accepted(words.seed, *setting), range(number), strict=False)]
    tried = attempts[-1] + 1
    keys = [(words.seed, attempt, words.prove, words.exact, words.cost_model, *setting) for attempt in attempts]
    rows: list[Row] = []
    for row in resumed(solve_task, keys, words.output, words.jobs):
        rows.append(row)
        print(_task_words(row), flush=True)
    print(
        f"\n{tried - number} of {tried} tasks rejected ({(tried - number) / tried:.1%}): a piece that cannot be split"
    )
    print(f"costs {LARGEST_SHARE} of the mean load or more\n")
    _print_tasks(rows, words.cost_model, proven=words.prove > 0)
    if words.exact:
        _print_exact([row for row in rows if row.get("exact")])


def _accepted(seed: int, device: str, batch: int) -> Iterator[int]:
    """The numbers of the tasks that are kept, by cost model analytic."""
    for attempt in count():
        workload, cluster = draw_task(seed, attempt, device, batch)
        if largest_share(_compiled(workload, cluster, "analytic")) < LARGEST_SHARE:
            yield attempt


def solve_task(key: Key) -> Row:
    """The row of one task: `auto` whole (problem, cost model, bound, search), then neuroshard and the proofs."""
    seed, attempt, prove_s, exact, model, *setting = key
    workload, cluster = draw_task(seed, attempt, *setting)
    begun = time.perf_counter()
    evaluator = _compiled(workload, cluster, model)
    total, bound = _total(evaluator, "auto"), lower_bound(evaluator).bound.value_s
    row = {"tables": len(workload.tables), "cluster": cluster, "bound": bound, "auto": total,
           "auto_s": time.perf_counter() - begun, "neuroshard": _total(evaluator, "neuroshard")}  # fmt: skip
    if prove_s and total is not None:
        ends = time.perf_counter() + prove_s
        row["proven"] = prove(evaluator, total, lambda: time.perf_counter() < ends).value_s
    if exact and total is not None and len(workload.tables) <= EXACT_TABLES:
        row |= _exactly(evaluator, exact)
    return row


def _exactly(evaluator: Evaluator, iterations: int) -> Row:
    """Planner exact's plan and its bound."""
    begun = time.perf_counter()
    found = find_planner("exact").plan(evaluator.problem, evaluator, budget=Budget(iterations=iterations))
    bound = (found.bound or lower_bound(evaluator).bound).value_s
    return {"exact": found.total_s, "exact_bound": bound, "exact_s": time.perf_counter() - begun}


def _compiled(workload: Workload, cluster: str, model: str) -> Evaluator:
    return cost_model(model).compile(build_problem(workload, load_cluster(cluster)))


def _total(evaluator: Evaluator, planner: str) -> float | None:
    try:
        return find_planner(planner).plan(evaluator.problem, evaluator).total_s
    except RecSmithError:
        return None


def _task_words(row: Row) -> str:
    cells = [f"{name} {row[name] * 1e3:.4f} ms" for name in ("bound", "auto", "neuroshard", "proven") if row.get(name)]
    return f"{row['key'][1]}: {row['tables']} tables, {row['cluster']}, {', '.join(cells)}, {row['auto_s']:.2f} s"


def _print_tasks(rows: Sequence[Row], model: str, *, proven: bool) -> None:
    """A line for all tasks, and one for each cluster: medians, 90th percentiles and largest."""
    more = ("gap of auto to the longer proof", "proven best") if proven else ()
    heads = ("cost model", "cluster", "tasks", "without a plan", "gap of auto", *more[:1], "gap of neuroshard",
             "seconds of auto", "auto above neuroshard", *more[1:])  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for cluster in ("all", *sorted({row["cluster"] for row in rows})):
        mine = [row for row in rows if cluster in ("all", row["cluster"])]
        found = [row for row in mine if row["auto"] is not None]
        if found:
            cells = (cluster, str(len(mine)), str(len(mine) - len(found)), *_task_cells(found, proven))
            print(f"| {model} | {' | '.join(cells)} |")
    print("\nMedian, 90th percentile, largest; seconds are of building the problem, its bound and the search.")


def _print_exact(rows: Sequence[Row]) -> None:
    """The tasks that planner exact went on with: whose the gap of auto was."""
    print(f"\nTasks of up to {EXACT_TABLES} tables with planner exact:\n")
    heads = ("task", "tables", "cluster", "gap", "of the plan", "of the bound", "left", "seconds of exact")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        auto, bound, best, proven = (row[name] for name in ("auto", "bound", "exact", "exact_bound"))
        parts = (auto / bound, auto / best, proven / bound, best / proven)
        cells = (str(row["key"][1]), str(row["tables"]), row["cluster"], *(f"{part - 1:.2%}" for part in parts))
        print(f"| {' | '.join(cells)} | {row['exact_s']:.0f} |")


def _task_cells(rows: Sequence[Row], proven: bool) -> list[str]:
    pairs = [row for row in rows if row["neuroshard"] is not None]
    cells = [_spread([row["auto"] / row["bound"] - 1 for row in rows], 100, " %")]
    if proven:
        cells.append(_spread([row["auto"] / row["proven"] - 1 for row in rows], 100, " %"))
    cells += [_spread([row["neuroshard"] / row["bound"] - 1 for row in pairs], 100, " %")]
    cells.append(_spread([row["auto_s"] for row in rows], 1, " s"))
    cells.append(str(sum(row["auto"] > row["neuroshard"] for row in pairs)))
    return cells + ([str(sum(row["auto"] <= row["proven"] * (1 + 1e-6) for row in rows))] if proven else [])


def _spread(values: Sequence[float], scale: float, unit: str) -> str:
    found = np.quantile(values, (0.5, 0.9, 1.0)) if values else ()
    return ", ".join(f"{value * scale:.2f}{unit}" for value in found)


def tight(report: str) -> None:
    """The production tables on devices that they nearly fill: one run of `recsmith.plan` a row, in this process."""
    print("| devices | space | bound (ms) | plan (ms) | gap | seconds |\n|---|---|---|---|---|---|")
    workload = simplified(report)
    for hosts, gib, types in TIGHT:
        cluster = load_cluster(f"torchrec-default:{hosts}").with_memory(int(gib * 2**30))
        space, constraints = Space(types=types), Constraints(memory="torchrec")
        where = f"{hosts} x {gib:g} GiB | {NAMES[types]}, widths any"
        try:
            found = recsmith.plan(workload, cluster, cost_model="torchrec", space=space, constraints=constraints)
        except RecSmithError as error:
            print(f"| {where} | | {type(error).__name__}: {error} | | |", flush=True)
            continue
        bound, total = found.plan.bound.value_s or 0.0, found.plan.cost.total_s
        cells = f"{bound * 1e3:.3f} | {total * 1e3:.3f} | {found.plan.gap:.3%} | {found.elapsed_s:.2f}"
        print(f"| {where} | {cells} |", flush=True)


def anytime(name: str, cluster: str, model: str, torchrec: bool) -> None:
    """The best plan by each mark of one search that may take as long as the last; the bound is made before."""
    begun = time.perf_counter()
    evaluator = _compiled(load_workload(name), cluster, model)
    bound = lower_bound(evaluator).bound.value_s
    shown = "no bound" if bound is None else f"bound {bound * 1e3:.4g} ms"
    print(f"{name}, {cluster}, {model}: {shown}; {time.perf_counter() - begun:.2f} s before the search\n")
    marks = " | ".join(f"{mark:g} s" for mark in MARKS)
    print(f"| planner | {marks} | search ended after |\n|{'---|' * (len(MARKS) + 2)}")
    for planner in ("auto", "neuroshard", "cost_greedy", *(("torchrec",) if torchrec else ())):
        heard, seconds = _heard_of_torchrec(evaluator) if planner == "torchrec" else _heard(evaluator, planner)
        best = [min((total for at, total in heard if at <= mark), default=None) for mark in MARKS]
        cells = " | ".join(_mark_cell(total, bound) for total in best)
        print(f"| {planner} | {cells} | {seconds:.1f} s |", flush=True)


def _heard_of_torchrec(evaluator: Evaluator) -> tuple[list[tuple[float, float]], float]:
    """As _heard, of TorchRec's planner, which searches by its own estimator and has one plan at its end."""
    from recsmith.adapters.torchrec_planner import plan_with_torchrec

    problem = evaluator.problem
    begun = time.perf_counter()
    placements = plan_with_torchrec(problem.workload, problem.cluster, problem.space)
    seconds = time.perf_counter() - begun
    return [(seconds, step_seconds(evaluator, footprint_of(problem, placements)))], seconds


def _heard(evaluator: Evaluator, planner: str) -> tuple[list[tuple[float, float]], float]:
    """((seconds, total) of each better plan, seconds of the whole search)."""
    heard: list[tuple[float, float]] = []
    begun = time.perf_counter()

    def hear(total: float) -> None:
        heard.append((time.perf_counter() - begun, total))

    budget = Budget(time_limit_s=MARKS[-1])
    find_planner(planner).plan(evaluator.problem, evaluator, budget=budget, on_improve=hear)
    return heard, time.perf_counter() - begun


def _mark_cell(total: float | None, bound: float | None) -> str:
    if total is None:
        return "-"
    return f"{total * 1e3:.4g} ms" + (f" ({total / bound - 1:.1%})" if bound else "")


if __name__ == "__main__":
    main()
