"""The ensemble detector: combines how rare several robust residuals and mean shifts are; one alarm per episode."""

import math
from typing import Literal

from recsmith.errors import check_rules
from recsmith.streaming.detectors.ewma import Ewma
from recsmith.streaming.detectors.frozen import FrozenRun
from recsmith.streaming.detectors.log_scale import LogScale
from recsmith.streaming.detectors.mean_shift import BLOCK, MeanShift
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.detectors.protocol import Detector, half_life_rule
from recsmith.streaming.detectors.tail import DecayingTail

FAR = 2.0  # a value this many times as far off as any before in its episode is a new anomaly and alarms again


class AlarmEpisodes(PlainState):
    """Passes a score only if it is the highest of its episode so far, or its value is far further off; else gives 0.

    So a shifted level is reported once, however long scores stay high. length: number of values without a higher score,
    or one above `alarming`, after which an episode is over.
    """

    STATE, ADDED = ("_highest", "_since", "_farthest"), ("_farthest",)

    def __init__(self, *, length: int = 100, alarming: float = math.inf) -> None:
        check_rules(None if length >= 1 else f"episodes last {length} values; they must last at least 1")
        self.length, self.alarming = length, alarming
        self._highest, self._since, self._farthest = 0.0, 0, 0.0

    def rise(self, score: float, distance: float = 0.0) -> float:
        """The score if it is passed, else 0. distance: how far the value is from what is usual."""
        self._since += 1
        if self._since > self.length:
            self._highest = 0.0
        if score <= self._highest and distance <= FAR * self._farthest:
            self._since = 0 if score > self.alarming else self._since
            return 0.0
        self._farthest = distance if score > self._highest else max(distance, self._farthest)
        self._highest, self._since = max(score, self._highest), 0
        return score


SHORT = 0.1  # weight of a value in the short mean of about ten values, which reduces noise so that level steps show


class Ensemble(PlainState, Detector):
    """Sum of the surprises of five views of a series: level, last step, short mean, mean shifts, runs of equal values.

    The first three are scored by a robust EWMA each, the fourth by comparing blocks, which shows ramps and small
    shifts. A decaying histogram of its past turns each score into a surprise; surprises are added, as if views were
    independent. In an episode only a score higher than all before, or of a value far further off, is reported.
    half_life: number of values after which a value's weight is halved; 2.5 times as many for the short mean.
    episode: number of values without an alarming score after which a lower one may alarm again. scale: `log` judges
    values on a logarithmic scale around the median of the first ones, for series with a long tail.
    """

    STATE = ("views", "tails", "episodes", "_before", "_short", "_seen", "shift", "shift_tail", "frozen", "_scale")
    ADDED = ("shift", "shift_tail", "frozen", "_scale")

    def __init__(
        self, *, half_life: float = 140.0, episode: int = 100, warm: int = 100, threshold: float = 8.5,
        scale: Literal["plain", "log"] = "plain",
    ) -> None:  # fmt: skip
        check_rules(half_life_rule(half_life))
        self._scale = LogScale(warm) if scale == "log" else None
        self.warm, self.threshold = warm, threshold
        self.views = [Ewma(half_life=half, warm=warm) for half in (half_life, half_life, 2.5 * half_life)]
        self.tails = [DecayingTail(2.5 * half_life) for _ in self.views]
        self.shift, self.shift_tail = MeanShift(), DecayingTail(2.5 * half_life / BLOCK)
        self.frozen = FrozenRun(2.5 * half_life)
        self.episodes = AlarmEpisodes(length=episode, alarming=threshold)
        self._before: float | None = None
        self._short, self._seen = 0.0, 0

    def score(self, value: float) -> float:
        """The sum of the surprises if it is the highest of its episode, or the value is far further off; else 0."""
        if self._scale is None:
            return self._judged(value)
        found = 0.0
        for each in self._scale.add(value):
            found = self._judged(each)
        return found

    def _judged(self, value: float) -> float:
        if self._before is None:
            self._before = self._short = value
        step, self._before = value - self._before, value
        self._short += SHORT * (value - self._short)
        level, change, mean = self.views
        found = level.score(value), change.score(step), mean.score(self._short)
        moved, frozen = self.shift.score(value), self.frozen.surprise(value)
        self._seen += 1
        if self._seen <= self.warm:
            return 0.0
        rare = sum(tail.surprise(each) for tail, each in zip(self.tails, found, strict=True))
        rare += frozen + (self.shift_tail.surprise(moved) if moved is not None else 0.0)
        return self.episodes.rise(rare, found[0])
