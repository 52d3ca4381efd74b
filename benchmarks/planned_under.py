"""Plans under a learned cost model beside plans under `analytic`, both measured (docs/benchmarks/learned.md).

    python benchmarks/planned_under.py neural:simulated-h100 --hardware simulated:h100 --count 144 -o judged.json

Tasks are 10 to 60 tables, each at most once, of a sample of 856 that no model was trained on (`recsmith workload sample
--tables 856 --seed 1`), on 4 or 8 devices, 65,536 samples of all devices. As in optimality.py, tasks are left out where
one piece that cannot be split takes 0.7 of the mean load. `auto` plans each under both models; the kernels of all ranks
are measured, and collectives are priced by `analytic` for both alike. With -o, tasks that the file holds are not
planned again: take a new file for another model.
"""

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import count

import numpy as np
from optimality_tasks import LARGEST_SHARE, largest_share
from records import Key, Row, resumed

import recsmith
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model, price
from recsmith.hardware import Measurement, load_hardware
from recsmith.hardware.loads import Load, loads_of, scale_for
from recsmith.learning.costs.learn import region_name, regions_of
from recsmith.measuring.statistics import draw_visits, interval
from recsmith.plans import Plan
from recsmith.problems import Space, build_problem, footprint_of
from recsmith.verifying.steps import step_seconds
from recsmith.workloads import Workload
from recsmith.workloads.sample import sample_workload

POOL_SEED = 1  # of the tables: training knows those of seed 0
SPACE = Space(types=("table_wise", "column_wise", "row_wise"), kernels=("fused",))
GLOBAL_BATCH = 65_536
BASE = "analytic"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--hardware", default="simulated:h100")
    parser.add_argument("--cluster", default="h100", help="device that plans are made for")
    parser.add_argument("--count", type=int, default=144)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--batch", type=int, default=GLOBAL_BATCH, help="samples of all devices")
    parser.add_argument("-o", "--output", metavar="FILE.json")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    words = parser.parse_args()
    setting = (words.model, words.hardware, words.cluster, words.seed, words.batch)
    keys = [(*setting, attempt) for attempt in accepted(words)]
    rows: list[Row] = []
    for row in resumed(judge_task, keys, words.output, words.jobs):
        rows.append(row)
        print(f"{row['key'][-1]}: {row['tables']} tables, {row['cluster']}, {gain(row):+.2%}", flush=True)
    report(words.model, rows)


def accepted(words: argparse.Namespace) -> list[int]:
    """The numbers of the tasks that are kept."""
    found: list[int] = []
    for attempt in count():
        if len(found) == words.count:
            return found
        workload, cluster = draw_task(words.cluster, words.seed, words.batch, attempt)
        evaluator = cost_model(BASE).compile(build_problem(workload, load_cluster(cluster), SPACE))
        if largest_share(evaluator) < LARGEST_SHARE:
            found.append(attempt)
    raise AssertionError


def draw_task(device: str, seed: int, batch: int, attempt: int) -> tuple[Workload, str]:
    """Tables of the held-out pool, each at most once, and a cluster."""
    rng, pool = np.random.default_rng([seed, attempt]), _pool()
    tables = rng.choice(len(pool.tables), int(rng.integers(10, 61)), replace=False)
    devices = int(rng.choice((4, 8)))
    chosen = tuple(pool.tables[i] for i in sorted(tables.tolist()))
    return replace(pool, tables=chosen, batch_size=batch // devices, name=f"task-{attempt}"), f"{device}:{devices}"


@cache
def _pool() -> Workload:
    return sample_workload(856, POOL_SEED)


def judge_task(key: Key) -> Row:
    """A task planned under both models, with the seconds of both plans as measured."""
    warnings.simplefilter("ignore")
    model, hardware, device, seed, batch, attempt = key
    workload, cluster = draw_task(device, seed, batch, attempt)
    row: Row = {"tables": len(workload.tables), "cluster": cluster}
    for name, own in (("base", BASE), ("learned", model)):
        begun = time.perf_counter()
        plan = recsmith.plan(workload, cluster, cost_model=own, space=SPACE).plan
        row[name] = {"plan_s": time.perf_counter() - begun, "gap": plan.gap, **measured(plan, hardware)}
    return row


def measured(plan: Plan, hardware: str) -> Row:
    """Seconds of the step as measured; the region of each rank, and what the plan's model says over what it takes."""
    loads = loads_of(plan)
    opened = load_hardware(hardware, scale_for(loads, hardware))
    kernels = np.array([_seconds(opened.measure_groups(load)) if load else (0.0, 0.0) for load in loads])
    evaluator = cost_model(BASE).compile(build_problem(plan.workload, plan.cluster, SPACE))
    cost = price(evaluator, footprint_of(evaluator.problem, plan.placements))
    comm = np.array([[each.forward_comm_s, each.backward_comm_s] for each in cost.per_device])
    said = np.array([each.forward_compute_s + each.backward_compute_s for each in plan.cost.per_device])
    busy = [rank for rank, load in enumerate(loads) if load]
    off = said[busy] / kernels[busy].sum(axis=1) - 1
    return {"step_s": float(step_seconds(kernels, comm)), "off": off.tolist(),
            "regions": [heaviest(loads[rank]) for rank in busy]}  # fmt: skip


def _seconds(answer: Measurement) -> tuple[float, float]:
    assert answer.forward_s is not None, answer.message
    assert answer.backward_s is not None, answer.message
    return answer.forward_s, answer.backward_s


def heaviest(load: Load) -> str:
    """The region of a rank's heaviest table."""
    table = max((table for case in load for table in case.tables),
                key=lambda table: table.features[0].pooling_factor * table.embedding_dim)  # fmt: skip
    return region_name(table.num_embeddings, table.features[0].pooling_factor, table.embedding_dim)


def gain(row: Row) -> float:
    """How much longer the plan under the learned model takes; below 0 where it is the better one."""
    return row["learned"]["step_s"] / row["base"]["step_s"] - 1


def report(model: str, rows: Sequence[Row]) -> None:
    gains = np.array([gain(row) for row in rows])
    found = interval(float(gains.mean()), gains[draw_visits(len(gains))].mean(axis=1))
    shorter, longer = int((gains < 0).sum()), int((gains > 0).sum())
    print(f"\n{len(rows)} tasks; beside plans under {BASE}, steps planned under {model} take {found.value:+.2%} "
          f"[{found.low:+.2%}, {found.high:+.2%}]: shorter in {shorter}, longer in {longer}\n")  # fmt: skip
    heads = ("planned under", "ranks", "mean error", "bias", "largest", "gap, median", "plan, median")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, own in (("base", BASE), ("learned", model)):
        off = np.concatenate([row[name]["off"] for row in rows])
        gaps = [row[name]["gap"] for row in rows if row[name]["gap"] is not None]
        seconds = np.median([row[name]["plan_s"] for row in rows])
        print(f"| {own} | {len(off):,} | {np.abs(off).mean():.1%} | {off.mean():+.1%} | {np.abs(off).max():.1%} "
              f"| {np.median(gaps) if gaps else np.nan:.1%} | {seconds:.1f} s |")  # fmt: skip
    print(f"\n| heaviest table of a rank, planned under {model} | ranks | mean error | bias |\n|---|---|---|---|")
    names = [name for row in rows for name in row["learned"]["regions"]]
    for region in regions_of(names, np.concatenate([row["learned"]["off"] for row in rows])):
        print(f"| {region.name} | {region.samples} | {region.mean:.1%} | {region.bias:+.1%} |")


if __name__ == "__main__":
    main()
