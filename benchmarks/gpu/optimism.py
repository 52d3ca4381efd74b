"""How much a search flatters its own plans, without a GPU: models of three thirds of the samples judge others' plans.

    python benchmarks/gpu/optimism.py h100 --folder /tmp/optimism         # some minutes; goes on where it was stopped

A plan that was searched under a model is one that this model thinks too well of. How much is told by a model that has
learned from other samples. The samples of a GPU are dealt to thirds by group of tables, and a model learns from each
alone. Tasks are planned under the first (its plans are *own*) and under the second (*other*); the third judges. What
the first says of a plan over what the third says is compared between own plans and other ones, so that a difference
of the two models as a whole cancels: what is left is the optimism of the search. The last columns say what it costs:
how much longer, as the judge has it, steps take than those of the plan that the mean of the first two models picks of
all that were planned. Predicted, not measured.
"""

import argparse
import warnings
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
from measured_plans import folder_of, tasks_of
from picks import SAMPLES
from replanned import step

from recsmith._types import Floats
from recsmith.bench.journal import load_settings
from recsmith.bench.plans import attempt
from recsmith.bench.tasks import SPACE
from recsmith.costs import cost_model
from recsmith.learning.costs import read_groups
from recsmith.learning.costs.learn import learn_from
from recsmith.measuring.about import folders_in, locate
from recsmith.problems import build_problem

THIRDS = 3
PLANNERS = ("auto", "neuroshard", "cost_greedy")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpu", choices=list(SAMPLES))
    parser.add_argument("--folder", type=Path, required=True, help="where models and prices are kept")
    parser.add_argument("--tasks", type=int, nargs="*", default=[1, 3], help="of every row, counted from 0")
    parser.add_argument("--epochs", type=int, default=250)
    words = parser.parse_args()
    warnings.simplefilter("ignore")  # of models beyond what they know
    words.folder.mkdir(exist_ok=True)
    models = thirds(words.gpu, words.folder, words.epochs)
    prices = priced(words.gpu, words.folder, models, words.tasks)
    print("\n".join(table(prices)))


def thirds(gpu: str, folder: Path, epochs: int) -> list[str]:
    """A model of each third of the samples, by name; each begins with that of the other GPU."""
    groups, _, origin = read_groups([each for name in SAMPLES[gpu] for each in folders_in(locate(f"shipped:{name}"))])
    third = groups.case % THIRDS  # a digest of the group, so that repeats of it are in the same third
    paths = [folder / f"{gpu}-{number}.safetensors" for number in range(THIRDS)]
    for number, path in enumerate(paths):
        if not path.exists():
            start = next(each for each in SAMPLES if each != gpu)
            learn_from(groups.take(third == number), origin, str(path), {"epochs": epochs}, start=start)
    return [f"neural:{path}" for path in paths]


def priced(gpu: str, folder: Path, models: list[str], tasks: list[int]) -> Floats:
    """Seconds (tasks, planners, planned under, priced by) of steps."""
    kept, found = folder / f"{gpu}-prices.npy", list[Floats]()
    with folder_of(Path(f"samples/{gpu}/plans.tar.gz")) as plans:
        settings = load_settings(plans)
        wanted = [task for _, task in tasks_of(settings, tasks)]
        if kept.exists():
            found = list(np.load(kept))
        for task in wanted[len(found) :]:
            problem = build_problem(task.workload, task.cluster, SPACE)
            judges = [cost_model(name).compile(problem) for name in models]
            links = cost_model("analytic").compile(problem)
            found.append(np.array([
                [[step(placements, judge, links) for judge in judges] for placements in
                 (attempt(planner, task, under, settings.seed).placements for under in models)]
                for planner in PLANNERS
            ]))  # fmt: skip
            np.save(kept, np.array(found))
    return np.array(found)


def table(prices: Floats) -> Iterator[str]:
    """Optimism of each planner, and what it costs beside the pick of two models' mean; all roles of the thirds."""
    yield f"{len(prices)} tasks, {THIRDS} models in each role\n"
    yield "| planner | predicted, own plans / others', mean (95 %) | longer than the pick of two models, mean (95 %) |"
    yield "|---|---|---|"
    roles = list(permutations(range(THIRDS)))
    for number, planner in enumerate(PLANNERS):
        told, cost = list[Floats](), list[Floats]()
        for own, other, judge in roles:
            plans = prices[:, number]
            told.append(
                np.log(plans[:, own, own] / plans[:, own, judge])
                - np.log(plans[:, other, own] / plans[:, other, judge])
            )
            every = prices[:, :, [own, other]].reshape(len(prices), -1, THIRDS)  # all planners under both models
            mean = np.log(every[:, :, own]) + np.log(every[:, :, other])
            pick = np.take_along_axis(every[:, :, judge], np.nanargmin(mean, axis=1)[:, None], axis=1)[:, 0]
            cost.append(np.log(plans[:, own, judge] / pick))
        yield f"| `{planner}` | {interval(np.mean(told, axis=0))} | {interval(np.mean(cost, axis=0))} |"


def interval(logs: Floats) -> str:
    """Mean over tasks of a share, of its logarithms, with its interval by resampling tasks."""
    logs = logs[np.isfinite(logs)]
    drawn = np.random.default_rng(0).choice(logs, size=(10_000, len(logs))).mean(axis=1)
    least, most = np.exp(np.quantile(drawn, [0.025, 0.975])) - 1
    return f"{np.exp(logs.mean()) - 1:+.1%} ({least:+.1%} to {most:+.1%})"


if __name__ == "__main__":
    main()
