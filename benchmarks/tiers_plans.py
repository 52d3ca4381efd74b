"""Plans with tables on disk: beside the best plan of small problems, and their time and gap where tables are many.

    python benchmarks/tiers_plans.py small -o small.json      # up to 7 tables beside a list of all plans, then up to 12
    python benchmarks/tiers_plans.py large                    # 2,002 tables on 64 devices
    python benchmarks/tiers_plans.py nodes                    # hosts that a public model of 22 TiB takes
    python benchmarks/tiers_plans.py batch                    # hosts that others take, at one global batch

All costs are predictions of cost model `analytic`. `small` needs OR-Tools (planner exact) and what the tests need; with
-o, rows are kept and not computed again. Problems of up to 7 tables are drawn as those of optimality.py, on devices
that often hold no more than a part of them; the best plan is that of the tests' brute force, which shares nothing with
the planners. Of 8 to 12 tables, which stay whole, it is planner exact's, where it proves that there is no better one.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from optimality_cases import MOST_PLANS, SHAPES, is_valid, share_above
from records import Key, Row, resumed

import recsmith
from recsmith.clusters import Cluster, Disk, load_cluster
from recsmith.errors import Infeasible, NoPlanFound, RecSmithError
from recsmith.problems import Constraints, Space
from recsmith.workloads import Workload, load_workload

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.cases import Case, all_placements, brute_force, legal, make_case, on_disk, seeded, under

WHOLE = ("table_wise",)
IN_MEMORY, HOSTED, STORED = ("fused", "dense"), ("fused", "dense", "fused_uvm_caching"), ("fused", "dense", "key_value")
NEAR, SAME = 0.01, 1e-6
SHARES = (0.3, 0.5, 0.7, 0.9, 1.1)  # of what the tables of small problems weigh: capacity of all devices
GLOBAL_BATCH = 65_536  # of NVIDIA's own benchmark of these models
SAME_BATCH = (
    ("large", "l4", 1, HOSTED), ("large", "l4", 4, IN_MEMORY), ("large", "l4", 5, IN_MEMORY),
    ("jumbo", "l40s", 2, HOSTED), ("jumbo", "l40s", 9, IN_MEMORY), ("jumbo", "l40s", 10, IN_MEMORY),
    ("jumbo", "l4", 4, HOSTED), ("jumbo", "l4", 18, IN_MEMORY), ("jumbo", "l4", 20, IN_MEMORY),
    ("large", "a100-40", 1, HOSTED), ("large", "a100-40", 3, IN_MEMORY),
)  # fmt: skip
ASSUMED = Disk(bandwidth=6e9, reads_per_s=8e5)  # of a host with four NVMe drives or one very good one; not measured


def small_case(seed: int, whole: bool) -> Case:
    """A problem whose tables may stand on disk; whole: 8 to 12 tables, table_wise, on two to four ranks."""
    pick = seeded(seed)
    while True:
        counts, shapes = ((8, 9, 10, 11, 12), ((2, 1), (3, 1), (2, 2))) if whole else ((2, 3, 4, 5, 6, 7), SHAPES)
        dims = (4, 16, 64, 128) if whole else (4, 8, 16)
        case = make_case(pick, counts=counts, dims=dims, shapes=shapes, tightness=SHARES)
        case = replace(case, constraints=Constraints(), workload=replace(case.workload, optimizer="rowwise_adagrad"))
        case = under(pick, case, ("analytic",))
        if not case.space.on_disk:
            case = legal(on_disk(pick, case))
        if pick((True, True, True, False)):
            case = replace(case, cluster=replace(case.cluster, ssd_bytes_per_host=2**40))
        if whole or pick((True, False)):
            case = replace(case, space=replace(case.space, types=WHOLE))
        if whole or np.prod([float(len(each)) for each in all_placements(case).values()]) <= MOST_PLANS:
            return case


def small_row(key: Key) -> Row:
    """One case: the least seconds of any plan, and what `auto` makes of it."""
    _, seed, whole = key
    case = small_case(seed, whole)
    row: Row = {"tables": len(case.workload.tables), "ranks": case.cluster.world_size, "gap": None, "stored": 0}
    try:
        least = _least(case) if whole else brute_force(case).least_s
    except RecSmithError as error:
        return {**row, "outcome": "no proof", "why": str(error)[:200]}
    try:
        found = case.plan().plan
    except (Infeasible, NoPlanFound) as error:
        return {**row, "outcome": "infeasible" if least is None else f"lost: {type(error).__name__}"}
    if least is None or not is_valid(case, found) or share_above(found.cost.total_s, least) < -1e-9:
        return {**row, "outcome": "wrong"}
    stored = sum(each.compute_kernel == "key_value" for each in found.placements)
    return {**row, "outcome": "plan", "gap": share_above(found.cost.total_s, least), "stored": stored}


def _least(case: Case) -> float | None:
    """The seconds of planner exact's plan, proven to be the least; None where there is no plan."""
    try:
        found = case.plan("exact", time_limit_s=60.0).plan
    except Infeasible:
        return None
    if found.gap is None or found.gap > SAME:
        raise NoPlanFound(f"exact proves no optimum: gap {found.gap}")
    return found.cost.total_s


