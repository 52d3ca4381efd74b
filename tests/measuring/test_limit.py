"""When a run ends: a limit leaves room for something, and the first of its two parts ends the run."""

from typing import Any

import pytest

from recsmith.errors import UsageError
from recsmith.measuring.limit import Limit


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ({}, "nothing says when to stop; give a --budget such as 20m"),
        ({"budget_s": 0.0}, "the budget is 0 s, in which nothing can be measured"),
        ({"samples": 0}, "0 samples are none"),
    ],
)
def test_a_limit_leaves_room_for_something(words: dict[str, Any], rule: str):
    with pytest.raises(UsageError, match=rule):
        Limit(**words)


@pytest.mark.parametrize(
    ("limit", "samples", "elapsed_s", "reached"),
    [
        (Limit(samples=3), 2, 1e9, False),
        (Limit(samples=3), 3, 0.0, True),
        (Limit(budget_s=2.0), 10**9, 1.9, False),
        (Limit(budget_s=2.0), 0, 2.0, True),
        (Limit(budget_s=2.0, samples=3), 3, 0.0, True),
        (Limit(budget_s=2.0, samples=3), 0, 2.0, True),
    ],
)
def test_whichever_comes_first_ends_a_run(limit: Limit, samples: int, elapsed_s: float, reached: bool):
    assert limit.reached(samples, elapsed_s) == reached
