"""One least gain, and its words."""

import pytest

from recsmith.analyses.paying import LEAST_GAIN, gain_of, pays, said_of


@pytest.mark.parametrize(
    ("after", "enough", "said"),
    [
        (0.98, True, "saves 2.0% of a step"),
        (0.5, True, "saves 50.0% of a step"),
        (0.981, False, "saves 1.9% of a step, less than the 2% from which on a change pays"),
        (1.0004, False, "saves 0.0% of a step, less than the 2% from which on a change pays"),
        (1.01, False, "takes 1.0% more of a step"),
    ],
)
def test_a_change_pays_from_the_least_gain_on(after: float, enough: bool, said: str) -> None:
    gain = gain_of(1.0, after)
    assert pays(round(gain, 9)) == enough == (round(gain, 9) >= LEAST_GAIN)
    assert said_of(round(gain, 9), "a step") == said
    assert gain_of(0.0, after) == 0.0