def small(number: int, output: str | None) -> None:
    """A line for small problems whose plans are listed, and one for those that exact proves."""
    print(
        "| tables | cases | with a plan | with tables on disk | best found | within 1 % | worst | wrong | not proved |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, whole in (("2 to 7", False), ("8 to 12", True)):
        rows = list(resumed(small_row, [("disk", seed, whole) for seed in range(1, number + 1)], output, 1))
        gaps = [row["gap"] for row in rows if row["outcome"] == "plan"]
        wrong = [row["outcome"] for row in rows if row["outcome"].startswith(("wrong", "lost"))]
        stored = sum(row["stored"] > 0 for row in rows)
        same, near = (sum(gap <= limit for gap in gaps) for limit in (SAME, NEAR))
        unproved = sum(row["outcome"] == "no proof" for row in rows)
        cells = (name, len(rows), len(gaps), stored, same, near, f"{max(gaps, default=0):+.2%}", len(wrong), unproved)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


def synthetic(size: str, batch: int) -> Workload:
    """One of NVIDIA's synthetic models under row-wise Adagrad. batch: of a device."""
    return replace(load_workload(f"nvidia-{size}"), optimizer="rowwise_adagrad").with_batch_size(batch)


def planned(cluster: Cluster, batch: int, kernels: tuple[str, ...], size: str = "colossal") -> None:
    """Plan, and print a line."""
    begun, cpu = time.perf_counter(), time.process_time()
    where = f"{cluster.hosts} x {cluster.local_world_size} {cluster.device.name}"
    what = f"| {size} on {where} | {batch} | {', '.join(kernels)} | "
    try:
        plan = recsmith.plan(synthetic(size, batch), cluster, cost_model="analytic", space=Space(kernels=kernels)).plan
        took, spent = time.perf_counter() - begun, time.process_time() - cpu
        bound = plan.bound.value_s or 0.0
        what += f"{plan.cost.total_s * 1e3:.2f} ms | {bound * 1e3:.2f} ms | {plan.gap:.1%} | {took:.0f} | {spent:.0f} |"
    except RecSmithError as error:
        what += f"{type(error).__name__}: {str(error)[:150]} | | | {time.perf_counter() - begun:.0f} | |"
    print(what, flush=True)


def main() -> None:
    """Run one of the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("small", "large", "nodes", "batch"))
    parser.add_argument("--count", type=int, default=150, help="small problems of each kind")
    parser.add_argument("-o", "--output", metavar="FILE.json")
    asked = parser.parse_args()
    if asked.part == "small":
        small(asked.count, asked.output)
        return
    head = "hosts x devices | samples a device | kernels | step | bound | gap | seconds | CPU s"
    print(f"| {head} |\n|{'---|' * 8}", flush=True)
    if asked.part == "large":
        stored = replace(load_cluster("h100:8x8"), ssd_bytes_per_host=3500 * 2**30, disk=ASSUMED)
        planned(stored, 512, STORED)
        planned(load_cluster("h100:8x9"), 512, HOSTED)
        return
    if asked.part == "batch":
        for size, device, hosts, kernels in SAME_BATCH:
            cluster = load_cluster(f"{device}:8x{hosts}")
            planned(cluster, GLOBAL_BATCH // cluster.world_size, kernels, size)
        return
    planned(load_cluster("h100:8x9"), 512, HOSTED)
    for hosts, batch in ((36, 128), (38, 512), (40, 512), (48, 512), (40, 115)):
        planned(load_cluster(f"h100:8x{hosts}"), batch, IN_MEMORY)


if __name__ == "__main__":
    main()
