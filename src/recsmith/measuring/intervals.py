"""Confidence intervals of measured figures: medians over visits, resampled by the bootstrap.

Legend: V visits, B resamples.
"""

import numpy as np

from recsmith._types import Floats, Ints, noun

RESAMPLES = 10_000  # B. Trade-off: more make the ends of intervals steadier and take longer; not tuned further
LOW, HIGH = 2.5, 97.5  # percentiles between which 95 % of the resamples lie


@noun
class Interval:
    """A figure, and where it lies in 95 % of the resamples: value, low, high."""

    value: float
    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether the interval contains 0: then a difference cannot be told apart from none."""
        return self.low <= 0 <= self.high


def draw_visits(visits: int, seed: int = 0, resamples: int = RESAMPLES) -> Ints:
    """Indices (B, V) of the visits of each resample: V of them, drawn with replacement.

    Efron, Bootstrap Methods (Annals of Statistics 7(1), 1979). What is measured in the same visits is resampled by the
    same draw, so that whatever slows a whole visit cancels out of differences.
    """
    return np.random.default_rng(seed).integers(0, visits, (resamples, visits))


def interval(value: float, resampled: Floats) -> Interval:
    """A figure with the percentiles LOW and HIGH of its resampled values (B,)."""
    low, high = np.percentile(resampled, (LOW, HIGH)).tolist()
    return Interval(value=value, low=low, high=high)


def bootstrap_median(values: Floats, seed: int = 0) -> Interval:
    """The median of values (V,), with an interval from the medians of resamples.

    Of few values the interval is narrow: of seven normal ones it holds the truth in about nine of ten cases
    (tests/measuring/test_intervals.py).
    """
    medians = np.median(np.asarray(values)[draw_visits(len(values), seed)], axis=1)
    return interval(float(np.median(values)), medians)
