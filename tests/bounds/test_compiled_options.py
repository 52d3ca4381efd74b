"""Compiled code selects what array operations select, to the last bit."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import BOTH, seeded, small_case

from recsmith.bounds import relaxation as module
from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import Relaxation

DRAWN = 24  # limits of a case


@pytest.mark.skipif(not module.can_choose(), reason="nothing was compiled")
@given(seed=st.integers(0, 10**6))
def test_options_are_those_of_array_operations(seed: int) -> None:
    evaluator, draw = small_case(seeded(seed), models=(BOTH[seed % len(BOTH)],)).evaluator, np.random.default_rng(seed)
    whole = Relaxation(evaluator)
    kept = [
        whole,
        whole.within(draw.random(evaluator.groups) < 0.7),
        whole.reopened(draw.random(whole.option_seconds.shape) < 0.3),
    ]
    for number in range(DRAWN):
        limits = SelectionLimits(
            limit=float(draw.choice([np.inf, *whole.option_largest])), price=float(draw.choice([0, 1e-12, 1e-9])),
            groups=None if number % 4 else draw.random(evaluator.groups) < 0.8,
            local=float(draw.choice([np.inf, *whole.option_largest])), world_penalty=float(draw.choice([0, 0.1])),
            weight=float(draw.choice([np.inf, *whole.option_heaviest])),
        )  # fmt: skip
        compiled = kept[number % 3].choose(limits)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "can_choose", lambda: False)
            plain = kept[number % 3].choose(limits)
        for each in fields(plain):
            here, there = getattr(compiled, each.name), getattr(plain, each.name)
            assert here.dtype == there.dtype
            assert here.tobytes() == there.tobytes()
    start = evaluator.problem.options.start[:-1]
    assert ((whole.choose().option >= 0) == np.logical_or.reduceat(whole.option_fits, start)).all()
