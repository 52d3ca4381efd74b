"""Whether the policy that ships serves other columns and other batches: beside one that was trained on them.

    python benchmarks/learned_variants.py                    # dims and batch: minutes

dims: every table has a quarter of its columns, and 4 at least. batch: a quarter of the samples. Tasks are those of the
row 4x50 otherwise, on tables that no policy saw; kernels by the simulated H100, which is a formula, collectives by
`analytic`. Policies are of planner dreamshard.
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from learned_policies import BATCH, DEVICE, HARDWARE, MODEL, ROW, SEED, interval

from recsmith.costs import cost_model
from recsmith.learning.policies import TRAINING_SEED
from recsmith.learning.policies.dreamshard import DreamShardRecipe, DreamShardTraining
from recsmith.learning.policies.measured import PlacementMeter, evaluator_of, training_tasks
from recsmith.learning.policies.tasks import TESTING, TRAINING, PlacementTask, draw_placement_tasks, parse_size
from recsmith.planners.dreamshard import DreamShard, DreamShardNetwork
from recsmith.planners.placing.policy_network import PlacingNetwork
from recsmith.planners.placing.policy_planner import plan_by_policy
from recsmith.planners.protocol import Search
from recsmith.workloads import Workload

TRAINING_TASKS = 50


def dims(work: Workload) -> Workload:
    """A workload with a quarter of the columns."""
    return replace(work, tables=tuple(replace(t, embedding_dim=max(4, t.embedding_dim // 4)) for t in work.tables))


def batch(work: Workload) -> Workload:
    """A workload with a quarter of the samples."""
    return replace(work, batch_size=work.batch_size // 4)


VARIANTS = {"dims": dims, "batch": batch}


def tasks_of(variant: str, number: int, seed: int, half: str) -> list[PlacementTask]:
    """Tasks of the row with a change."""
    drawn = draw_placement_tasks(parse_size(ROW), number, seed, DEVICE, BATCH, half).tasks
    return [replace(each, workload=VARIANTS[variant](each.workload)) for each in drawn]


def trained_on(variant: str, recipe: DreamShardRecipe) -> DreamShardNetwork:
    """A policy trained as the one that ships, on tasks with a change."""
    tasks = tasks_of(variant, TRAINING_TASKS, TRAINING_SEED, TRAINING)
    training = DreamShardTraining(recipe, training_tasks(tasks), PlacementMeter(HARDWARE, tasks))
    training.run(lambda _: None)
    return training.networks.frozen()


def steps(network: PlacingNetwork, tasks: Sequence[PlacementTask]) -> np.ndarray:
    """Seconds of each task's step by planner dreamshard with a policy (T,)."""
    meter, found = PlacementMeter(HARDWARE, tasks), list[float]()
    for priced in map(evaluator_of, tasks):
        search = Search(cost_model(MODEL).compile(priced.problem))
        plan = plan_by_policy(search, network, "dreamshard")
        found.append(meter.measure(priced, plan.footprint).step_s)
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=DreamShardRecipe().iterations)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    shipped, _ = DreamShard.kind.load(DreamShard.kind.find("simulated-h100"))
    print(f"{ROW} with  tasks  the policy that ships takes longer than one trained on such tasks")
    for variant in options.variants:
        tasks = tasks_of(variant, options.tasks, SEED, TESTING)
        own = trained_on(variant, DreamShardRecipe(iterations=options.iterations))
        print(f"{variant:<9} {len(tasks):>5}  {interval(steps(shipped, tasks) / steps(own, tasks) - 1)}", flush=True)


if __name__ == "__main__":
    main()
