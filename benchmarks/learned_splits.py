"""What the policy of what is split is worth (docs/learned.md and docs/benchmarks/learned.md have the tables).

python benchmarks/learned_splits.py shares                   # the policy's share, and that of what goes without one
python benchmarks/learned_splits.py drafts                   # auto with the policy's placements as drafts
python benchmarks/learned_splits.py lost --tasks 50          # how often no episode finds room, with and without splits
python benchmarks/learned_splits.py pairs bench/learned-splits      # of planners of --pairs PLANNER:OTHER,..

`pairs` compares planners of a folder of `recsmith bench learned --output FOLDER`, two by two.
Otherwise tasks are those of `recsmith bench learned`: tables that no policy saw. What a step takes is what the cost
model says; figures are how much longer it is than that of planner `longest_first`.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from learned_policies import BATCH, DEVICE, MODEL, SEED, interval

from recsmith.bench.gains import Gain, row_gains, steps_of
from recsmith.bench.journal import RunStore
from recsmith.costs import Evaluator, cost_model, step_seconds
from recsmith.learning.policies.tasks import SPACE, TESTING, PlacementTask, draw_placement_tasks, parse_size
from recsmith.planners.auto import planner as auto
from recsmith.planners.auto.drafts import Drafts
from recsmith.planners.placing.best_split import best_split, longest_first_plan
from recsmith.planners.placing.shapes import shapes_of
from recsmith.planners.placing.split_episodes import PricedShapes
from recsmith.planners.placing.split_policy import SHAPES, Decide, SplitPolicy, load_splits
from recsmith.planning import find_planner
from recsmith.problems import build_problem

ROWS = "4x20,4x50,8x50,8x100"
EVERY_ROW = ",".join(f"{devices}x{tables}" for devices in (2, 4, 8) for tables in (20, 50, 100, 200))
COUNTS = (1, 4, 8, 16, 64)
RULES = [(limit, extra) for limit in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1) for extra in (1.15, 1.35, 1.7)]
PAIRS = (
    "dreamshard?splits=8:longest_first,dreamshard?splits=64:longest_first,dreamshard?splits=64:neuroshard,"
    "dreamshard?whole&splits=8:cost_greedy,dreamshard:longest_first"
)
BESIDE_AUTO = ("dreamshard?splits=8", "dreamshard?splits=64", "dreamshard?splits=256", "dreamshard?splits=64&refine",
               "longest_first", "neuroshard")  # fmt: skip

Player = Callable[[np.random.Generator], Decide]


def unseen(row: str, tasks: int) -> tuple[PlacementTask, ...]:
    """Tasks of unseen tables."""
    return draw_placement_tasks(parse_size(row), tasks, SEED, DEVICE, BATCH, TESTING).tasks


def priced(task: PlacementTask) -> Evaluator:
    """By the cost model under which planners search."""
    return cost_model(MODEL).compile(build_problem(task.workload, task.cluster, SPACE))


def evaluators(rows: str, tasks: int) -> Iterator[Evaluator]:
    """Priced tasks of unseen tables."""
    yield from (priced(task) for row in rows.split(",") for task in unseen(row, tasks))


class Judge:
    """Tasks, and how much longer the best of some episodes takes than longest-first.

    one_kernel: whole tables run in the kernel of split ones, never in one of their own.
    """

    def __init__(self, rows: str, tasks: int, *, one_kernel: bool = False) -> None:
        self.tasks: list[tuple[PricedShapes, float]] = []
        for evaluator in evaluators(rows, tasks):
            greedy = longest_first_plan(evaluator, best_split(evaluator.problem, evaluator))
            shapes = shapes_of(evaluator.problem, evaluator)
            if greedy is not None and shapes is not None:
                seconds = step_seconds(evaluator, greedy.footprint(evaluator.problem))
                shapes = replace(shapes, plain=shapes.option) if one_kernel else shapes
                self.tasks.append((PricedShapes(shapes, evaluator), seconds))

    def ratios(self, count: int, player: Player) -> np.ndarray:
        """Of so many episodes (T,)."""
        random = np.random.default_rng(0)
        return np.array([priced.play(count, player(random)).step_s.min() / s - 1 for priced, s in self.tasks])


def by_policy(policy: SplitPolicy) -> Player:
    """As a policy draws it, the first episode as it finds likelier."""
    return lambda random: policy.drawn(random, likeliest=True)


def by_rules(random: np.random.Generator) -> Decide:
    """No policy: a rule an episode, such as the four of the other planners."""
    del random
    share, extra = np.log2(np.array(RULES)).T  # what figures 0 and 2 of a decision are compared with
    return lambda rows, _, seen: (4 * seen[:, 0] > share[rows % len(RULES)]) & (seen[:, 2] <= extra[rows % len(RULES)])


def never(random: np.random.Generator) -> Decide:
    """Nothing is split further."""
    del random
    return lambda rows, _, __: np.zeros(len(rows), dtype=bool)


def untrained(seed: int = 0) -> SplitPolicy:
    """Weights as they are drawn."""
    random = np.random.default_rng(seed)
    return SplitPolicy({name: random.normal(size=shape) / np.sqrt(shape[-1]) for name, shape in SHAPES.items()})


def shares(options: argparse.Namespace) -> Iterator[str]:
    """Episodes by the policy, by rules, by an untrained policy, without splits, and with one kernel for all."""
    judge = Judge(options.rows or ROWS, options.tasks)
    yield f"{len(judge.tasks)} tasks; best of   " + "  ".join(f"{n:>22}" for n in COUNTS)
    players = {"policy": by_policy(load_splits("simulated-h100")[0]), "rules": by_rules,
               "untrained": by_policy(untrained()), "never": never}  # fmt: skip
    found = {name: [judge.ratios(n, player) for n in COUNTS] for name, player in players.items()}
    single = Judge(options.rows or ROWS, options.tasks, one_kernel=True)
    found["policy, one kernel"] = [single.ratios(n, players["policy"]) for n in COUNTS]
    found["policy, than rules"] = [(1 + a) / (1 + b) - 1 for a, b in zip(found["policy"], found["rules"], strict=True)]
    yield from (f"{name:<20}" + "  ".join(f"{interval(each):>22}" for each in ratios) for name, ratios in found.items())


def columns(words: Iterable[str]) -> str:
    """Words side by side."""
    return "  ".join(f"{word:>22}" for word in words)


class WithSplits(Drafts):
    """The drafts of auto, and the best of 64 placements by the policy; `instead` of those of neuroshard."""

    instead = False

    def _neuroshard(self) -> bool:
        if not self.instead:
            super()._neuroshard()
        self._borrow(find_planner("dreamshard?splits=64"))
        return True


class InsteadOfNeuroShard(WithSplits):
    """Placements by the policy, none of neuroshard."""

    instead = True


def drafts(options: argparse.Namespace) -> Iterator[str]:
    """What auto gains from the policy's placements as drafts, and others' steps beside auto's, by the cost model."""
    auto_as = {"auto, beside neuroshard": WithSplits, "auto, instead of it": InsteadOfNeuroShard}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in (*auto_as, *BESIDE_AUTO)}
    for evaluator in evaluators(options.rows or ROWS, options.tasks):
        usual = np.array(timed("auto", evaluator, Drafts))
        for name in found:
            step_s, cpu_s = np.array(timed(name.partition(",")[0], evaluator, auto_as.get(name, Drafts))) / usual
            found[name].append((step_s - 1, cpu_s))
    yield f"{'':<26} {'longer than auto':>22}  shorter, longer tasks  times its CPU seconds"
    for name, each in found.items():
        steps, seconds = np.array(each).T
        tasks = f"{(steps < -1e-6).sum()}, {(steps > 1e-6).sum()} of {len(steps)}"
        yield f"{name:<26} {interval(steps):>22}  {tasks:>21}  {np.median(seconds):>21.2f}"


