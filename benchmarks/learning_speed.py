"""How fast learned cost models are: the figures of docs/learning.md. CPU seconds of one core, the best of five.

    OPENBLAS_NUM_THREADS=1 taskset -c 1 python benchmarks/learning_speed.py

heads: groups on ranks that are priced from their summed terms in a second, 500,000 at once. pieces: whose terms the
network of `neural:cpu` gives in a second. neuroshard: its search by `neural:cpu`, and the bound of its plan.
"""

import time
import warnings
from collections.abc import Callable

import numpy as np

from recsmith._types import Floats
from recsmith.bounds import lower_bound
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model
from recsmith.costs.neural.heads import ConvexHead, FreeHead, Head
from recsmith.planners.neuroshard import NeuroShard
from recsmith.problems import Problem, build_problem
from recsmith.workloads.sample import sample_workload

TIMES = 5
HEADS, TERMS, HINGES, HIDDEN = 500_000, 6, 3, 16  # as training makes them
TABLES, RANKS, BATCH, LARGEST = 100, 4, 4096, 2**30


def least_s(work: Callable[[], object]) -> float:
    """CPU seconds, the best of five."""
    took = list[float]()
    for _ in range(TIMES):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return min(took)


def heads() -> dict[str, Head]:
    """Heads of random weights: their speed does not depend on them."""
    draw = np.random.default_rng(0)

    def some(*shape: int) -> Floats:
        return draw.uniform(0, 1, shape)

    def convex(hinges: int) -> Head:
        return ConvexHead(some(2), some(2, TERMS), some(2, hinges, TERMS), some(2, hinges))

    free = FreeHead(some(2), some(2, TERMS), some(HIDDEN, TERMS), some(HIDDEN), some(2, HIDDEN), some(2))
    return {"linear": convex(0), "convex": convex(HINGES), "free": free}


def sampled() -> tuple[Problem, Callable[[], Evaluator]]:
    """A problem of sampled tables on CPU ranks, and how it is compiled anew, without a bound."""
    work = sample_workload(TABLES, 0, max_bytes=LARGEST, batch_size=BATCH)
    problem = build_problem(work, load_cluster(f"cpu:{RANKS}"))
    model = cost_model("neural:cpu")
    return problem, lambda: model.compile(problem)


def main() -> None:
    warnings.simplefilter("ignore")
    sums = np.random.default_rng(1).uniform(0, 1, (HEADS, TERMS))
    for name, head in heads().items():
        print(
            f"heads, {name}: {HEADS / least_s(lambda head=head: head.total(sums)) / 1e6:.1f} million a second",
            flush=True,
        )
    problem, fresh = sampled()
    modes, widths = problem.pieces.mode, problem.pieces.width
    evaluator = fresh()
    took = least_s(lambda: evaluator.terms(modes, widths))
    print(f"pieces: {len(modes):,} in {took * 1e3:.0f} ms, {len(modes) / took / 1e6:.2f} million a second", flush=True)
    took = least_s(lambda: NeuroShard().plan(problem, fresh()))
    print(f"neuroshard, {TABLES} tables on {RANKS} ranks: {took:.2f} s", flush=True)
    print(f"its bound: {least_s(lambda: lower_bound(fresh())):.2f} s")


if __name__ == "__main__":
    main()
