"""What the training of what is split owes to its parts (docs/benchmarks/learned.md has the tables).

python benchmarks/split_trainings.py parts --seeds 3     # without imitation, without REINFORCE
python benchmarks/split_trainings.py parts --shipped     # the recipe of the policy that ships, of more seeds
python benchmarks/split_trainings.py rewards             # REINFORCE on estimated against measured rewards

Trainings are small, save with --shipped; policies are kept in --folder after some iterations, and a run that was ended
goes on. They are judged on unseen tables by how much longer steps take than those of planner `longest_first`, by the
cost model; those of `rewards` by the simulated H100.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learned_policies import HARDWARE, MODEL, interval
from learned_splits import COUNTS, ROWS, Judge, by_policy, columns, priced, unseen
from safetensors.numpy import load_file, save_file

from recsmith.costs import Evaluator
from recsmith.learning.policies import SplitIteration, SplitRecipe, SplitSettings
from recsmith.learning.policies.learn import CHECKPOINT, learn_splits
from recsmith.learning.policies.measured import PlacementMeter, evaluator_of
from recsmith.learning.policies.splits import SplitTask, SplitTraining, split_tasks
from recsmith.learning.policies.tasks import PlacementTask
from recsmith.planners.placing.best_split import best_split, longest_first_plan
from recsmith.planners.placing.shapes import shapes_of
from recsmith.planners.placing.split_episodes import EndedEpisodes, PricedShapes
from recsmith.planners.placing.split_policy import SHAPES, Decide, SplitPolicy, load_splits
from recsmith.planners.search.device_state import Assignment

SIZES, ITERATIONS = ("2x20", "4x20", "4x50", "8x50"), 8  # of trainings, of which many can be had
MEASURED_SIZES = ("2x20", "4x20", "4x50")  # of trainings that measure
AFTER = (1, 2, 4, 8, 12)  # iterations of a training
PRICED = 2048  # placements in an iteration on these sizes: 16 tasks, 16 x (2 + rounds) each, and 16 an update
KINDS: dict[str, dict[str, int]] = {
    "both": {"updates": 32}, "no imitation": {"imitation": 0, "updates": 128},
    "no REINFORCE": {"updates": 0, "rounds": 6},
}  # fmt: skip

Keep = Callable[[int, dict[str, Any]], None]  # weights after an iteration


def trained(options: argparse.Namespace, name: str, **fields: Any) -> dict[int, SplitPolicy]:
    """A policy after some iterations of its training, from the folder if they are there."""
    settings, fields = SplitSettings(sizes=SIZES), {"iterations": ITERATIONS, **fields}
    if options.small:
        settings, fields = SplitSettings(tasks=1, sizes=("2x10",)), {**fields, "iterations": 1}
    if options.shipped:
        settings, fields, name = SplitSettings(), {**fields, "iterations": SplitRecipe().iterations}, f"shipped-{name}"
    target = options.folder / f"{name}.safetensors"

    def train(keep: Keep) -> None:
        def heard(iteration: SplitIteration) -> None:
            state = load_file(target.with_suffix(".run") / CHECKPOINT)
            keep(iteration.number, {tensor: state[tensor] for tensor in SHAPES})

        learn_splits(settings, str(target), fields, on_iteration=heard)

    return kept(options.folder, name, fields["iterations"], train)


def kept(folder: Path, name: str, iterations: int, train: Callable[[Keep], None]) -> dict[int, SplitPolicy]:
    """Policies after some iterations, from files; they are trained where one is missing."""
    paths = {i: folder / f"{name}-{i}.safetensors" for i in AFTER if i <= iterations}
    folder.mkdir(parents=True, exist_ok=True)
    if not all(path.exists() for path in paths.values()):
        train(lambda i, tensors: save_file(tensors, paths[i]) if i in paths else None)
    return {i: SplitPolicy({k: v.astype(float) for k, v in load_file(path).items()}) for i, path in paths.items()}


def parts(options: argparse.Namespace) -> Iterator[str]:
    """Trainings: as it is, without imitation, without REINFORCE; of several seeds, after some iterations."""
    kinds = {"both": {}} if options.shipped else KINDS
    found = {
        f"{name}, seed {seed}": trained(options, f"{name.replace(' ', '-')}-{seed}", seed=seed, **fields)
        for name, fields in kinds.items()
        for seed in range(options.seeds)
    }
    judge = Judge(options.rows or ROWS, options.tasks)
    after = next(iter(found.values()))
    yield f"{len(judge.tasks)} tasks; best of 8 after".ljust(24) + columns(f"{i} iterations" for i in after)
    if not options.shipped:
        yield "placements priced".ljust(24) + columns(f"{PRICED * i:,}" for i in after)
    for name, policies in found.items():
        yield name.ljust(24) + columns(interval(judge.ratios(8, by_policy(each))) for each in policies.values())
    yield "after all, best of".ljust(24) + columns(map(str, COUNTS))
    ships = by_policy(load_splits("simulated-h100")[0])
    yield "the one that ships".ljust(24) + columns(interval(judge.ratios(n, ships)) for n in COUNTS)
    for name, policies in found.items():
        last = by_policy(policies[max(policies)])
        yield name.ljust(24) + columns(interval(judge.ratios(n, last)) for n in COUNTS)


class MeasuredShapes(PricedShapes):
    """Shapes whose episodes take what the simulated hardware says, instead of the cost model."""

    def __init__(self, evaluator: Evaluator, task: PlacementTask, meter: PlacementMeter) -> None:
        shapes = shapes_of(evaluator.problem, evaluator)
        assert shapes is not None, "every table of these tasks is placed in single pieces"
        super().__init__(shapes, evaluator)
        self.collectives, self.meter = evaluator_of(task), meter
        greedy = longest_first_plan(evaluator, best_split(evaluator.problem, evaluator))
        assert greedy is not None, "these tasks have room"
        self.greedy_s = self.seconds(greedy)

    def seconds(self, plan: Assignment) -> float:
        """Of a placement's step."""
        return self.meter.measure(self.collectives, plan.footprint(self.evaluator.problem)).step_s

    def play(self, count: int, decide: Decide, stir: np.random.Generator | None = None) -> EndedEpisodes:
        """Episodes, measured."""
        ended = super().play(count, decide, stir)
        plans = [ended.episodes.assignment(e) if np.isfinite(s) else None for e, s in enumerate(ended.step_s)]
        return ended._replace(step_s=np.array([self.seconds(plan) if plan else np.inf for plan in plans]))

    def ratio(self, policy: SplitPolicy, count: int) -> float:
        """How much longer the best of some episodes takes than longest-first: best by the cost model, measured."""
        ended = super().play(count, policy.drawn(np.random.default_rng(0), likeliest=True))
        return self.seconds(ended.episodes.assignment(ended.best)) / self.greedy_s - 1


