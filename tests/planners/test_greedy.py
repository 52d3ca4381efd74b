"""The greedy planners: what each balances."""

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

from recsmith.planners.greedy import GREEDIES
from recsmith.problems import Space

SCORES = {
    "dim_greedy": lambda t: t.embedding_dim,
    "size_greedy": lambda t: t.embedding_dim * t.num_embeddings,
    "lookup_greedy": lambda t: t.embedding_dim * t.features[0].pooling_factor,
    "size_lookup_greedy": lambda t: t.embedding_dim * t.features[0].pooling_factor * np.log10(t.num_embeddings),
}


def mixed() -> Case:
    tables = [table(f"t{i}", 10 ** (2 + i % 4), 4 * (1 + i % 5), 1.0 + i % 7) for i in range(16)]
    return Case(workload(*tables, batch_size=64), cluster(4), Space(types=("table_wise",)))


@pytest.mark.parametrize("name", SCORES)
def test_a_score_is_what_is_balanced(name: str) -> None:
    """No device is above the mean by more than the largest table: a law of longest-first."""
    case = mixed()
    planner = next(each for each in GREEDIES if each.name == name)
    found = planner.plan(case.problem, case.evaluator).footprint
    scores = np.array([SCORES[name](case.problem.tables[t]) for t in case.problem.modes.table[found.mode]])
    loads = np.bincount(found.target, scores, 4)
    others = {each.name: each.plan(case.problem, case.evaluator).footprint.target.tolist() for each in GREEDIES}
    assert loads.max() <= loads.mean() + scores.max() * 3 / 4
    assert sum(other == found.target.tolist() for other in others.values()) == 1


def test_only_random_follows_the_seed() -> None:
    case = mixed()
    for planner in GREEDIES:
        one, other = (planner.plan(case.problem, case.evaluator, seed=seed).footprint.target for seed in (0, 1))
        assert np.array_equal(one, other) == (planner.name != "random")
