"""What cost models say of plans whose kernels were measured: predicted over measured steps, by planner and row.

    python benchmarks/gpu/believed.py samples/h100/plans.tar.gz neural:samples/h100/planned-under.safetensors
    python benchmarks/gpu/believed.py samples/h100/plans.tar.gz neural:some.safetensors --tasks 1 3  # two a row

The better a planner searches, the more its plans are those that the model thinks too well of: below 1 a model says too
little. A step is the slowest rank's kernels and collectives; these are priced by `analytic` on both sides, since they
were not measured. Means are geometric.

Below each table stand how far the kernels of single ranks are off, at the median, and what is lost where a model picks
one of the plans that were measured: how much longer its pick takes than the shortest of them. Takes seconds.
"""

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from measured_plans import folder_of, tasks_of

from recsmith.bench.journal import BenchSettings, RunStore, load_settings
from recsmith.bench.tasks import SPACE
from recsmith.costs import cost_model
from recsmith.costs.pricing import device_parts
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.problems import build_problem, footprint_of

ALL = "all"


@dataclass
class Beliefs:
    """What a model says beside what was measured.

    ratios: logarithms of predicted over measured steps, by row (ALL: of all) and planner. ranks: how far kernels of
    ranks are off. lost: of each task, how much longer the plan that the model picks takes than the shortest, and than
    that of the first planner.
    """

    ratios: defaultdict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    ranks: list[float] = field(default_factory=list)
    lost: list[tuple[float, float]] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description="What cost models say of plans that were measured.")
    parser.add_argument("plans", type=Path, help="folder of `bench sharding`, or an archive of one")
    parser.add_argument("models", nargs="+", help="cost models")
    parser.add_argument("--tasks", type=int, nargs="*", help="of every row, counted from 0 (default: all)")
    words = parser.parse_args()
    warnings.simplefilter("ignore")  # of models beyond what they know
    with folder_of(words.plans) as folder:
        print("\n".join(tables(folder, words.models, words.tasks)))


def tables(folder: Path, models: Sequence[str], tasks: Sequence[int] | None) -> Iterator[str]:
    """A table of each model."""
    settings, store = load_settings(folder), RunStore(folder)
    for model in models:
        found = beliefs(settings, store, model, tasks)
        yield f"\n{model}\n\n| row | {' | '.join(settings.planners)} |\n|{'---|' * (1 + len(settings.planners))}"
        for row in (ALL, *settings.rows):
            cells = [f"{np.exp(np.mean(found.ratios[row, planner])):.2f}" for planner in settings.planners]
            yield f"| {row} | {' | '.join(cells)} |"
        shortest, first = np.mean(found.lost, axis=0)
        yield (
            f"\nkernels of {len(found.ranks):,} ranks: {np.median(found.ranks):.1%} off at the median"
            f"\nits pick of a task's plans takes {shortest:.1%} longer than the shortest of them, in the mean of "
            f"{len(found.lost)}, and {first:+.1%} beside {settings.planners[0]}'s"
        )


def beliefs(settings: BenchSettings, store: RunStore, model: str, tasks: Sequence[int] | None) -> Beliefs:
    """What a model says of all plans of a run, or of those of some tasks of every row."""
    found, measured = Beliefs(), {task for task, _ in store.measured}
    for row, task in tasks_of(settings, tasks):
        if task.name in measured:
            add_task(found, row, task, settings, store, model)
    return found


def add_task(
    found: Beliefs, row: str, task: PlacementTask, settings: BenchSettings, store: RunStore, model: str
) -> None:
    """Take in the plans of a task."""
    evaluator = cost_model(model).compile(build_problem(task.workload, task.cluster, SPACE))
    seen = next(visit for (name, _), visit in store.measured.items() if name == task.name)
    steps = dict[str, tuple[float, float]]()
    for planner in settings.planners:
        made = store.attempts[task.name, planner]
        if not made.placements:
            continue
        parts = device_parts(evaluator, footprint_of(evaluator.problem, made.placements))[:, :2].sum(axis=1)
        kernels, comm = (each.sum(axis=1) for each in (seen.kernels[planner], seen.comm[planner]))
        steps[planner] = float((parts + comm).max()), float((kernels + comm).max())
        used = kernels > 0
        found.ranks += np.abs(parts[used] / kernels[used] - 1).tolist()
        for name in (ALL, row):
            found.ratios[name, planner].append(float(np.log(steps[planner][0] / steps[planner][1])))
    picked = steps[min(steps, key=lambda planner: steps[planner][0])][1]
    shortest = min(step for _, step in steps.values())
    found.lost.append((picked / shortest - 1, picked / steps[settings.planners[0]][1] - 1))


if __name__ == "__main__":
    main()
