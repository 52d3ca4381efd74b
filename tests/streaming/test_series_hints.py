"""What is said beside the alarms of a series, and that nothing is said of noise."""

import re

import numpy as np
import pytest

from recsmith.streaming import Alarm
from recsmith.streaming.csv_series import NamedSeries
from recsmith.streaming.series_hints import hints_of

CHANCE = np.random.default_rng(0)
PLACE = np.arange(2000)
NOISE = CHANCE.normal(size=2000)
SEASON = 30 * np.sin(2 * np.pi * PLACE / 288) + NOISE
DAY = 80 * np.maximum(0, np.sin(2 * np.pi * (PLACE % 24 - 6) / 24))
WEEK = DAY * np.where(PLACE // 24 % 7 < 5, 1, 0.4) + 6 * NOISE
RARE = (CHANCE.random(2000) < 0.01).astype(float)


def told(values: np.ndarray, alarms: int = 0, name: str = "x") -> str:
    series = NamedSeries(name=name, values=tuple(values.tolist()), labels=tuple(map(str, range(len(values)))))
    return " ".join(hints_of(series, [Alarm(at=200 + 50 * at, value=0.0, score=9.0) for at in range(alarms)]))


@pytest.mark.parametrize(
    ("values", "alarms", "name", "wanted"),
    [
        (SEASON, 0, "x", "repeats every 288 values: .* --detector seasonal --set period=288 judges"),
        (SEASON - 30.0 * ((PLACE >= 1540) & (PLACE < 1600)) + 60.0 * (PLACE == 900), 2, "x", "period=288"),
        (PLACE[:500] % 7 + NOISE[:500] / 5, 0, "x", "--set period=7 --set learn=14"),  # as few values as are learned
        (WEEK, 0, "x", "repeats every 168 values"),  # hours, of which 24 come again but at weekends
        (NOISE + np.clip((PLACE - 500) / 900, 0, 1) * 4.5, 0, "x", "4.. deviations, .* --detector adwin"),
        (NOISE + 140 * np.exp(-PLACE / 400), 0, "x", "--detector adwin; while it moves so far"),  # as a loss falls
        (RARE, 7, "errors", "'errors' is 0 in 99.*of its values"),
        (PLACE % 613, 4, "movieId", "'movieId' holds ids, by its name"),
        (NOISE, 10, "x", "an alarm in every 200 values.*--threshold"),
    ],
)
def test_what_would_tell_more_is_said(values: np.ndarray, alarms: int, name: str, wanted: str) -> None:
    found = told(values, alarms, name)
    assert found.count(f"'{name}'") == 1
    assert re.search(wanted, found)


def test_nothing_is_said_of_noise() -> None:
    """No season is told of noise, wandering values and trends; of values around a level nothing at all."""
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(size=2000)
        near = np.convolve(noise, 0.8 ** np.arange(30), "valid")
        for values in (noise, near, np.random.default_rng(seed).laplace(size=300), RARE):
            assert told(values) == ""
        for values in (np.cumsum(noise), noise + PLACE / 300):
            assert "repeats" not in told(values)
    assert told(np.ones(200)) == ""
