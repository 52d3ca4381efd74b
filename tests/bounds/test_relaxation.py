"""What tables select alone, and at which price on memory their selection fits."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.bounds import SOME, TINY
from support.cases import Case, medium_case, seeded

from recsmith.bounds.relaxation import DEAREST, Relaxation, fitting_price
from recsmith.bounds.selection import SelectionLimits
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
