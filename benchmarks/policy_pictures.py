"""Learning curves of DreamShard's policy, by rewards: docs/pictures/policy-curves.svg, and their figures as a table.

    python benchmarks/policy_pictures.py --seeds 3                              # from an even chance: minutes
    python benchmarks/policy_pictures.py --first "even chance" "nearly greedy"  # a picture of each

Two kinds of policies have equally many placements measured. One learns on what its cost network estimates, the other
on what was measured (the paper's ablation). Before training and after each iteration both place unseen tasks by greedy
roll-outs, whose steps are measured too; those measurements do not count. They begin with an even chance of every
device, as the paper, or nearly greedy, as the policy that ships. Lines are means over seeds, bands reach from the least
to the greatest; they begin after the first iteration, for the first policy is far above. Kernels by the simulated H100,
which is a formula, collectives by `analytic`. Curves that are done are kept in --folder.
"""

import argparse
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from learned_policies import BATCH, DEVICE, HARDWARE, ROW, SEED
from learning_pictures import PICTURES, Axis, Panel, picture

from recsmith._types import Floats
from recsmith.costs import Evaluator
from recsmith.learning.policies import PolicySettings
from recsmith.learning.policies.dreamshard import DreamShardRecipe, DreamShardTraining
from recsmith.learning.policies.measured import PlacementMeter, evaluator_of, training_tasks
from recsmith.learning.policies.tasks import TESTING, PlacementTask, draw_placement_tasks, parse_size
from recsmith.planners.dreamshard import DreamShardNetwork
from recsmith.planners.placing import TRAINED, ItemBatch, items_of
from recsmith.scoring.scores import STUDENT

ITERATIONS, PLACEMENTS, EPISODES = 8, 40, 20
FIRST = {"even chance": 1e-9, "nearly greedy": 60.0}  # first policies, by their greed
REWARDS = ("estimated", "measured")


@dataclass(frozen=True)
class Judge:
    """Unseen tasks with the items of every rule that training has, and what placements of them take."""

    meter: PlacementMeter
    tasks: list[tuple[Evaluator, list[ItemBatch]]]

    @classmethod
    def of(cls, tasks: Sequence[PlacementTask]) -> "Judge":
        """Of tasks."""
        evaluators = list(map(evaluator_of, tasks))
        return cls(PlacementMeter(HARDWARE, tasks), [(each, _items(each)) for each in evaluators])

    def step_s(self, network: DreamShardNetwork) -> float:
        """Mean of the steps of greedy roll-outs over tasks and rules; dead ends are left out."""
        found: list[float] = []
        for evaluator, rules in self.tasks:
            for items in map(network.order, rules):
                rollout = network.rollout(items)
                if not rollout.dead[0]:
                    footprint = items.assignment(rollout.target[0]).footprint(evaluator.problem)
                    found.append(self.meter.measure(evaluator, footprint).step_s)
        return float(np.mean(found))


def _items(evaluator: Evaluator) -> list[ItemBatch]:
    found = [items_of(evaluator.problem, evaluator, rule) for rule in TRAINED]
    return [each for each in found if each is not None]


def curve(reward: str, greed: float, seed: int, judge: Judge) -> list[float]:
    """Seconds of a step before training, and after each iteration."""
    settings = PolicySettings(hardware=HARDWARE, row=ROW)
    tasks = settings.draw(settings.tasks)
    recipe = DreamShardRecipe(
        iterations=ITERATIONS, placements=PLACEMENTS, episodes=EPISODES, seed=seed, reward=reward, greed=greed
    )
    training = DreamShardTraining(recipe, training_tasks(tasks), PlacementMeter(HARDWARE, tasks))
    steps = [judge.step_s(training.networks.frozen())]

    training.run(lambda _: steps.append(judge.step_s(training.networks.frozen())))
    return steps


