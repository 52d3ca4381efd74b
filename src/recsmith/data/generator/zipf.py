"""Zipf's law, drawn exactly: one uniform number an id, at any number of rows, without a table of them all."""

import math

import numpy as np

from recsmith._types import Floats, Ints

HEAD = 4096  # most read rows whose chances are added up one by one; behind them sums are integrals, right to 1e-8


class ZipfLaw:
    """Chances of ranks 1 to rows, in proportion to rank ** -exponent.

    A rank r behind the head has the integral of x ** -exponent from r - 1/2 to r + 1/2, which differs from r **
    -exponent by the share exponent * (exponent + 1) / (24 r ** 2).
    """

    def __init__(self, rows: int, exponent: float) -> None:
        self.rows, self.exponent = rows, exponent
        head = np.arange(1, min(rows, HEAD) + 1, dtype=np.float64) ** -exponent
        self.sums = np.cumsum(head)
        self.edge = self._integral(np.array([HEAD + 0.5]))[0]
        tail = self._integral(np.array([rows + 0.5]))[0] - self.edge if rows > HEAD else 0.0
        self.total = float(self.sums[-1] + tail)

    def ranks(self, uniform: Floats) -> Ints:
        """The ranks, counted from 0, of uniform numbers in [0, 1)."""
        at = uniform * self.total
        ranks = np.searchsorted(self.sums, at, side="right")
        if self.rows > HEAD:
            behind = np.flatnonzero(ranks >= HEAD)
            place = self._inverse(at[behind] - self.sums[-1] + self.edge)
            ranks[behind] = np.clip(np.floor(place + 0.5).astype(np.int64), HEAD + 1, self.rows) - 1
        return np.minimum(ranks, self.rows - 1)

    def chances(self, ranks: Ints) -> Floats:
        """The chances of ranks, counted from 0."""
        return np.asarray((ranks + 1.0) ** -self.exponent / self.total, np.float64)

    def _integral(self, place: Floats) -> Floats:
        """Of x ** -exponent, from 1 to a place."""
        power = 1 - self.exponent
        return np.log(place) if abs(power) < 1e-9 else np.expm1(power * np.log(place)) / power

    def _inverse(self, integral: Floats) -> Floats:
        """The place up to which the integral is this."""
        power = 1 - self.exponent
        return np.exp(integral if abs(power) < 1e-9 else np.log1p(power * integral) / power)


def poisson_lengths(mean: float, uniform: Floats) -> Ints:
    """Poisson numbers of uniform ones in [0, 1)."""
    most = int(mean + 12 * math.sqrt(mean) + 20)
    logs = np.arange(most) * math.log(max(mean, 1e-300)) - mean
    logs[1:] -= np.cumsum(np.log(np.arange(1, most)))
    return np.minimum(np.searchsorted(np.cumsum(np.exp(logs)), uniform, side="right"), most)
