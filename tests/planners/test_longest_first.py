"""Planner longest_first: the pieces of trained planners, placed by the cost model alone."""

from support.cases import cluster, table, workload

from recsmith.costs import cost_model, step_seconds
from recsmith.planners.greedy import place_by_score
from recsmith.planners.longest_first import LongestFirst
from recsmith.problems import Problem, Space, build_problem, fits

BOTH = Space(types=("table_wise", "column_wise"), kernels=("fused",))


def heavy(space: Space) -> Problem:
    """One table that costs more than all others together, on four devices."""
    tables = (table("heavy", 10_000, 1024, 500.0), *(table(f"t{i}", 1000, 32, 2.0) for i in range(8)))
    return build_problem(workload(*tables, batch_size=4096, optimizer="sgd"), cluster(local=4), space)


def test_what_dominates_is_split_where_it_may_be() -> None:
    problem = heavy(BOTH)
    evaluator = cost_model().compile(problem)
    found, whole = LongestFirst().plan(problem, evaluator), place_by_score(evaluator)
    assert whole is not None
    assert fits(problem, found.footprint)
    assert found.total_s == step_seconds(evaluator, found.footprint)
    assert found.total_s < 0.6 * step_seconds(evaluator, whole)


def test_without_splits_it_is_cost_greedy() -> None:
    problem = heavy(Space(types=("table_wise",), kernels=("fused",)))
    evaluator = cost_model().compile(problem)
    found, whole = LongestFirst().plan(problem, evaluator), place_by_score(evaluator)
    assert whole is not None
    assert found.total_s == step_seconds(evaluator, whole)