def timed(planner: str, evaluator: Evaluator, drafted: type[Drafts]) -> tuple[float, float]:
    """Seconds of the step, and CPU seconds to plan. drafted: what auto drafts with."""
    fresh = cost_model(MODEL).compile(evaluator.problem)  # nothing is kept from planning before
    begun = time.process_time()
    with patch.object(auto, "Drafts", drafted):
        step_s = find_planner(planner).plan(fresh.problem, fresh).total_s
    return step_s, time.process_time() - begun


def lost(options: argparse.Namespace) -> Iterator[str]:
    """Dead ends of the policy's likeliest placement, and of the best of 8, with and without splits."""
    policy, random = load_splits("simulated-h100")[0], np.random.default_rng(0)
    found = {(whole, count): 0 for whole in (False, True) for count in (1, 8)}
    tasks = 0
    for evaluator in evaluators(options.rows or EVERY_ROW, options.tasks):
        shapes, tasks = shapes_of(evaluator.problem, evaluator), tasks + 1
        assert shapes is not None, "every table of these tasks is placed in single pieces"
        for whole, count in found:
            priced, stir = PricedShapes(shapes, evaluator, whole=whole), random if whole else None
            ended = priced.play(count, policy.drawn(random, likeliest=True), stir)
            found[whole, count] += not np.isfinite(ended.step_s).any()
    for (whole, count), number in found.items():
        yield f"{'whole' if whole else 'split'}, best of {count}: {number} of {tasks} tasks found no room"


def pairs(options: argparse.Namespace) -> Iterator[str]:
    """How much longer steps of one planner take than those of another, row by row, as they were measured."""
    steps: dict[str, list[dict[str, Any]]] = {}
    for (task, _), visit in RunStore(options.run).measured.items():
        steps.setdefault(task.partition("-")[0], []).append(steps_of([visit], "median"))
    rows = {row: steps[row] for row in EVERY_ROW.split(",") if row in steps}
    rows["all"] = [each for row in rows.values() for each in row]
    asked = [pair.partition(":")[::2] for pair in options.pairs.split(",")]
    yield " " * 6 + "".join(f"{planner:>26}" for planner, _ in asked)
    yield " " * 6 + "".join(f"{'than ' + other:>26}" for _, other in asked)
    table = {row: [row_gains(row, each, b, [a]).gains[0] for a, b in asked] for row, each in rows.items()}
    yield from (f"{row:<6}" + "".join(f"{words(gain):>26}" for gain in gains) for row, gains in table.items())
    for name, which in (("shorter", "worse"), ("longer", "better")):
        counts = [
            sum(getattr(gains[i], which) for row, gains in table.items() if row != "all") for i in range(len(asked))
        ]
        yield f"{name:<7}" + "".join(f"{f'{count} rows':>26}" for count in counts)[1:]


def words(gain: Gain) -> str:
    """Mean and interval."""
    found = gain.interval
    return f"{found.value:+.1%} [{found.low * 100:+.1f}, {found.high * 100:+.1f}]" if found else "no plans"


COMMANDS = {"pairs": pairs, "shares": shares, "drafts": drafts, "lost": lost}


def main() -> None:
    """Print a table, line by line."""
    warnings.simplefilter("ignore")  # of a cost model that learned a formula
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("run", type=Path, nargs="?", default=Path("bench/learned-splits"), help="of pairs")
    parser.add_argument("--pairs", default=PAIRS)
    parser.add_argument("--rows")
    parser.add_argument("--tasks", type=int, default=5)
    options = parser.parse_args()
    for line in COMMANDS[options.command](options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
