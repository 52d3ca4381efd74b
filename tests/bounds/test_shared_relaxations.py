"""Relaxations are built once for an evaluator, say what fresh ones say, and go when it goes."""

import gc
import weakref

import numpy as np
from support.cases import BOTH, Case, medium_case, seeded

from recsmith.bounds import lower_bound
from recsmith.bounds.relaxation import Relaxation
from recsmith.bounds.shared_relaxations import shared_relaxation
from recsmith.costs import COST_MODELS


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
