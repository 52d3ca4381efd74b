"""What trained policies are worth: rewards, transfer to other sizes, seeds (docs/learned.md has the tables).

python benchmarks/learned_policies.py rewards  --seeds 3                    # estimated against measured rewards
python benchmarks/learned_policies.py transfer --rows 2x20,8x50             # the shipped policy against the row's own
python benchmarks/learned_policies.py updates  --seeds 1                    # what REINFORCE adds to the first policy
python benchmarks/learned_policies.py seeds    --seeds 5                    # the shipped recipe from other seeds
python benchmarks/learned_policies.py transfer --rows 8x50 --planner autoshard --unseen 0,50,100

Policies are of --planner (dreamshard or autoshard; `rewards` of dreamshard alone), trained into a folder (--folder) and
kept: a run that was ended goes on. Everything is judged by what plans
take on the simulated H100, which is a formula, on tables that no policy saw; collectives are priced by `analytic`.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsmith.costs import Evaluator, cost_model
from recsmith.learning.policies import PolicySettings
from recsmith.learning.policies.learn import KINDS, learn_policy
from recsmith.learning.policies.measured import PlacementMeter, evaluator_of
from recsmith.learning.policies.tasks import BOTH, SEEN, TESTING, PlacementTask, draw_placement_tasks, parse_size
from recsmith.planners.placing import TRAINED, items_of
from recsmith.planning import find_planner

HARDWARE, DEVICE, BATCH = "simulated:h100", "h100", 65_536
MODEL = "neural:simulated-h100"  # that planners search under
SEED = 2026  # of the tasks that judge: those of `recsmith bench learned`
RESAMPLES = 4000
ROW = "4x50"  # of the policy that ships
UNSEEN = {"0": SEEN, "50": BOTH, "100": TESTING}  # per cent of tables that no policy saw; 50 on average


class Judge:
    """Tasks of a row, and what plans of them take."""

    def __init__(self, row: str, number: int, half: str = TESTING) -> None:
        drawn = draw_placement_tasks(parse_size(row), number, SEED, DEVICE, BATCH, half)
        self.tasks: Sequence[PlacementTask] = drawn.tasks
        self.meter = PlacementMeter(HARDWARE, self.tasks)
        self.priced = [evaluator_of(task) for task in self.tasks]
        self.searched: list[Evaluator] = [cost_model(MODEL).compile(each.problem) for each in self.priced]

    def planner(self, word: str) -> np.ndarray:
        """Seconds of each task's step by a planner's plan (T,)."""
        plans = [find_planner(word).plan(each.problem, each).footprint for each in self.searched]
        return np.array([self.meter.measure(e, plan).step_s for e, plan in zip(self.priced, plans, strict=True)])

    def rollouts(self, name: Any, policy: str) -> np.ndarray:
        """Seconds (T, rules) of the policy's greedy roll-outs alone, whatever the cost model says of them."""
        network, _ = KINDS[name].load(Path(policy))
        found = np.full((len(self.tasks), len(TRAINED)), np.nan)
        for t, evaluator in enumerate(self.priced):
            for i, rule in enumerate(TRAINED):
                items = items_of(evaluator.problem, evaluator, rule)
                assert items is not None
                items = network.order(items)
                rollout = network.rollout(items)
                if not rollout.dead[0]:
                    draft = items.assignment(rollout.target[0])
                    found[t, i] = self.meter.measure(evaluator, draft.footprint(evaluator.problem)).step_s
        return found


