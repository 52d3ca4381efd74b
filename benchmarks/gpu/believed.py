"""What cost models say of plans whose kernels were measured: predicted over measured steps, by planner and row.

    python benchmarks/gpu/believed.py samples/h100/plans.tar.gz neural:samples/h100/planned-under.safetensors

The better a planner searches, the more its plans are those that the model thinks too well of: below 1 a model says too
little. A step is the slowest rank's kernels and collectives; these are priced by `analytic` on both sides, since they
were not measured. Means are geometric. Takes seconds.
"""

import argparse
import tarfile
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from recsmith.bench.journal import BenchSettings, RunStore, load_settings
from recsmith.bench.sharding import device_of
from recsmith.bench.tasks import SPACE, draw_tasks, parse_rows
from recsmith.costs import cost_model
from recsmith.costs.pricing import device_parts
from recsmith.problems import build_problem, footprint_of

ALL = "all"


def main() -> None:
    parser = argparse.ArgumentParser(description="What cost models say of plans that were measured.")
    parser.add_argument("plans", type=Path, help="folder of `bench sharding`, or an archive of one")
    parser.add_argument("models", nargs="+", help="cost models")
    words = parser.parse_args()
    warnings.simplefilter("ignore")  # of models beyond what they know
    if words.plans.is_dir():
        print("\n".join(tables(words.plans, words.models)))
        return
    with tempfile.TemporaryDirectory() as unpacked, tarfile.open(words.plans) as archive:
        archive.extractall(unpacked, filter="data")
        print("\n".join(tables(Path(unpacked) / "plans", words.models)))


def tables(folder: Path, models: Sequence[str]) -> Iterator[str]:
    """A table of each model."""
    settings, store = load_settings(folder), RunStore(folder)
    for model in models:
        found = ratios(settings, store, model)
        yield f"\n{model}\n\n| row | {' | '.join(settings.planners)} |\n|{'---|' * (1 + len(settings.planners))}"
        for row in (ALL, *settings.rows):
            cells = [f"{np.exp(np.mean(found[row, planner])):.2f}" for planner in settings.planners]
            yield f"| {row} | {' | '.join(cells)} |"


def ratios(settings: BenchSettings, store: RunStore, model: str) -> dict[tuple[str, str], list[float]]:
    """Logarithms of predicted over measured steps, by row (ALL: of all) and planner."""
    device, found = device_of(settings.hardware), defaultdict[tuple[str, str], list[float]](list)
    visits = {task: visit for (task, _), visit in store.measured.items()}
    for row in parse_rows(settings.rows):
        for task in draw_tasks(row, settings.tasks, settings.seed, device, settings.global_batch).tasks:
            evaluator = cost_model(model).compile(build_problem(task.workload, task.cluster, SPACE))
            for planner in settings.planners:
                made, seen = store.attempts[task.name, planner], visits.get(task.name)
                if seen is None or not made.placements:
                    continue
                parts = device_parts(evaluator, footprint_of(evaluator.problem, made.placements))
                kernels, comm = (each.sum(axis=1) for each in (seen.kernels[planner], seen.comm[planner]))
                ratio = float(np.log((parts[:, :2].sum(axis=1) + comm).max() / (kernels + comm).max()))
                for name in (ALL, str(row)):
                    found[name, planner].append(ratio)
    return found


if __name__ == "__main__":
    main()
