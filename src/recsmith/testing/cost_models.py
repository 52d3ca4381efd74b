"""The contract of cost models.

Legend: P pieces, k work terms, G fusion groups, F phases; the four parts are recsmith.plans.PARTS.
"""

from collections.abc import Iterator

import numpy as np

from recsmith._types import Floats
from recsmith.bounds import lower_bound
from recsmith.costs import CostModel, Evaluator, step_seconds
from recsmith.planners import place_by_score
from recsmith.planning import plan
from recsmith.planning.simulate import simulate
from recsmith.plans import PARTS, plan_from_raw, plan_to_raw
from recsmith.problems import Problem
from recsmith.testing.problems import sample_problems

ROUNDING = 1e-9  # relative difference allowed between two computations of one sum
SUMS = 32  # sums of several pieces' terms on which each rule is tested


class CostModelContract:
    """The contract of cost models. Subclass it as a test class and set `cost_model`; `problems` may be your own.

    Bounds and searches rely on it: terms are additive, `loads` and `compute` agree with `head`, planes are below it.
    """

    cost_model: CostModel
    problems: tuple[Problem, ...] = ()

    def _evaluators(self) -> Iterator[Evaluator]:
        for problem in self.problems or sample_problems():
            yield self.cost_model.compile(problem)

    def test_it_has_a_name_and_covers_the_problem(self) -> None:
        """`name` is text; an evaluator knows its problem, and has a group for every mode."""
        assert isinstance(self.cost_model.name, str)
        for each in self._evaluators():
            modes = len(each.problem.modes.table)
            assert each.group.shape == (modes,), "group is one number for each mode (M,)"
            assert each.group.min() >= 0, "groups are numbered from 0"
            assert each.group.max() < each.groups, "groups are numbered to groups - 1"
            assert each.shared.shape == (each.groups, len(PARTS)), "shared is (G, 4)"
            assert (each.shared >= 0).all(), "shared seconds are 0 or more"

    def test_terms_are_of_each_piece_alone(self) -> None:
        """Terms (P, k) are finite, 0 or more, and do not depend on which other pieces are priced with them."""
        for each in self._evaluators():
            pieces = each.problem.pieces
            terms = each.terms(pieces.mode, pieces.width)
            assert terms.ndim == 2, "terms are (P, k)"
            assert np.isfinite(terms).all(), "terms are finite"
            assert (terms >= 0).all(), "terms are 0 or more"
            some = slice(None, None, 3)
            np.testing.assert_allclose(each.terms(pieces.mode[some], pieces.width[some]), terms[some], ROUNDING)

    def test_parts_are_seconds(self) -> None:
        """`head` returns four parts (..., 4), finite, 0 or more, and 0 for no pieces."""
        for each in self._evaluators():
            sums = _sums(each)
            parts = each.head(sums)
            assert parts.shape == (*sums.shape[:-1], len(PARTS)), "head is (..., 4)"
            assert np.isfinite(parts).all(), "parts are finite"
            assert (parts >= 0).all(), "parts are 0 or more"
            assert not each.head(np.zeros((1, sums.shape[1]))).any(), "no pieces cost nothing"

    def test_loads_and_compute_say_what_head_says(self) -> None:
        """`loads` and `compute`, the fast sums of searches, equal those of `head`, up to rounding."""
        for each in self._evaluators():
            sums = _sums(each)
            parts = each.head(sums)
            np.testing.assert_allclose(each.loads(sums), each.step_rule.phase_seconds(parts), 1e-6)
            np.testing.assert_allclose(each.compute(sums), parts[..., 0] + parts[..., 1], 1e-6)

    def test_an_additive_model_adds_up(self) -> None:
        """If `additive` is set, `head` is linear and nothing is shared."""
        for each in self._evaluators():
            if each.additive:
                sums = _sums(each)
                np.testing.assert_allclose(each.head(sums[:1] + sums), each.head(sums[:1]) + each.head(sums), 1e-6)
                assert not each.shared.any(), "an additive model shares nothing"

    def test_planes_lie_below(self) -> None:
        """No plane is above the cost of a group with at least one piece; otherwise bounds would be wrong."""
        for each in self._evaluators():
            sums = _sums(each)
            loads = each.loads(sums)
            for plane in each.planes:
                below = plane.slopes @ sums.T
                below[0] += plane.opening
                assert (below <= loads * (1 + ROUNDING) + 1e-15).all(), "a plane lies above the loads"

    def test_no_plan_costs_less_than_the_bound(self) -> None:
        """Plans in random order never cost less than the bound that is proved from the planes."""
        random = np.random.default_rng(0)
        for each in self._evaluators():
            bound = lower_bound(each).bound.value_s
            for _ in range(3 if bound is not None else 0):
                placed = place_by_score(each, random.random(len(each.problem.pieces.mode)))
                assert placed is None or step_seconds(each, placed) >= (bound or 0.0) * (1 - ROUNDING)

    def test_a_plan_is_priced_alike_again(self) -> None:
        """A plan that is written, read and priced again costs the same."""
        problem = next(self._evaluators()).problem
        made = plan(problem.workload, problem.cluster, cost_model=self.cost_model, space=problem.space, iterations=1)
        again = simulate(plan_from_raw(plan_to_raw(made.plan), "plan"), self.cost_model)
        assert (again.cost, again.cost_model) == (made.plan.cost, self.cost_model.name)


def _sums(evaluator: Evaluator) -> Floats:
    """Summed terms (N, k) of one piece, of a few, and of many."""
    random, pieces = np.random.default_rng(1), evaluator.problem.pieces
    terms = evaluator.terms(pieces.mode, pieces.width)
    chosen = [random.integers(0, len(terms), 1 + i % 8) for i in range(SUMS)]
    return np.stack([terms[some].sum(axis=0) for some in chosen])
