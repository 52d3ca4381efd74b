"""A model of the ids that a stream reads: their skew, how many are live at once, and how fast new ids replace them.

A place of rank i is read in proportion to (i + shift) ** -power (Zipf and Mandelbrot), and its id is replaced by a new
one with probability `churn` at each lookup of the stream. So the id of a place that is read with probability p is
replaced before its next lookup with probability churn / (p + churn). The number of different ids (Heaps' law) follows
as a sum over places.

b buckets of ranks, t lengths of a stream in lookups
"""

import numpy as np

from recsmith._types import Floats, noun

BUCKETS = 300  # buckets of ranks, evenly spaced in log(rank)


@noun
class IdLaw:
    """The law of a stream: `places` ids are live at once and are read by rank, and new ids replace them.

    churn: probability, at each lookup of the stream, that an id is replaced by a new one.
    """

    power: float
    shift: float
    places: float
    churn: float

    def ranks(self) -> tuple[Floats, Floats]:
        """(number of places in each bucket (b,), probability that a lookup reads a given one of them (b,))."""
        edges = np.unique(np.round(np.geomspace(1, max(self.places, 2) + 1, BUCKETS)))
        count = np.diff(edges)
        middle = np.sqrt(edges[:-1] * (edges[1:] - 1))
        reads = ((middle + self.shift) / (1 + self.shift)) ** -self.power
        return count, reads / (count @ reads)

    def distinct(self, lookups: Floats) -> Floats:
        """Expected number of different ids in `lookups` consecutive lookups (t,)."""
        count, read = (each[:, None] for each in self.ranks())
        left = read + self.churn
        again = (read / left) ** 2 * -np.expm1(-left * lookups)
        return (count * (read * self.churn / left * lookups + again)).sum(0)

    def unread(self, lookups: Floats) -> Floats:
        """Probability that the id of a lookup is not read again in the next `lookups` lookups (t,)."""
        count, read = (each[:, None] for each in self.ranks())
        left = read + self.churn
        return (count * read * (1 + read / left * np.expm1(-left * lookups))).sum(0)

    def common(self, width: float, apart: Floats) -> Floats:
        """Expected number of ids that are read in both of two windows of a width with a gap of `apart` lookups (t,)."""
        count, read = (each[:, None] for each in self.ranks())
        left = read + self.churn
        within = read / left * -np.expm1(-left * width)
        return (count * within**2 * np.exp(-self.churn * apart)).sum(0)

    def rows(self, lookups: float, serve: float) -> float:
        """Rows that, under LRU, serve the share `serve` of a stream's lookups whose id occurred before.

        lookups: length of the stream.
        """
        times = np.geomspace(1, lookups, 400)
        rows, unread = self.distinct(times), self.unread(times)
        found = lookups - rows - (lookups - times) * unread
        return float(np.interp(serve * (lookups - rows[-1]), np.maximum.accumulate(found), rows))


@noun
class LawFit:
    """A fitted law. off: its mean relative error over all counts to which it was fitted."""

    law: IdLaw
    off: float
