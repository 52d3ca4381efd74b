"""Compiled placement finds the targets of the Python loop, and leaves the devices in the same state."""

from functools import cached_property
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import Case, drawn, large_case, medium_case, under

from recsmith import _compiled
from recsmith._compiled import call_compiled
from recsmith._types import Floats
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model
from recsmith.errors import UsageError
from recsmith.planners.search import compiled_placement, placement
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.placement import fewest_pieces_options, place_and_repair, place_longest_first
from recsmith.sharding import Span
from recsmith.workloads.sample import sample_workload

pytest.importorskip("recsmith.planners.search._placing", reason="built without a C compiler")


Placed = tuple[tuple[DeviceState, Assignment], ...]


def both(case: Case, seed: int, memory_weight: float, scores: Floats | None = None) -> Placed:
    """The same random options, placed in Python and by the compiled code."""
    problem, random, made = case.problem, np.random.default_rng(seed), list[tuple[DeviceState, Assignment]]()
    choice = np.array([random.integers(a, b) for a, b in pairwise(problem.options.start.tolist())])
    for compiled in (False, True):
        devices, assignment = DeviceState(case.evaluator, scores), Assignment.of(problem, choice)
        devices.memory_weight = memory_weight
        with pytest.MonkeyPatch.context() as patch:
            if not compiled:
                patch.setattr(placement, "place_compiled", lambda *_: False)
            place_longest_first(devices, assignment, devices.seconds)
        made.append((devices, assignment))
    return tuple(made)


def check_alike(case: Case, seed: int, memory_weight: float) -> Placed:
    (loop, slow), (devices, fast) = both(case, seed, memory_weight)
    assert fast.target.tolist() == slow.target.tolist()
    assert devices.free.tolist() == loop.free.tolist()
    assert devices.host_free.tolist() == loop.host_free.tolist()
    assert devices.in_group == loop.in_group
    assert devices.common.tolist() == loop.common.tolist()
    np.testing.assert_allclose(devices.loads, loop.loads, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(devices.group_loads, loop.group_loads, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(devices.sums, loop.sums, rtol=1e-12)
    return (loop, slow), (devices, fast)


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


@given(
    case=drawn(medium_case, models=("torchrec",)), seed=st.integers(0, 2**32 - 1), weight=st.sampled_from((0.0, 0.8))
)
def test_it_finds_what_the_loop_finds_where_costs_add_up(case: Case, seed: int, weight: float) -> None:
    (loop, slow), (devices, fast) = check_alike(case, seed, weight)
    assert devices.loads.tolist() == loop.loads.tolist()  # to the last bit
    assert slow.complete == fast.complete


@given(case=drawn(medium_case, models=("torchrec",)), seed=st.integers(0, 2**32 - 1))
def test_other_scores_are_placed_as_by_the_loop(case: Case, seed: int) -> None:
    scores = np.random.default_rng(seed).integers(0, 4, size=len(case.problem.pieces.mode)).astype(float)
    (loop, slow), (devices, fast) = both(case, seed, 0.0, scores)
    assert fast.target.tolist() == slow.target.tolist()
    assert devices.loads.tolist() == loop.loads.tolist()


@pytest.mark.filterwarnings("ignore:cost model neural")
def test_a_learned_model_that_prices_few_ranks_of_a_vast_problem_fills_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Learned(sample_workload(600, seed=7100, batch_size=64), load_cluster("h100:8x8"))
    seconds = list[float]()
    for few in (0, 8):
        if few:
            monkeypatch.setattr(compiled_placement, "MOST_CELLS", 0)
            monkeypatch.setattr(compiled_placement, "FEW", few)
        devices, relaxation = DeviceState(case.evaluator), shared_relaxation(case.evaluator)
        draft = place_and_repair(devices, fewest_pieces_options(relaxation), devices.seconds)
        assert draft.complete
        seconds.append(devices.total)
    single = devices.span[draft.piece] == int(Span.RANK)
    assert len(np.unique(draft.target[single])) == len(devices.free)
    assert seconds[0] != seconds[1] == pytest.approx(seconds[0], rel=0.05)  # few were priced, and nearly the best ones
    again = DeviceState(case.evaluator)
    for piece, target in zip(draft.piece.tolist(), draft.target.tolist(), strict=True):
        again.place(piece, target)
    np.testing.assert_allclose(devices.loads, again.loads, rtol=1e-5)
    assert devices.free.tolist() == again.free.tolist()


def test_wrong_lengths_are_refused() -> None:
    native = _compiled.compiled(compiled_placement.CODE)
    with pytest.raises(UsageError, match=r"another version of recsmith \(29 arrays are needed\); build it again"):
        call_compiled(native.place, ())
    with pytest.raises(UsageError, match="wrong length"):
        call_compiled(native.place, tuple(np.zeros(3) for _ in range(29)))
    with pytest.raises(UsageError, match="array 1: 8 bytes an item"):
        call_compiled(native.place, tuple(np.zeros(3, dtype=np.float32 if i == 1 else None) for i in range(29)))
