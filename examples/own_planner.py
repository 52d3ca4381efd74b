"""A planner and a cost model of one's own, and what the contract says of them. Run: python examples/own_planner.py."""

import numpy as np

import recsmith
from recsmith.costs import AdditiveEvaluator
from recsmith.planners import Search, place_by_score


class Restarts:
    """Places the tables in a random order, again and again, and keeps the best."""

    name, orders = "restarts", 30

    def plan(self, problem, evaluator, *, seed=0, budget=None, start=None, on_improve=None):  # noqa: D102, ANN
        search, random = Search(evaluator, budget, start, on_improve), np.random.default_rng(seed)
        while not search.stop and search.iterations < self.orders:
            search.try_(place_by_score(evaluator, random.random(len(problem.pieces.mode))))
        return search.found(self.name)


class ReadBytes:
    """A step takes as long as device memory needs to read the rows that are looked up, and twice as long back."""

    name = "read_bytes"

    def compile(self, problem):  # noqa: D102, ANN
        def seconds(modes, widths):  # (N,), (N,) -> (N, 4)
            read = problem.modes.ids[modes] * widths * 4 / problem.cluster.device.hbm_bandwidth
            return np.stack([read, 2 * read, 0 * read, 0 * read], axis=1)

        return AdditiveEvaluator(problem, seconds)


def main() -> None:
    """Plan with both, and price the plan by RecSmith's own cost model."""
    plan = recsmith.plan("criteo-kaggle", "h100:4", planner=Restarts(), cost_model=ReadBytes()).plan
    print(f"{plan.planner} under {plan.cost_model}: {plan.cost.total_s * 1e6:.1f} µs a step")
    print(f"under analytic: {recsmith.simulate(plan, 'analytic').cost.total_s * 1e6:.1f} µs a step")


if __name__ == "__main__":
    main()
