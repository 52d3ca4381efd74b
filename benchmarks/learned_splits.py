"""What the policy of what is split is worth (docs/learned.md and docs/benchmarks/learned.md have the tables).

python benchmarks/learned_splits.py shares                   # the policy's share, and that of what goes without one
python benchmarks/learned_splits.py training                 # without imitation, without REINFORCE, other seeds
python benchmarks/learned_splits.py rewards                  # REINFORCE on estimated against measured rewards
python benchmarks/learned_splits.py drafts                   # auto with the policy's placements as drafts
python benchmarks/learned_splits.py lost --tasks 50          # how often no episode finds room, with and without splits
python benchmarks/learned_splits.py pairs bench/learned-splits      # of planners of --pairs PLANNER:OTHER,..

`pairs` compares planners of a folder of `recsmith bench learned --output FOLDER`, two by two.
Otherwise tasks are those of `recsmith bench learned`: tables that no policy saw. What a step takes is what the cost
model says; figures are how much longer it is than that of planner `longest_first`. Policies are trained into --folder,
and kept.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from learned_policies import BATCH, DEVICE, HARDWARE, MODEL, SEED, interval
from safetensors.numpy import load_file, save_file

from recsmith.bench.gains import Gain, row_gains, steps_of
from recsmith.bench.journal import RunStore
from recsmith.costs import Evaluator, cost_model, step_seconds
from recsmith.learning.policies import SplitIteration, SplitRecipe, SplitSettings
from recsmith.learning.policies.learn import CHECKPOINT, learn_splits
from recsmith.learning.policies.measured import PlacementMeter, evaluator_of
from recsmith.learning.policies.splits import SplitTask, SplitTraining, split_tasks
from recsmith.learning.policies.tasks import SPACE, TESTING, PlacementTask, draw_placement_tasks, parse_size
from recsmith.planners.auto import planner as auto
from recsmith.planners.auto.drafts import Drafts
from recsmith.planners.placing.per_problem import best_split, longest_first_plan
from recsmith.planners.placing.shapes import shapes_of
from recsmith.planners.placing.split_episodes import EndedEpisodes, PricedShapes
from recsmith.planners.placing.split_policy import SHAPES, Decide, SplitPolicy, load_splits
from recsmith.planners.search.device_state import Assignment
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
SIZES, ITERATIONS = ("2x20", "4x20", "4x50", "8x50"), 8  # of trainings, of which many can be had
MEASURED_SIZES = ("2x20", "4x20", "4x50")  # of trainings that measure
AFTER = (1, 2, 4, 8, 12)  # iterations of a training
BESIDE_AUTO = ("dreamshard?splits=8", "dreamshard?splits=64", "dreamshard?splits=256", "dreamshard?splits=64&refine",
               "longest_first", "neuroshard")  # fmt: skip
PRICED = 2048  # placements in an iteration on these sizes: 16 tasks, 16 x (2 + rounds) each, and 16 an update
KINDS: dict[str, dict[str, int]] = {
    "both": {"updates": 32}, "no imitation": {"imitation": 0, "updates": 128},
    "no REINFORCE": {"updates": 0, "rounds": 6},
}  # fmt: skip

Player = Callable[[np.random.Generator], Decide]
Keep = Callable[[int, dict[str, Any]], None]  # weights after an iteration


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
    """Tasks, and how much longer the best of some episodes takes than longest-first."""

    def __init__(self, rows: str, tasks: int) -> None:
        self.tasks: list[tuple[PricedShapes, float]] = []
        for evaluator in evaluators(rows, tasks):
            greedy = longest_first_plan(evaluator, best_split(evaluator.problem, evaluator))
            shapes = shapes_of(evaluator.problem, evaluator)
            if greedy is not None and shapes is not None:
                seconds = step_seconds(evaluator, greedy.footprint(evaluator.problem))
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


def trained(options: argparse.Namespace, name: str, **fields: Any) -> dict[int, SplitPolicy]:
    """A policy after some iterations of its training, from the folder if they are there."""
    settings, fields = SplitSettings(sizes=SIZES), {"iterations": ITERATIONS, **fields}
    if options.small:
        settings, fields = SplitSettings(tasks=1, sizes=("2x10",)), {**fields, "iterations": 1}
    if options.shipped:
        settings, fields, name = SplitSettings(), {**fields, "iterations": 12}, f"shipped-{name}"
    target = options.folder / f"{name}.safetensors"

    def train(keep: Keep) -> None:
        def heard(iteration: SplitIteration) -> None:
            state = load_file(target.with_suffix(".run") / CHECKPOINT)
            keep(iteration.number, {tensor: state[tensor] for tensor in SHAPES})

        learn_splits(settings, str(target), fields, on_iteration=heard)

    return kept(options.folder, name, fields["iterations"], train)


def kept(folder: Path, name: str, iterations: int, train: Callable[["Keep"], None]) -> dict[int, SplitPolicy]:
    """Policies after some iterations, from files; they are trained where one is missing."""
    paths = {i: folder / f"{name}-{i}.safetensors" for i in AFTER if i <= iterations}
    folder.mkdir(parents=True, exist_ok=True)
    if not all(path.exists() for path in paths.values()):
        train(lambda i, tensors: save_file(tensors, paths[i]) if i in paths else None)
    return {i: SplitPolicy({k: v.astype(float) for k, v in load_file(path).items()}) for i, path in paths.items()}


def shares(options: argparse.Namespace) -> Iterator[str]:
    """Episodes by the policy, by rules, by an untrained policy, and without splits."""
    judge = Judge(options.rows or ROWS, options.tasks)
    yield f"{len(judge.tasks)} tasks; best of   " + "  ".join(f"{n:>22}" for n in COUNTS)
    players = {"policy": by_policy(load_splits("simulated-h100")[0]), "rules": by_rules,
               "untrained": by_policy(untrained()), "never": never}  # fmt: skip
    found = {name: [judge.ratios(n, player) for n in COUNTS] for name, player in players.items()}
    found["policy, than rules"] = [(1 + a) / (1 + b) - 1 for a, b in zip(found["policy"], found["rules"], strict=True)]
    yield from (f"{name:<20}" + "  ".join(f"{interval(each):>22}" for each in ratios) for name, ratios in found.items())


def training(options: argparse.Namespace) -> Iterator[str]:
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
    for name, policies in found.items():
        last = by_policy(policies[max(policies)])
        yield name.ljust(24) + columns(interval(judge.ratios(n, last)) for n in COUNTS)


def columns(words: Iterable[str]) -> str:
    """Words side by side."""
    return "  ".join(f"{word:>22}" for word in words)


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
    """REINFORCE alone, from what the cost model says of placements and from what was measured of them."""
    sizes, number = (("2x10",), 1) if options.small else (MEASURED_SIZES, 4)
    fields = {"iterations": 1 if options.small else ITERATIONS, "imitation": 0, "updates": 1 if options.small else 32}
    tasks = SplitSettings(sizes=sizes, tasks=number).draw(number)
    judges = [task for row in (options.rows or "4x20,4x50").split(",") for task in unseen(row, options.tasks)]
    meter = PlacementMeter(HARDWARE, [*tasks, *judges])
    measured, judged = ([MeasuredShapes(priced(task), task, meter) for task in each] for each in (tasks, judges))
    found = {
        "measured": [SplitTask(each, each.greedy_s) for each in measured],
        "estimated": split_tasks(tasks, MODEL),
    }
    yield f"{len(judged)} tasks; placements".ljust(32) + columns(f"{512 * i:,}" for i in AFTER if i <= ITERATIONS)
    for seed in range(options.seeds):
        for name, each in found.items():

            def train(keep: Keep, seed: int = seed, each: list[SplitTask] = each) -> None:
                training = SplitTraining(SplitRecipe(**fields, seed=seed), each)
                training.run(lambda iteration: keep(iteration.number, training.frozen().tensors))

            policies = kept(options.folder, f"rewards-{name}-{seed}", fields["iterations"], train)
            for count in (1, 8):
                ratios = (np.array([task.ratio(policy, count) for task in judged]) for policy in policies.values())
                yield f"{name}, seed {seed}, best of {count}".ljust(32) + columns(map(interval, ratios))


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


COMMANDS = {"pairs": pairs, "shares": shares, "training": training, "rewards": rewards, "drafts": drafts, "lost": lost}


def main() -> None:
    """Print a table, line by line."""
    warnings.simplefilter("ignore")  # of a cost model that learned a formula
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("run", type=Path, nargs="?", default=Path("bench/learned-splits"), help="of pairs")
    parser.add_argument("--pairs", default=PAIRS)
    parser.add_argument("--rows")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--shipped", action="store_true", help="training by the shipped recipe, of more seeds")
    parser.add_argument("--small", action="store_true", help="trainings of seconds, to see that they run")
    parser.add_argument("--folder", type=Path, default=Path("bench/splits"))
    options = parser.parse_args()
    for line in COMMANDS[options.command](options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
