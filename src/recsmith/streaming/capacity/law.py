"""A law of which ids a stream reads: how unevenly, of how many that live at once, and how fast others take their place.

A place of rank i is read in proportion to (i + shift) ** -power (Zipf and Mandelbrot), and the id that stands there
gives way to a new one with the chance `churn` at each lookup of the stream. So a place that is read with the chance p
is left by its id before the next lookup of it with the chance churn / (p + churn), and what follows for different ids
(Heaps) is a sum over places.

b buckets of ranks, t lengths of a stream in lookups
"""

import numpy as np

from recsmith._types import Floats, noun

BUCKETS = 300  # of ranks, evenly spaced in their logarithm


@noun
class IdLaw:
    """Which ids are read: of `places` ids that live at once, by their rank, while others take their place.

    churn: the chance at each lookup of the stream that an id gives way to a new one.
    """

    power: float
    shift: float
    places: float
    churn: float

    def ranks(self) -> tuple[Floats, Floats]:
        """(how many places each bucket has, chance of a lookup to read one of these), (b,) both."""
        edges = np.unique(np.round(np.geomspace(1, max(self.places, 2) + 1, BUCKETS)))
        count = np.diff(edges)
        middle = np.sqrt(edges[:-1] * (edges[1:] - 1))
        reads = ((middle + self.shift) / (1 + self.shift)) ** -self.power
        return count, reads / (count @ reads)

    def distinct(self, lookups: Floats) -> Floats:
        """How many different ids are read in so many lookups (t,), in the mean of all beginnings."""
        count, read = (each[:, None] for each in self.ranks())
        left = read + self.churn
        again = (read / left) ** 2 * -np.expm1(-left * lookups)
        return (count * (read * self.churn / left * lookups + again)).sum(0)

    def unread(self, lookups: Floats) -> Floats:
        """The chance that the id of a lookup is not read again in the next so many (t,)."""
        count, read = (each[:, None] for each in self.ranks())
        left = read + self.churn
        return (count * read * (1 + read / left * np.expm1(-left * lookups))).sum(0)

    def common(self, width: float, apart: Floats) -> Floats:
        """How many ids are read in both of two windows of a width that lie so many lookups apart (t,)."""
        count, read = (each[:, None] for each in self.ranks())
        left = read + self.churn
        within = read / left * -np.expm1(-left * width)
        return (count * within**2 * np.exp(-self.churn * apart)).sum(0)

    def rows(self, lookups: float, serve: float) -> float:
        """Rows that serve a share of the lookups of ids that came before, in a stream of so many, under LRU."""
        times = np.geomspace(1, lookups, 400)
        rows, unread = self.distinct(times), self.unread(times)
        found = lookups - rows - (lookups - times) * unread
        return float(np.interp(serve * (lookups - rows[-1]), np.maximum.accumulate(found), rows))


@noun
class LawFit:
    """A law, and how far it is from what it was fitted to: in the mean of all figures, as a share of each."""

    law: IdLaw
    off: float
