"""Seasonal ESD: tests residuals of a seasonal series against their median and MAD by the generalised ESD test.

Hochenbaum, Vallis and Kejariwal, "Automatic Anomaly Detection in the Cloud Via Statistical Learning" (S-H-ESD),
arXiv:1704.07706, 2017: season and median are subtracted from a series, which is then tested by Rosner's ESD with median
and MAD in place of mean and deviation. There a whole series is tested at once; here each value is tested as it comes.
"""

import math
from statistics import NormalDist, median

import numpy as np

from recsmith._types import Floats
from recsmith.errors import check_rules
from recsmith.streaming.detectors.median_mad import MedianMad
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.protocol import Detector

LEVEL, SEASON = 0.01, 0.2  # weights of a value in the moving level, and in the season at its position
CLIP = 4.0  # robust deviations at which a residual is clipped before season and level are updated
LEAST_CORRELATION = 0.3  # least autocorrelation at the period for a season; trade-off, not tuned
SHORTEST = 4  # values in the shortest period
LEARN, PERIODS = 600, 2  # first values that are learned from, and periods that they must cover


class SeasonalEsd(PlainState, Detector):
    """Residual of a value after subtracting level and season, in robust deviations.

    period: number of values in a season; none: found in the first `learn` values by autocorrelation. learn: number of
    first values to learn from; none: 600, or two periods if these are longer. window: number of residuals whose median
    and MAD are used. alpha: probability of an alarm among as many normal values as the window holds.
    """

    STATE = ("_first", "_level", "_season", "_phase", "_residuals", "_spread")

    def __init__(
        self, *, period: int | None = None, learn: int | None = None, window: int = 200, alpha: float = 0.001
    ) -> None:
        least = PERIODS * max(period or 1, SHORTEST)
        learn = max(LEARN, least) if learn is None else learn
        rarest = max(window, 1) * 2.0**-52  # 1 - alpha / (2 * window) is 1 in floating-point numbers below half of it
        check_rules(
            None if period is None or period >= 1 else f"period is {period}; it must be at least 1",
            None if learn >= least else f"learn is {learn:,}; it must span two periods at least, {least:,} values",
            None if window >= 3 else f"window is {window}; it must be at least 3",
            None if rarest < alpha < 1 else f"alpha is {alpha}; it must lie between {rarest:g} and 1",
        )
        self.period, self.learn, self.warm = period, learn, learn
        self.threshold = esd_threshold(window, alpha)
        self._first: list[float] | None = []  # the first values; None after level and season are initialized
        self._level, self._season, self._phase, self._spread = 0.0, [0.0], 0, 0.0
        self._residuals = MedianMad(window=window, warm=min(100, window))

    def score(self, value: float) -> float:
        """|residual - median| / (1.4826 MAD); the value is learned afterwards."""
        if self._first is not None:
            self._first.append(value)
            if len(self._first) >= self.learn:
                self._begin(self._first)
            return 0.0
        residual = value - self._level - self._season[self._phase]
        found = self._residuals.score(residual)
        self._learn(residual)
        return found

    def season(self) -> tuple[float, ...]:
        """The seasonal component by position in the period; () if there is no season, or none is known yet."""
        return () if self._first is not None or len(self._season) == 1 else tuple(self._season)

    def _learn(self, residual: float) -> None:
        reach = CLIP * self._spread
        kept = min(max(residual, -reach), reach)
        self._spread += LEVEL * (min(abs(residual), reach or abs(residual)) * 1.25 - self._spread)
        self._level += LEVEL * kept
        self._season[self._phase] += SEASON * kept
        self._phase = (self._phase + 1) % len(self._season)

    def _begin(self, first: list[float]) -> None:
        """Initialize level and season from the first values, and the window with their residuals."""
        period = self.period or find_period(first)
        self._level = median(first)
        self._season = [median(first[place::period]) - self._level for place in range(period)]
        seen = max(len(first) / period, PERIODS)  # values at each position
        wider = math.sqrt((seen + 1) / (seen - 1))  # deviation of a new value from the mean / of a value in the mean
        residuals = [wider * (value - self._level - self._season[i % period]) for i, value in enumerate(first)]
        self._spread = 1.25 * sum(map(abs, residuals)) / len(residuals)  # standard deviation, if residuals are normal
        for residual in residuals:
            self._residuals.score(residual)
        self._phase, self._first = len(first) % period, None


def find_period(values: list[float]) -> int:
    """The lag with the highest autocorrelation, up to half of the series; 1 if none is high enough."""
    likeness, start = likeness_of(np.asarray(values))
    if start >= len(likeness):
        return 1
    best = start + int(np.argmax(likeness[start:]))
    return best if likeness[best] >= LEAST_CORRELATION else 1


def likeness_of(values: Floats) -> tuple[Floats, int]:
    """(autocorrelation at each lag up to half of the series, the first lag that may be a period)."""
    series = values - np.mean(values)
    spectrum = np.abs(np.fft.rfft(series, 2 * len(series))) ** 2
    both = np.fft.irfft(spectrum)[: len(series) // 2]
    if not len(both) or both[0] <= 0:
        return np.zeros(0), 0
    likeness = both / both[0] * len(series) / np.arange(len(series), len(series) - len(both), -1)
    below = np.flatnonzero(likeness < 0)  # lags after the peak at lag 0
    return likeness, max(SHORTEST, int(below[0])) if len(below) else len(likeness)


def esd_threshold(count: int, alpha: float) -> float:
    """Rosner's critical value of the largest of `count` normal values (count of 4 or more).

    Rosner, "Percentage Points for a Generalized ESD Many-Outlier Procedure", Technometrics 1983. Student's t quantile
    is computed by the expansion 26.7.5 of Abramowitz and Stegun.
    """
    z, free = NormalDist().inv_cdf(1 - alpha / (2 * count)), count - 2
    t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return (count - 1) / math.sqrt(count) * math.sqrt(t * t / (count - 2 + t * t))
