"""Compiled placement finds the targets of the Python loop, and leaves the devices in the same state."""

from functools import cached_property
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import Case, cluster, drawn, large_case, medium_case, table, under, workload

from recsmith import _compiled
from recsmith._compiled import call_compiled
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model
from recsmith.errors import UsageError
from recsmith.planners.search import compiled_placement, placement
from recsmith.planners.search.compiled_placement import place_compiled
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.placement import place_longest_first
from recsmith.workloads.sample import sample_workload

pytest.importorskip("recsmith.planners.search._placing", reason="built without a C compiler")


def both(case: Case, seed: int, memory_weight: float) -> tuple[tuple[DeviceState, Assignment], ...]:
    """The same random options, placed in Python and by the compiled code."""
    problem, random, made = case.problem, np.random.default_rng(seed), list[tuple[DeviceState, Assignment]]()
    choice = np.array([random.integers(a, b) for a, b in pairwise(problem.options.start.tolist())])
    for compiled in (False, True):
        devices, assignment = DeviceState(case.evaluator), Assignment.of(problem, choice)
        devices.memory_weight = memory_weight
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                patch.setattr(placement, "place_compiled", lambda *_: False)
            place_longest_first(devices, assignment, devices.seconds)
        made.append((devices, assignment))
    return tuple(made)


def check_alike(case: Case, seed: int, memory_weight: float) -> None:
    (loop, slow), (devices, fast) = both(case, seed, memory_weight)
    assert fast.target.tolist() == slow.target.tolist()
    assert devices.free.tolist() == loop.free.tolist()
    assert devices.host_free.tolist() == loop.host_free.tolist()
    assert devices.in_group == loop.in_group
    assert devices.common.tolist() == loop.common.tolist()
    np.testing.assert_allclose(devices.loads, loop.loads, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(devices.group_loads, loop.group_loads, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(devices.sums, loop.sums, rtol=1e-12)


@given(
    case=drawn(medium_case, models=("analytic",)), seed=st.integers(0, 2**32 - 1), weight=st.sampled_from((0.0, 0.8))
)
def test_it_finds_what_the_loop_finds(case: Case, seed: int, weight: float) -> None:
    check_alike(case, seed, weight)


@given(case=drawn(lambda pick: under(pick, large_case(pick), ("analytic",))), seed=st.integers(0, 2**32 - 1))
def test_it_finds_what_the_loop_finds_on_many_ranks(case: Case, seed: int) -> None:
    check_alike(case, seed, 1.0)


class Learned(Case):
    """A question under a learned cost model."""

    @cached_property
    def evaluator(self) -> Evaluator:
        return cost_model("neural:simulated-h100").compile(self.problem)


@pytest.mark.filterwarnings("ignore:cost model neural")
def test_it_finds_what_the_loop_finds_under_a_learned_model() -> None:
    case = Learned(sample_workload(60, seed=5), load_cluster("h100:4x2"))
    (loop, slow), (devices, fast) = both(case, 1, 0.8)
    assert (fast.target == slow.target).mean() > 0.9  # the model itself has single precision
    np.testing.assert_allclose(devices.total, loop.total, rtol=1e-3)
    again = DeviceState(case.evaluator)
    for piece, target in zip(fast.piece.tolist(), fast.target.tolist(), strict=True):
        again.place(piece, target)
    np.testing.assert_allclose(devices.loads, again.loads, rtol=1e-5)
    assert devices.free.tolist() == again.free.tolist()


def test_it_leaves_costs_that_just_add_up_and_other_scores_to_the_loop() -> None:
    case = Case(workload(table("a", 100, 16)), cluster())
    for devices in (DeviceState(case.evaluator), DeviceState(case.evaluator, np.ones(len(case.problem.pieces.mode)))):
        assignment = Assignment.of(case.problem, case.problem.options.start[:-1])
        assert not place_compiled(devices, assignment, np.arange(len(assignment.piece)), 1.0)


def test_wrong_lengths_are_refused() -> None:
    native = _compiled.compiled(compiled_placement.CODE)
    with pytest.raises(UsageError, match=r"another version of recsmith \(30 arrays are needed\); build it again"):
        call_compiled(native.place, ())
    with pytest.raises(UsageError, match="wrong length"):
        call_compiled(native.place, tuple(np.zeros(3) for _ in range(30)))
    with pytest.raises(UsageError, match="array 1: 8 bytes an item"):
        call_compiled(native.place, tuple(np.zeros(3, dtype=np.float32 if i == 1 else None) for i in range(30)))
