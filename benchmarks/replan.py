"""How little must move when some tables change: replanned plans beside fresh ones.

    python benchmarks/replan.py sharding_stats_example.txt [--seeds 3] [--hbm 20GiB] [--max-moved 5%]

The file is the report of TorchRec's planner on its production example; of it the simplified list is planned, as
production.py does, on 96 devices. Of 10 % of the tables, drawn at random, a third goes and as many new ones come (each
like a table drawn from all), a third gets other pooling factors (times e to a normal number of deviation 0.5), and a
third twice the rows under the same name, so that it is made anew. Printed for each seed: the step of a fresh plan, that
of the replanned one, the share of the weights that stay which each moves, and seconds.
"""

import argparse
import math
import random
import time
from dataclasses import replace

from production import simplified

import recsmith
from recsmith.planning.replan import replan
from recsmith.plans.diff import is_same_table, moved_bytes
from recsmith.units import format_size, format_time, parse_size
from recsmith.workloads import Table, Workload

CHANGED = 0.10  # of the tables
DEVIATION = 0.5  # of the logarithm of pooling factors that change


def changed(workload: Workload, seed: int) -> Workload:
    """The workload some weeks later."""
    chance = random.Random(seed)
    tables = list(workload.tables)
    drawn = chance.sample(range(len(tables)), round(CHANGED * len(tables)))
    third = len(drawn) // 3
    for number in drawn[third : 2 * third]:
        tables[number] = _busier(tables[number], math.exp(DEVIATION * chance.gauss(0, 1)))
    for number in drawn[2 * third :]:
        tables[number] = replace(tables[number], num_embeddings=2 * tables[number].num_embeddings)
    gone = set(drawn[:third])
    come = [_renamed(tables[chance.randrange(len(tables))], f"new_{i}") for i in range(third)]
    return replace(workload, tables=(*(t for i, t in enumerate(tables) if i not in gone), *come))


def _busier(table: Table, factor: float) -> Table:
    features = tuple(replace(each, pooling_factor=each.pooling_factor * factor) for each in table.features)
    return replace(table, features=features)


def _renamed(table: Table, name: str) -> Table:
    features = tuple(replace(each, name=f"{name}_{i}") for i, each in enumerate(table.features))
    return replace(table, name=name, features=features)


def row(old: recsmith.Plan, workload: Workload, max_moved: str) -> str:
    """One seed: fresh and replanned, side by side."""
    begun = time.perf_counter()
    fresh = recsmith.plan(workload, old.cluster, cost_model=old.cost_model).plan
    middle = time.perf_counter()
    found = replan(old, workload, max_moved=max_moved)
    ended = time.perf_counter()
    before = {table.name: table for table in old.workload.tables}
    stay = {t.name for t in workload.tables if t.name in before and is_same_table(before[t.name], t)}
    received = moved_bytes(old, fresh.placements, workload, fresh.cluster)
    all_moved = sum(size for name in stay for _, size in received[name])
    ours = found.result.plan.cost.total_s
    return (
        f"{format_time(fresh.cost.total_s):>9} {all_moved / found.staying_bytes:7.1%} {middle - begun:6.1f} s   "
        f"{format_time(ours):>9} {ours / fresh.cost.total_s - 1:+7.2%} {found.moved_bytes / found.staying_bytes:7.2%} "
        f"{ended - middle:6.1f} s   {format_size(found.staying_bytes)} stay, {format_size(found.new_bytes)} are new"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--cluster", default="h100:8x12")
    parser.add_argument("--hbm", default=None)
    parser.add_argument("--cost-model", default="analytic")
    parser.add_argument("--max-moved", default="5%")
    parser.add_argument("--seeds", type=int, default=3)
    words = parser.parse_args()
    workload = simplified(words.report)
    cluster = recsmith.load_cluster(words.cluster)
    if words.hbm:
        cluster = cluster.with_memory(parse_size(words.hbm), None)
    old = recsmith.plan(workload, cluster, cost_model=words.cost_model).plan
    print(f"old plan {format_time(old.cost.total_s)}; at most {words.max_moved} may move")
    print("seed     fresh   moves     took   replanned   step   moves     took")
    for seed in range(words.seeds):
        print(f"{seed:4} {row(old, changed(workload, seed), words.max_moved)}", flush=True)


if __name__ == "__main__":
    main()