def kept_curve(folder: Path, first: str, reward: str, seed: int, judge: Judge) -> list[float]:
    """A curve, from the folder where it is there already."""
    path = folder / f"{first.replace(' ', '-')}-{reward}-{seed}-of-{len(judge.tasks)}.json"
    if not path.exists():
        steps = curve(reward, FIRST[first], seed, judge)
        path.write_text(json.dumps(steps), "utf-8")
        print(f"{path.stem}: {steps[0] * 1e3:.3f} ms before, {steps[-1] * 1e3:.3f} ms after", flush=True)
    return json.loads(path.read_text("utf-8"))


def placed() -> Floats:
    """Placements measured, before training and after each iteration."""
    return PLACEMENTS * np.arange(ITERATIONS + 1, dtype=np.float64)


def half_width(values: Floats) -> Floats:
    """Of the 95 % interval of the mean over seeds (first axis), by Student's distribution."""
    seeds = len(values)
    return STUDENT[seeds - 2] * values.std(axis=0, ddof=1) / np.sqrt(seeds)


def table(first: str, steps: dict[str, Floats]) -> list[str]:
    """What each reward reaches, milliseconds (seeds, 1 + iterations), and how much longer measured ones take."""
    longer = steps["measured"] / steps["estimated"] - 1
    rows = [f"{first}; mean of {len(longer)} seeds, 95 % interval", "measured  estimated, ms  measured, ms  longer"]
    mean, half = longer.mean(axis=0), half_width(longer)
    for i, count in enumerate(placed()):
        estimated, measured = (steps[reward][:, i].mean() for reward in REWARDS)
        interval = f"[{(mean[i] - half[i]) * 100:+.1f}, {(mean[i] + half[i]) * 100:+.1f}]"
        rows.append(f"{count:>8.0f}  {estimated:>13.3f}  {measured:>12.3f}  {mean[i]:+.1%} {interval}")
    return rows


def panel(first: str, steps: dict[str, Floats]) -> Panel:
    """Means over seeds of steps in milliseconds from the first iteration on, and the range of the seeds around them."""
    steps = {reward: each[:, 1:] for reward, each in steps.items()}
    at = placed()[1:]
    every = np.concatenate(list(steps.values()))
    least, most = float(every.min()) * 0.98, float(every.max()) * 1.03
    up = Axis(least, most, {value: f"{value:.2f}" for value in np.linspace(least, most, 6)[:-1]}, log=False)
    across = Axis(0.0, placed()[-1], {value: f"{value:.0f}" for value in placed()[::2]}, log=False)
    lines = {f"{reward} rewards": np.column_stack([at, steps[reward].mean(axis=0)]) for reward in REWARDS}
    bands = [np.column_stack([at, steps[reward].min(axis=0), steps[reward].max(axis=0)]) for reward in REWARDS]
    return Panel(f"Step, ms, by placements measured: {first}", across, up, np.zeros((0, 2)), lines, bands)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, choices=range(2, len(STUDENT) + 2), default=3)
    parser.add_argument("--first", nargs="+", choices=list(FIRST), default=["even chance"])
    parser.add_argument("--tasks", type=int, default=20, help="unseen ones")
    parser.add_argument("--folder", type=Path, default=Path("measurements/policies/curves"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    options.folder.mkdir(parents=True, exist_ok=True)
    judge = Judge.of(draw_placement_tasks(parse_size(ROW), options.tasks, SEED, DEVICE, BATCH, TESTING).tasks)
    panels: list[Panel] = []
    for first in options.first:
        found = {reward: [kept_curve(options.folder, first, reward, seed, judge) for seed in range(options.seeds)]
                 for reward in REWARDS}  # fmt: skip
        steps = {reward: np.array(each) * 1e3 for reward, each in found.items()}
        panels.append(panel(first, steps))
        print("\n".join(table(first, steps)), flush=True)
    path = PICTURES / "policy-curves.svg"
    path.write_text(picture(panels), "utf-8")
    print(f"wrote {path.name}, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
