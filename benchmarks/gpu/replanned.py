"""Tasks whose plans were measured, planned again under another model, and priced by a third: a prediction.

    python benchmarks/gpu/replanned.py samples/h100/plans.tar.gz neural:some.safetensors neural:h100 --tasks 1 3

How much longer the steps of the plans that were measured take than those of the new ones of `auto`. All are priced by
the model that judges, which must not be the one that they were searched under, and collectives by `analytic`. Nothing
is measured here. Takes a minute for 24 tasks.
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from measured_plans import folder_of, tasks_of

from recsmith.bench.journal import RunStore, load_settings
from recsmith.bench.plans import attempt
from recsmith.bench.tasks import SPACE
from recsmith.costs import Evaluator, cost_model
from recsmith.costs.pricing import device_parts
from recsmith.plans import Placement
from recsmith.problems import build_problem, footprint_of

AGAIN = ("auto", "neuroshard")  # planners that plan again


def main() -> None:
    parser = argparse.ArgumentParser(description="Measured tasks planned again; a prediction.")
    parser.add_argument("plans", type=Path, help="folder of `bench sharding`, or an archive of one")
    parser.add_argument("under", help="cost model that plans")
    parser.add_argument("judge", help="cost model that prices all plans")
    parser.add_argument("--tasks", type=int, nargs="*", help="of every row, counted from 0 (default: all)")
    words = parser.parse_args()
    warnings.simplefilter("ignore")  # of models beyond what they know
    with folder_of(words.plans) as folder:
        print("\n".join(table(folder, words.under, words.judge, words.tasks)))


def table(folder: Path, under: str, judge: str, tasks: Sequence[int] | None) -> Iterator[str]:
    """By row: how much longer steps of the measured plans, and of NeuroShard's new ones, are than auto's new ones."""
    settings, store, found = load_settings(folder), RunStore(folder), defaultdict[str, list[list[float]]](list)
    for row, task in tasks_of(settings, tasks):
        problem = build_problem(task.workload, task.cluster, SPACE)
        models = cost_model(judge).compile(problem), cost_model("analytic").compile(problem)
        first, *others = (step(attempt(each, task, under, settings.seed).placements, *models) for each in AGAIN)
        others += [step(store.attempts[task.name, each].placements, *models) for each in settings.planners]
        for name in ("all", row):
            found[name].append([float(np.log(each / first)) for each in others])
    planners = [f"{each}, anew" for each in AGAIN[1:]] + list(settings.planners)
    yield f"| row | tasks | {' | '.join(planners)} |\n|{'---|' * (2 + len(planners))}"
    for row in ("all", *settings.rows):
        means = np.exp(np.nanmean(found[row], axis=0)) - 1
        yield f"| {row} | {len(found[row])} | {' | '.join(f'{each:+.1%}' for each in means)} |"


def step(placements: tuple[Placement, ...], kernels: Evaluator, comm: Evaluator) -> float:
    """Seconds of the slowest rank: kernels by one model, collectives by another; NaN without a plan."""
    if not placements:
        return float("nan")
    used, carried = (device_parts(each, footprint_of(each.problem, placements)) for each in (kernels, comm))
    return float((used[:, :2].sum(axis=1) + carried[:, 2:].sum(axis=1)).max())


if __name__ == "__main__":
    main()
