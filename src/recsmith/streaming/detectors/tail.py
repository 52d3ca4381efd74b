"""Turns scores of a detector into surprises: how rarely past scores in a decaying histogram were as high."""

import math
from typing import Any

from recsmith.errors import check_rules
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.protocol import Detector, half_life_rule

BINS = 128  # bins of log(score); a power of 2, for the Fenwick tree
LOWEST, HIGHEST = -6.0, 8.0  # natural logarithms of the scores in the first and in the last bin
TO_BIN = BINS / (HIGHEST - LOWEST)
NEVER = 1e-6  # weight of scores that were never seen, so that their surprise is finite
PRIOR, FALLS = (
    20.0,
    math.sqrt(2),
)  # weight of the prior, in scores, and its rate: a share exp(-FALLS * score) of it is as high as a score, as in a
# Laplace distribution; without a prior every new maximum of a short past would have the largest surprise
FARTHEST = 400.0  # scores are capped here, where exp(-FALLS * score) is practically 0
LARGEST = 1e100  # weights of new scores grow instead of old ones decaying; above this all weights are rescaled


class DecayingTail(PlainState):
    """A histogram of past scores' weights by log(score), summed in a Fenwick tree: O(log bins) per score.

    Fenwick, "A new data structure for cumulative frequency tables", 1994.
    """

    STATE = ("_tree", "_total", "_new")

    def __init__(self, half_life: float) -> None:
        self.growth = 2.0 ** (1 / half_life)
        self._tree = [0.0] * (BINS + 1)
        self._total, self._new = 0.0, 1.0  # sum of all weights; weight of the next score

    def surprise(self, score: float) -> float:
        """-log10(weight of past scores as high as this one / weight of all scores); the score is learned afterwards.

        PRIOR scores of a Laplace distribution are added to those of the past.
        """
        tree = self._tree
        place = int((math.log(score + 1e-9) - LOWEST) * TO_BIN)
        place = 0 if place < 0 else BINS - 1 if place >= BINS else place
        below, node = 0.0, place
        while node:
            below += tree[node]
            node &= node - 1
        tail = self._total - below
        high = (PRIOR * math.exp(-FALLS * min(score, FARTHEST)) + NEVER) * self._new
        found = -math.log10((max(tail, 0.0) + high) / (self._total + (PRIOR + NEVER) * self._new))
        node, weight = place + 1, self._new
        while node <= BINS:
            tree[node] += weight
            node += node & -node
        self._total += weight
        self._new *= self.growth
        if self._new > LARGEST:
            self._tree = [each / self._new for each in tree]
            self._total, self._new = self._total / self._new, 1.0
        return max(found, 0.0)


class Tail(PlainState, Detector):
    """How rare a detector's score is among its own past scores: -log10 of the share that were as high.

    of: the detector, the robust EWMA by default. half_life: number of scores after which a score's weight is halved.
    """

    STATE = ("detector", "tail", "_seen")

    def __init__(self, *, of: Any = "ewma", half_life: float = 350.0, threshold: float = 4.0) -> None:
        from recsmith.streaming.detectors import detector_of

        check_rules(half_life_rule(half_life))
        self.detector = detector_of(of)
        self.tail = DecayingTail(half_life)
        self.warm, self.threshold = self.detector.warm, threshold
        self._seen = 0

    def score(self, value: float) -> float:
        """The surprise of the detector's score."""
        found = self.detector.score(value)
        self._seen += 1
        return self.tail.surprise(found) if self._seen > self.warm else 0.0

    def season(self) -> tuple[float, ...]:
        """The season of the wrapped detector."""
        from recsmith.streaming.detectors import season_of

        return season_of(self.detector)
