"""Steps of row-wise plans in TorchRec jobs of 2 and 4 CPU ranks, beside what blocks of rows let expect.

    python benchmarks/row_jobs.py --movielens FOLDER      # docs/benchmarks/sharding.md; about five minutes, alone

A job holds a model of each set and trains them in turns, so that a busy machine disturbs all alike. A step is CPU
seconds of the busiest rank, in the median, until embeddings have their gradients: ranks that share cores wait for each
other by the clock, not by these. A step has more in it than kernels, and that is the same for all sets, which have
equal batches: two sets of evenly read rows, many and few, say what it is, and how fast kernels are here. The others
judge.
"""

import argparse
import statistics
import sys
from dataclasses import replace
from typing import Any

from dedup import cpu_seconds
from loads import Stream, in_burst, planned_on, streams, workload_of

from recsmith import Plan, Workload
from recsmith.plans import plan_from_raw, plan_to_raw

TABLES, DIM, WARM_UP, FEW_ROWS = 4, 64, 2, 4_000
GOOD = 0.15  # that a step may be off


def steps(plans: list[dict[str, Any]], count: int) -> list[list[float]]:
    """CPU seconds of a rank's steps of each plan, which take turns. Runs on every rank."""
    import torch
    import torch.distributed as dist

    from recsmith.jobs.sharded_model import sharded_model
    from recsmith.jobs.workload_model import random_batch

    torch.set_num_threads(1)
    made = [plan_from_raw(raw, "job") for raw in plans]
    models = [sharded_model(each, each.workload.optimizer)[0] for each in made]
    generator = torch.Generator().manual_seed(dist.get_rank())
    seconds: list[list[float]] = [[] for _ in made]
    for step in range(WARM_UP + count):
        for number, (each, model) in enumerate(zip(made, models, strict=True)):
            spent = cpu_seconds(model, random_batch(each.workload, each.workload.batch_size, generator))
            if step >= WARM_UP:
                seconds[number].append(spent)
    return seconds


def of_set(stream: Stream) -> Workload:
    """Tables that are read as the set is; of bursts, as one batch is."""
    work = workload_of(stream, TABLES, DIM)
    return in_burst(work, stream) if stream.name == "bursts" else work


def even(rows: int) -> Workload:
    """Evenly read tables of so many rows."""
    work = workload_of(None, TABLES, DIM)
    return replace(work, tables=tuple(replace(each, num_embeddings=rows) for each in work.tables))


def kernels_of(plan: Plan) -> float:
    """Predicted seconds of the busiest rank's kernels."""
    return max(each.forward_compute_s + each.backward_compute_s for each in plan.cost.per_device)


def judged(folder: str | None, ranks: int, count: int) -> bool:
    """Prints a row for each set; whether all steps are within GOOD."""
    from recsmith.jobs.launch import launch

    sets = {"even, many rows": even(200_000), "even, few rows": even(FEW_ROWS)}
    sets |= {stream.name: of_set(stream) for stream in streams(folder)}
    plans = {name: planned_on(ranks, work, "row_wise") for name, work in sets.items()}
    raw = [plan_to_raw(replace(each, digest="")) for each in plans.values()]
    found = launch("row_jobs:steps", {"plans": raw, "count": count}, ranks=ranks)
    measured = [max(statistics.median(rank[i]) for rank in found) for i in range(len(plans))]
    least = [min(statistics.median(rank[i]) for rank in found) for i in range(len(plans))]
    expected = [kernels_of(each) for each in plans.values()]
    factor = (measured[0] - measured[1]) / (expected[0] - expected[1])
    rest = measured[0] - factor * expected[0]
    print(
        f"{ranks} ranks: kernels take {factor:.2f} times as long as predicted, and a step {rest * 1e3:.1f} ms besides"
    )
    print("set               kernels, predicted   step, predicted   measured   other ranks    error")
    good = True
    for i, name in enumerate(plans):
        step = factor * expected[i] + rest
        error = step / measured[i] - 1
        good &= abs(error) <= GOOD
        print(
            f"{name:<17} {expected[i] * 1e3:>15.1f} ms {step * 1e3:>14.1f} ms {measured[i] * 1e3:>7.1f} ms "
            f"{least[i] * 1e3:>10.1f} ms {error:>+8.1%}", flush=True
        )  # fmt: skip
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--movielens", help="a folder with ratings.csv and movies.csv")
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    given = parser.parse_args()
    found = [judged(given.movielens, ranks, given.steps) for ranks in given.ranks]
    sys.exit(0 if all(found) else 1)
