"""Statistics of measurements: medians with confidence intervals, and the agreement of two rankings.

Legend: V visits, B resamples; N ranked items.
"""

import numpy as np

from recsmith._types import Floats, Ints, noun

RESAMPLES = 10_000  # B. Trade-off: more make the ends of intervals steadier and take longer; not tuned further
LOW, HIGH = 2.5, 97.5  # percentiles that enclose 95 % of the resamples


@noun
class Interval:
    """A figure with its 95 % interval: value, low, high."""

    value: float
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether the interval contains 0, so that a difference is not significant."""
        return self.low <= 0 <= self.high


def draw_visits(visits: int, seed: int = 0, resamples: int = RESAMPLES) -> Ints:
    """Indices (B, V) of the visits of each resample: V of them, drawn with replacement.

    Efron, Bootstrap Methods (Annals of Statistics 7(1), 1979). Quantities measured in the same visits are resampled by
    the same draw, so that anything that slows a whole visit cancels out of differences.
    """
    return np.random.default_rng(seed).integers(0, visits, (resamples, visits))


def interval(value: float, resampled: Floats) -> Interval:
    """A figure with the percentiles LOW and HIGH of its resampled values (B,)."""
    low, high = np.percentile(resampled, (LOW, HIGH)).tolist()
    return Interval(value=value, low=low, high=high)


def bootstrap_median(values: Floats, seed: int = 0) -> Interval:
    """The median of values (V,), with an interval from the medians of resamples.

    For few values the interval is too narrow: with seven normal ones it contains the true median in about nine of ten
    cases (tests/measuring/test_statistics.py).
    """
    medians = np.median(np.asarray(values)[draw_visits(len(values), seed)], axis=1)
    return interval(float(np.median(values)), medians)


ROWS_AT_ONCE = 1000  # rows of the (N, N) comparisons at a time: an array then takes 8 kB * N, 96 MB for N = 12,000


def kendall_tau(first: Floats, second: Floats, band: Ints | None = None) -> float:
    """Kendall's tau-b of two rankings (N,), over all pairs, or those within a band; nan without any.

    Kendall, Rank Correlation Methods (1948): (agreeing - disagreeing) over the root of (pairs not tied in the first)
    times (pairs not tied in the second).
    """
    agree, untied = 0.0, np.zeros(2)
    for start in range(0, len(first), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        one, two = np.sign(first[rows, None] - first), np.sign(second[rows, None] - second)
        if band is not None:
            same = band[rows, None] == band
            one, two = one * same, two * same
        agree += float((one * two).sum())
        untied += [float(np.abs(one).sum()), float(np.abs(two).sum())]
    scale = float(np.sqrt(untied.prod()))
    return agree / scale if scale else float("nan")