def interval(ratios: np.ndarray) -> str:
    """Mean of ratios - 1 over tasks, and the percentiles of resampled means."""
    drawn = np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios))).mean(axis=1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{ratios.mean():+.1%} [{low * 100:+.1f}, {high * 100:+.1f}]"


def trained(options: argparse.Namespace, name: str, row: str, **words: Any) -> str:
    """The file of a policy, trained unless the folder has it."""
    path = options.folder / options.planner / f"{name}.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        learn_policy(options.planner, PolicySettings(hardware=HARDWARE, row=row), str(path), words)
    return str(path)


def rewards(options: argparse.Namespace) -> Iterator[str]:
    """Estimated against measured rewards at as many measured placements, from two first policies."""
    judge = Judge(ROW, options.tasks)
    words = {"iterations": options.iterations, "placements": 40, "episodes": 20}
    yield f"first policy  seed  measured rewards, longer than estimated   ({words['iterations'] * 40} placements each)"
    for first, greed in (("even chance", 1e-9), ("nearly greedy", 60.0)):
        for seed in range(options.seeds):
            steps = [
                judge.rollouts(
                    options.planner,
                    trained(
                        options,
                        f"{reward}-{greed}-{seed}",
                        ROW,
                        reward=reward,
                        greed=greed,
                        seed=seed,
                        **words,
                    ),
                )
                for reward in ("measured", "estimated")
            ]
            whole = np.isfinite(steps[0]) & np.isfinite(steps[1])
            ratio = np.where(whole, steps[0] / steps[1] - 1, np.nan)
            yield f"{first:<13} {seed:>5}  {interval(np.nanmean(ratio, axis=1))}"


def transfer(options: argparse.Namespace) -> Iterator[str]:
    """The policy trained on 4x50 against one of the row's own size, as planners, on unseen tables and on others."""
    yield f"row      unseen  tasks  the policy of {ROW} takes longer than the row's own"
    words = {"iterations": options.iterations} if options.iterations else {}
    base = trained(options, f"own-{ROW}", ROW, **words)
    for row in options.rows.split(","):
        own = trained(options, f"own-{row}", row, **words)
        for share in options.unseen.split(","):
            judge = Judge(row, options.tasks, UNSEEN[share])
            ratio = judge.planner(f"{options.planner}:{base}") / judge.planner(f"{options.planner}:{own}") - 1
            yield f"{row:<8} {share:>5}%  {len(ratio):>5}  {interval(ratio)}"


def updates(options: argparse.Namespace) -> Iterator[str]:
    """What REINFORCE adds to the first policy, which is greedy on what the cost network predicts."""
    judge = Judge(ROW, options.tasks)
    yield "seed  roll-outs of the first policy, longer than of the trained one"
    for seed in range(options.seeds):
        words = {"seed": seed, **({"iterations": options.iterations} if options.iterations else {})}
        name = f"own-{ROW}" if seed == 0 else f"seed-{seed}"
        still = {"policy_updates": 0} if options.planner == "dreamshard" else {"policy_rate": 0.0}
        first = judge.rollouts(options.planner, trained(options, f"first-{seed}", ROW, **still, **words))
        last = judge.rollouts(options.planner, trained(options, name, ROW, **words))
        yield f"{seed:>4}  {interval(np.nanmean(first / last - 1, axis=1))}"


def seeds(options: argparse.Namespace) -> Iterator[str]:
    """The shipped recipe from other seeds, against cost_greedy and the best classic greedy of the row."""
    judge = Judge(ROW, options.tasks)
    greedy = judge.planner("cost_greedy")
    classic = {name: judge.planner(f"{name}_greedy") for name in ("size", "dim", "lookup", "size_lookup")}
    best = min(classic, key=lambda name: float(classic[name].mean()))
    yield f"seed  than cost_greedy            than {best}_greedy"
    for seed in range(options.seeds):
        words = {"iterations": options.iterations} if options.iterations else {}
        steps = judge.planner(f"{options.planner}:{trained(options, f'seed-{seed}', ROW, seed=seed, **words)}")
        yield f"{seed:>4}  {interval(steps / greedy - 1):<26}  {interval(steps / classic[best] - 1)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["rewards", "transfer", "updates", "seeds"])
    parser.add_argument("--planner", choices=list(KINDS), default="dreamshard")
    parser.add_argument("--unseen", default="100")
    parser.add_argument("--rows", default="2x20,2x200,8x50,8x200")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=50)
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--folder", type=Path, default=Path("measurements/policies"))
    options = parser.parse_args()
    if options.what == "rewards" and options.iterations is None:
        options.iterations = 8
    warnings.simplefilter("ignore")
    for line in {"rewards": rewards, "transfer": transfer, "updates": updates, "seeds": seeds}[options.what](options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
