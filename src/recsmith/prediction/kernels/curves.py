"""Collectives by measured curves in three pieces, over the logarithm of their size.

    up to `small` bytes, the latency; from `large` bytes on, the bandwidth; between them the logarithm of the bandwidth
    rises along a sigmoid from size / latency to its highest

Source: the multi-GPU successor of Lin et al. (HiPC 2022), code owensgroup/ml_perf_model. Given where the pieces meet
and the shape of the sigmoid, the logarithm of seconds is linear in those of latency and bandwidth, so the fit is least
squares over a grid.
"""

import itertools
from dataclasses import replace

import numpy as np

from recsmith._types import Floats, noun
from recsmith.errors import UsageError, check_rules

STEEPNESS = (0.5, 1.0, 2.0, 4.0, 8.0)  # of the sigmoid, over the whole middle piece
MIDDLES = (0.2, 0.35, 0.5, 0.65, 0.8)  # share of the middle piece at which the sigmoid is steepest
LEAST_SIZES = 8  # that a curve is fitted to
ENDS = 12  # places tried for either end of the middle piece


@noun
class Curve:
    """Seconds of a collective on so many ranks.

    small, large: bytes where the pieces meet. error: geometric, of sizes that were held out.
    """

    name: str
    ranks: int
    latency_s: float
    bytes_per_s: float
    small: float
    large: float
    steepness: float
    middle: float
    error: float = 0.0

    def __post_init__(self) -> None:
        """Check signs and order."""
        values = (self.latency_s, self.bytes_per_s, self.small, self.steepness)
        check_rules(
            None if all(0 < each < np.inf for each in values) and self.small < self.large < np.inf and self.ranks > 0
            else f"curve {self.name} on {self.ranks} ranks holds figures that are not above 0, or small >= large"
        )  # fmt: skip

    def seconds(self, size: Floats) -> Floats:
        """Seconds of sizes in bytes."""
        share = _share(size, self.small, self.large, self.steepness, self.middle)
        first = np.log(self.small / self.latency_s)
        speed = first + share * (np.log(self.bytes_per_s) - first)
        return np.where(size <= self.small, self.latency_s, size / np.exp(speed))


def fit_curve(name: str, ranks: int, size: Floats, seconds: Floats) -> Curve:
    """The curve of measured sizes (N,) and seconds (N,); every fifth size is held out to tell its error.

    Raises:
        UsageError: there are fewer than 8 sizes.
    """
    order = np.argsort(size)
    size, seconds = np.maximum(size[order], 1.0), seconds[order]
    if len(size) < LEAST_SIZES:
        raise UsageError(f"{len(size)} sizes of {name} on {ranks} ranks; a curve takes at least {LEAST_SIZES}")
    held = np.arange(len(size)) % 5 == 2
    fitted = _fitted(name, ranks, size[~held], seconds[~held])
    off = np.abs(fitted.seconds(size[held]) / seconds[held] - 1)
    error = float(np.exp(np.log(np.maximum(off, 1e-4)).mean()))
    whole = _fitted(name, ranks, size, seconds)
    return replace(whole, error=error)


def _fitted(name: str, ranks: int, size: Floats, seconds: Floats) -> Curve:
    best, found = np.inf, None
    ends = np.exp(np.linspace(np.log(size[0] / 2), np.log(size[-1] * 2), ENDS))
    for (small, large), k, middle in itertools.product(itertools.combinations(ends, 2), STEEPNESS, MIDDLES):
        share = _share(size, small, large, k, middle)
        flat = size <= small
        # log t = log size - (1 - share) (log small - log latency) - share log bandwidth, or log latency where flat
        columns = np.stack([np.where(flat, 1.0, 1 - share), np.where(flat, 0.0, -share)], axis=1)
        known = np.where(flat, 0.0, np.log(size) - (1 - share) * np.log(small))
        solved, *_ = np.linalg.lstsq(columns, np.log(seconds) - known, rcond=None)
        miss = float(np.abs(columns @ solved + known - np.log(seconds)).mean())
        if miss < best and (flat.any() or large < size[-1]):
            best, found = miss, (small, large, k, middle, *np.exp(solved))
    assert found is not None  # the grid holds ends inside the sizes
    small, large, k, middle, latency, bandwidth = map(float, found)
    return Curve(name=name, ranks=ranks, latency_s=latency, bytes_per_s=bandwidth, small=small, large=large,
                 steepness=k, middle=middle)  # fmt: skip


def _share(size: Floats, small: float, large: float, steepness: float, middle: float) -> Floats:
    """Share of the way from the first to the last bandwidth, of logarithms: a sigmoid from 0 to 1."""
    place = np.clip((np.log(size) - np.log(small)) / (np.log(large) - np.log(small)), 0.0, 1.0)
    low, high = (1 / (1 + np.exp(-steepness * (end - middle))) for end in (0.0, 1.0))
    return (1 / (1 + np.exp(-steepness * (place - middle))) - low) / (high - low)
