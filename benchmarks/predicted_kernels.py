"""Kernel seconds of the plans of a benchmark run, as its cost model predicts them and as they were measured.

    recsmith bench learned --hardware cpu --rows 8x50 --tasks 10 --visits 3 -o bench/learned-cpu
    python benchmarks/predicted_kernels.py bench/learned-cpu --planners auto,dreamshard

total: of all devices, mean over tasks. slowest: the slowest device over the mean device, which is how well a plan is
balanced. off: how much longer the slowest device of the measurements takes than that of the predictions. Measured is
the fastest visit of every device, forward and backward together; collectives are in none of these figures.
"""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from recsmith._types import Floats
from recsmith.bench.journal import BenchSettings, RunStore, load_settings, open_run_store
from recsmith.bench.sharding import device_of
from recsmith.bench.tasks import SPACE, draw_family_tasks
from recsmith.costs import cost_model, price
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.problems import build_problem, footprint_of


def kernels(
    store: RunStore, settings: BenchSettings, task: PlacementTask, planner: str
) -> tuple[Floats, Floats] | None:
    """Seconds of each device (W,), predicted and measured; None where a task has no plan or no visit."""
    attempt = store.attempts.get((task.name, planner))
    visits = [store.measured[task.name, i] for i in range(settings.visits) if (task.name, i) in store.measured]
    if attempt is None or attempt.error or not visits:
        return None
    evaluator = cost_model(settings.cost_model).compile(build_problem(task.workload, task.cluster, SPACE))
    cost = price(evaluator, footprint_of(evaluator.problem, attempt.placements))
    predicted = np.array([each.forward_compute_s + each.backward_compute_s for each in cost.per_device])
    return predicted, np.min([visit.kernels[planner].sum(axis=1) for visit in visits], axis=0)


def line(name: str, found: Sequence[tuple[Floats, Floats]]) -> str:
    """A line of the table."""
    total = [1e3 * float(np.mean([pair[i].sum() for pair in found])) for i in (0, 1)]
    slowest = [float(np.mean([pair[i].max() / pair[i].mean() for pair in found])) for i in (0, 1)]
    off = float(np.mean([measured.max() / predicted.max() - 1 for predicted, measured in found]))
    return f"{name:<20} {total[0]:>9.2f} {total[1]:>9.2f}   {slowest[0]:>9.3f} {slowest[1]:>9.3f}   {off:>+7.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--planners", help="those of the run, unless some are named")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    settings = load_settings(options.folder)
    planners = options.planners.split(",") if options.planners else settings.planners
    found: dict[str, list[tuple[Floats, Floats]]] = {planner: [] for planner in planners}
    with open_run_store(options.folder, settings) as store:
        for row in settings.rows:
            device = device_of(settings.hardware)
            drawn = draw_family_tasks(
                settings.family, row, settings.tasks, settings.seed, device, settings.global_batch
            )
            for task in drawn.tasks:
                pairs = {planner: kernels(store, settings, task, planner) for planner in planners}
                for planner, pair in pairs.items():
                    if pair is not None and None not in pairs.values():
                        found[planner].append(pair)
    count = len(found[planners[0]])
    print(f"{count} tasks              total, ms              slowest / mean\n"
          f"{'':<20} {'predicted':>9} {'measured':>9}   {'predicted':>9} {'measured':>9}   {'off':>7}")  # fmt: skip
    for planner in planners if count else ():
        print(line(planner, found[planner]))


if __name__ == "__main__":
    main()
