"""Linear pieces are taken only where their largest is the cost, by toy models of two terms and by the real ones."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.cases import BOTH, seeded, small_case

from recsmith.costs import Plane
from recsmith.planners.solver.layouts import all_shares
from recsmith.planners.solver.linear_pieces import LinearPieces, linear_pieces_of

SLOPES = ((1.0, 0.0), (0.0, 2.0))
TERMS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [3.0, 1.0]])


def toy(slopes: Any, opening: float = 0.0, bend: float = 0.0) -> Any:
    """A cost model of one phase: the largest of some lines, its opening, and a share of the square of all terms."""
    planes = tuple(Plane(slopes=np.array([line]), opening=opening) for line in slopes)

    def loads(sums: Any) -> Any:
        longest = (sums @ np.array(slopes).T).max(axis=-1)
        return (longest + opening + bend * sums.sum(axis=-1) ** 2)[None]

    return SimpleNamespace(planes=planes, loads=loads)


def test_the_largest_piece_counts_and_the_opening_comes_on_top() -> None:
    found = linear_pieces_of(toy(SLOPES, 5.0), TERMS)
    assert found is not None
    assert found.loads(TERMS).tolist() == [[6.0, 7.0, 7.0, 8.0]]


def test_equal_pieces_count_once() -> None:
    found = linear_pieces_of(toy((*SLOPES, *SLOPES)), TERMS)
    assert found is not None
    assert [len(phase) for phase in found.slopes] == [2]


@pytest.mark.parametrize(
    "model",
    [SimpleNamespace(planes=()), toy(SLOPES, bend=1e-6), toy(((1.0, -0.1), (0.5, 0.5)))],
    ids=["no planes", "a curve", "a cost that falls"],
)
def test_other_models_are_refused(model: Any) -> None:
    assert linear_pieces_of(model, TERMS) is None


def test_sums_are_tried_too() -> None:
    """A model that is exact for each piece alone, and dearer for two together."""
    exact = toy(SLOPES)
    dearer: Any = SimpleNamespace(
        planes=exact.planes, loads=lambda sums: exact.loads(sums) * np.where(sums.sum(axis=-1) > 4.0, 1.1, 1.0)
    )
    assert linear_pieces_of(dearer, TERMS) is None


@pytest.mark.parametrize("model", BOTH)
def test_they_give_what_the_cost_model_does(model: str) -> None:
    rng = np.random.default_rng(0)
    for seed in range(4):
        evaluator = small_case(seeded(seed), models=(model,)).evaluator
        terms = all_shares(evaluator).terms
        found = linear_pieces_of(evaluator, terms)
        assert isinstance(found, LinearPieces)
        sums = terms[rng.integers(len(terms), size=(50, 3))].sum(axis=1)
        assert np.allclose(found.loads(sums), evaluator.loads(sums), rtol=1e-9)
