"""What an alarm looks like: the kind, what was usual, and since when."""

import numpy as np
import pytest

from recsmith.streaming.alarm_shapes import shape_of

PLACE = np.arange(400)
NOISE = np.random.default_rng(0).normal(10, 1, 400)


@pytest.mark.parametrize(
    ("values", "at", "kind", "since", "now"),
    [
        (NOISE + 9.0 * (PLACE == 300), 300, "spike", 300, None),
        (NOISE - 9.0 * ((PLACE >= 300) & (PLACE < 303)), 300, "spike", 300, None),
        (NOISE + 5.0 * (PLACE >= 300), 300, "level", 300, 15.0),
        (NOISE + 1.5 * (PLACE >= 250), 350, "level", 250, 11.5),  # told late
        (np.where(PLACE < 300, NOISE, NOISE[300]), 308, "frozen", 300, 100),
        (np.where(PLACE < 300, NOISE, 10 + 5 * (NOISE - 10)), 303, "spread", 303, 4.0),
        (NOISE + 9.0 * (PLACE >= 398), 398, "late", 398, None),
        (NOISE, 300, "together", 300, None),
        (np.where(PLACE < 300, 7.0, 8.0), 300, "level", 300, 8.0),  # without noise
    ],
)
def test_what_is_seen(values: np.ndarray, at: int, kind: str, since: int, now: float | None) -> None:
    shape = shape_of(values.tolist(), at)
    assert shape.kind == kind
    assert abs(shape.since - since) <= 3
    assert shape.now == pytest.approx(values[at] if now is None else now, rel=0.25)
    assert shape.usual == pytest.approx(10 if values[0] != 7 else 7, abs=0.5)


def test_it_is_told_at_either_end_of_a_series() -> None:
    for at in (0, 1, 399):
        assert shape_of(NOISE.tolist(), at).kind in ("late", "spike", "together", "spread")
    assert shape_of([5.0], 0).kind == "together"


@pytest.mark.parametrize(
    ("change", "kind", "usual", "now"),
    [(60.0 * (PLACE == 300), "spike", 10, 70), (-30.0 * (PLACE >= 300), "level", 10, -20)],
)
def test_under_a_season_it_is_told_of_the_values_less_that(
    change: np.ndarray, kind: str, usual: float, now: float
) -> None:
    season = (30 * np.sin(2 * np.pi * np.arange(288) / 288)).tolist()
    values = NOISE + np.resize(season, 400) + change
    shape = shape_of(values.tolist(), 300, season)
    assert (shape.kind, shape.since, shape.season) == (kind, 300, season[12])
    assert (shape.usual, shape.now) == (pytest.approx(usual, abs=0.5), pytest.approx(now, abs=2.5))
    still = np.where((PLACE > 200) & (PLACE < 301), values[200], values)
    assert shape_of(still.tolist(), 300, season).kind == "frozen"  # the same value, whatever the season