def rewards(options: argparse.Namespace) -> Iterator[str]:
    """REINFORCE from what the cost model says of placements and from what was measured: alone, and after imitation."""
    sizes, number = (("2x10",), 1) if options.small else (MEASURED_SIZES, 4)
    fields = {"iterations": 1 if options.small else ITERATIONS, "imitation": 0, "updates": 1 if options.small else 24}
    tasks = SplitSettings(sizes=sizes, tasks=number).draw(number)
    judges = [task for row in (options.rows or "4x20,4x50").split(",") for task in unseen(row, options.tasks)]
    meter = PlacementMeter(HARDWARE, [*tasks, *judges])
    measured, judged = ([MeasuredShapes(priced(task), task, meter) for task in each] for each in (tasks, judges))
    kinds = {
        "measured": [SplitTask(each, each.greedy_s) for each in measured],
        "estimated": split_tasks(tasks, MODEL),
    }
    yield f"{len(judged)} tasks; placements".ljust(36) + columns(f"{384 * i:,}" for i in AFTER if i <= ITERATIONS)
    for first, seed in ((first, seed) for first in ("alone", "imitated") for seed in range(options.seeds)):
        for name, each in kinds.items():

            def train(keep: Keep, seed: int = seed, first: str = first, each: list[SplitTask] = each) -> None:
                training = SplitTraining(SplitRecipe(**fields, seed=seed), each)
                if first == "imitated":
                    begin_at(training, trained(options, f"no-REINFORCE-{seed}", seed=seed, **KINDS["no REINFORCE"]))
                training.run(lambda iteration: keep(iteration.number, training.frozen().tensors))

            policies = kept(options.folder, f"rewards-{first}-{name}-{seed}", fields["iterations"], train)
            for count in (1, 8):
                ratios = (np.array([task.ratio(policy, count) for task in judged]) for policy in policies.values())
                yield f"{first}, {name}, seed {seed}, best of {count}".ljust(36) + columns(map(interval, ratios))


def begin_at(training: SplitTraining, policies: dict[int, SplitPolicy]) -> None:
    """Begin a training at the last of some policies."""
    with torch.no_grad():
        for tensor, value in policies[max(policies)].tensors.items():
            training.parameters[tensor].copy_(torch.as_tensor(value))


COMMANDS = {"parts": parts, "rewards": rewards}


def main() -> None:
    """Print a table, line by line."""
    warnings.simplefilter("ignore")  # of a cost model that learned a formula
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--rows")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--shipped", action="store_true", help="the recipe of the policy that ships")
    parser.add_argument("--small", action="store_true", help="trainings of seconds, to see that they run")
    parser.add_argument("--folder", type=Path, default=Path("bench/splits"))
    options = parser.parse_args()
    for line in COMMANDS[options.command](options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
