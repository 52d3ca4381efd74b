"""What tables select alone, and at which price on memory their selection fits."""

import gc
import math
import weakref

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.bounds import SOME, TINY
from support.cases import BOTH, Case, medium_case, seeded

from recsmith.bounds import lower_bound
from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import DEAREST, Relaxation, fitting_price, shared_relaxation
from recsmith.costs import COST_MODELS
from recsmith.problems import NO_PIECE, option_pieces


@given(TINY, st.sampled_from([0.0, 0.5, 1.0, 3.0, math.inf]), st.sampled_from([0.0, 1e-15, 1e-12, 1e-6, DEAREST]))
def test_every_table_selects_its_cheapest_open_option(case: Case, share: float, price_: float) -> None:
    relaxation = Relaxation(case.evaluator)
    limit = share * float(relaxation.piece_seconds.mean()) if share < math.inf else math.inf
    choice = relaxation.choose(SelectionLimits(limit=limit, price=price_))
    for t in range(len(case.problem.tables)):
        values = dict(_open_options(relaxation, t, limit, price_))
        if not values:
            assert (choice.option[t], choice.seconds[t], choice.bytes[t]) == (NO_PIECE, math.inf, 0)
        else:
            assert values[choice.option[t]] == min(values.values())
            assert choice.option[t] == min(o for o, value in values.items() if value == min(values.values()))
            assert choice.seconds[t] + price_ * choice.bytes[t] == pytest.approx(min(values.values()))


def _open_options(relaxation: Relaxation, t: int, limit: float, price_: float):
    """(option, seconds + price * bytes over all ranks) of the options below the limit that fit an empty cluster."""
    problem = relaxation.problem
    for option in range(int(problem.options.start[t]), int(problem.options.start[t + 1])):
        pieces = option_pieces(problem, option)
        coverage = int(problem.modes.coverage[problem.options.mode[option]])
        if all(relaxation.piece_fits[piece] and relaxation.piece_alone[piece] <= limit for piece in pieces):
            seconds = coverage * sum(float(relaxation.piece_seconds[piece]) for piece in pieces)
            size = sum((coverage - 1) * problem.pieces.head.device[p] + problem.pieces.tail.device[p] for p in pieces)
            yield option, relaxation.option_seconds[option] + price_ * relaxation.option_bytes[option]
            assert relaxation.option_seconds[option] == pytest.approx(seconds)
            assert relaxation.option_bytes[option] == size


@given(TINY)
def test_a_fitting_price_makes_selected_options_fit(case: Case) -> None:
    relaxation, room = Relaxation(case.evaluator), float(sum(case.cluster.capacities))
    lightest = relaxation.choose(SelectionLimits(price=DEAREST))
    assume(np.isfinite(lightest.seconds).all() and lightest.bytes.sum() <= room)
    price_ = fitting_price(lambda p: relaxation.choose(SelectionLimits(price=p)), room)
    assert relaxation.choose(SelectionLimits(price=price_)).bytes.sum() <= room
    assert (price_ == 0) == (relaxation.choose().bytes.sum() <= room)


def test_a_fitting_price_is_nearly_the_least() -> None:
    asked = 0
    for seed in range(200):
        case = medium_case(seeded(seed), tightness=(0.95, 1.0, 1.05), **SOME)
        relaxation, room = Relaxation(case.evaluator), float(sum(case.cluster.capacities))
        price_ = fitting_price(lambda p, among=relaxation: among.choose(SelectionLimits(price=p)), room)
        if 0 < price_ < DEAREST:
            asked += 1
            cheaper = relaxation.choose(SelectionLimits(price=price_ * 0.99))
            assert cheaper.bytes.sum() > room >= relaxation.choose(SelectionLimits(price=price_)).bytes.sum()
    assert asked > 5


def test_the_limits_ask_each_piece_of_an_option_by_itself() -> None:
    """The largest piece of an option decides whether it is open under a limit, not all its pieces together."""
    mixed = 0
    for seed in range(12):
        case = medium_case(seeded(seed))
        relaxation, options = Relaxation(case.evaluator), case.problem.options
        for option in range(len(options.mode)):
            pieces = option_pieces(case.problem, option)
            assert relaxation.option_largest[option] == relaxation.piece_alone[pieces].max()
            mixed += len(set(pieces)) > 1
    assert mixed > 10


def cases() -> list[Case]:
    return [medium_case(seeded(seed), models=BOTH) for seed in range(6)]


def test_they_say_what_fresh_ones_say() -> None:
    for case in cases():
        linear = lower_bound(case.evaluator).linear
        for bound in (None, linear):
            for barred in (False, True):
                shared = vars(shared_relaxation(case.evaluator, bound, barred=barred))
                fresh = vars(Relaxation(case.evaluator, linear=bound, barred=barred))
                assert shared.keys() == fresh.keys()
                for name, value in fresh.items():
                    if isinstance(value, np.ndarray):
                        assert value.tobytes() == shared[name].tobytes()


def test_one_for_each_evaluator_and_linear_bound() -> None:
    case = cases()[0]
    linear = lower_bound(case.evaluator).linear
    mean, tightest = shared_relaxation(case.evaluator), shared_relaxation(case.evaluator, linear)
    assert mean is shared_relaxation(case.evaluator)
    assert tightest is shared_relaxation(case.evaluator, linear)
    assert mean is not tightest
    other = COST_MODELS[case.cost_model].compile(case.problem)
    assert shared_relaxation(other) is not mean


def test_they_go_with_the_evaluator() -> None:
    case = cases()[0]
    evaluator = COST_MODELS[case.cost_model].compile(case.problem)
    gone = weakref.ref(shared_relaxation(evaluator))
    del evaluator
    gc.collect()
    assert gone() is None
