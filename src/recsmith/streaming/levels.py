"""Watched levels of a job's columns: means of labels, means and deviations of dense columns, shares of missing values.

A level is one number a look. It moved where its deviations from a moving mean add up (CUSUM: Page, "Continuous
Inspection Schemes", Biometrika 1954), and where it moved by as much as matters.
"""

import math
from collections.abc import Iterator

from recsmith.streaming.detectors.ewma import Ewma
from recsmith.streaming.detectors.plain_state import NamedStates, PlainState
from recsmith.streaming.job_sums import JobLayout, JobSums

Fault = tuple[str, str, str]  # kind, of what, because
LEVELS = ("label_rate", "missing_values", "dense_mean", "dense_spread")
SLACK, SUM = 0.5, 12.0  # deviations of a look that count for nothing; of several looks together that are a move
RECENT = 0.25  # weight of a look in the recent mean, by which a move is measured
LABEL, SPREAD = 1.5, 3.0  # factors that matter: of the mean of a label, and of the deviation of a dense column
SHARE, MEAN = 0.1, 0.5  # moves that matter: of a share of missing values, and of a mean in deviations of its column
PRESENT = 30  # values of a dense column beside 0 in a look, of which mean and deviation are taken
SMALLEST = 1e-9  # a deviation of a dense column, relative to its mean: of one that is constant
LARGEST_LOG = 700.0  # of a deviation: beyond, it is no number that a column has


class Level(PlainState):
    """One level. recent: its mean of the last looks."""

    STATE = ("recent", "_usual", "_up", "_down")

    def __init__(self) -> None:
        self.recent = 0.0
        self._usual = Ewma(half_life=60.0, warm=25)
        self._up, self._down = 0.0, 0.0  # sums of deviations

    @property
    def known(self) -> bool:
        """Whether it is known what is usual."""
        return self._usual.known

    @property
    def usual(self) -> float:
        """The moving mean."""
        return self._usual.mean

    def moved(self, value: float, noise: float = 0.0) -> bool:
        """Whether the level moved, by its next value; which is learned. noise: the least that its deviation can be."""
        if not self.known:
            self._usual.score(value)
            self.recent = self._usual.mean
            return False
        deviations = (value - self._usual.mean) / max(self._usual.deviation, noise)
        self._usual.score(value)
        self.recent += RECENT * (value - self.recent)
        self._up = min(max(0.0, self._up + deviations - SLACK), 2 * SUM)
        self._down = min(max(0.0, self._down - deviations - SLACK), 2 * SUM)
        return max(self._up, self._down) > SUM

    def told(self) -> None:
        """Begin to add up anew."""
        self._up = self._down = 0.0


class ColumnLevels(PlainState):
    """The levels of all labels, dense columns and features of a job."""

    STATE = ("levels",)

    def __init__(self, layout: JobLayout) -> None:
        self.layout = layout
        dense = [f"{part}/{name}" for name in layout.dense for part in ("zeros", "mean", "spread")]
        names = [*(f"label/{name}" for name in layout.labels), *dense, *(f"empty/{name}" for name in layout.features)]
        self.levels = NamedStates({name: Level() for name in names})

    def faults(self, sums: JobSums) -> Iterator[Fault]:
        """What moved by this look."""
        if not sums["samples"]:
            return
        for name, total in zip(self.layout.labels, sums.labels.tolist(), strict=True):
            yield from self._label(name, total / sums["samples"], sums["samples"])
        for name, row in zip(self.layout.dense, sums.dense.tolist(), strict=True):
            yield from self._dense(name, sums["samples"], *row)
        for row, name in enumerate(self.layout.features):
            of = sums.of_feature(row)
            if of["bags"] and self._share(f"empty/{name}", share := of["empty"] / of["bags"], of["bags"]):
                told = f"{share:.0%} of the samples have no id of feature '{name}'"
                yield "missing_values", name, f"{told}, and {self._usual(f'empty/{name}'):.0%} had none before"

    def _usual(self, name: str) -> float:
        return self.levels[name].usual

    def _label(self, name: str, rate: float, samples: float) -> Iterator[Fault]:
        level: Level = self.levels[f"label/{name}"]
        before = level.usual
        if not level.moved(rate, _noise(before, samples)):
            return
        low, high = sorted((level.recent, before))
        if high > LABEL * low or 1 - low > LABEL * (1 - high):
            level.told()
            yield "label_rate", name, f"label '{name}' is {rate:.3g} on average, and was {before:.3g} before"

    def _share(self, name: str, share: float, count: float) -> bool:
        """Whether a share of so many values moved by as much as matters."""
        level: Level = self.levels[name]
        moved = level.moved(share, _noise(level.usual, count)) and abs(level.recent - level.usual) > SHARE
        if moved:
            level.told()
        return moved

    def _dense(self, name: str, samples: float, total: float, squares: float, zeros: float) -> Iterator[Fault]:
        """A dense column: how many values are missing, and mean and deviation of the others."""
        if self._share(f"zeros/{name}", zeros / samples, samples):
            told = f"{zeros / samples:.0%} of dense column '{name}' are 0, as missing values are"
            yield "missing_values", name, f"{told}, and {self._usual(f'zeros/{name}'):.0%} were before"
        present = samples - zeros
        if present < PRESENT:
            return
        mean = total / present
        spread = max(math.sqrt(max(squares / present - mean * mean, 0.0)), SMALLEST * (1 + abs(mean)))
        if not (math.isfinite(mean) and math.isfinite(spread)):
            return
        means: Level = self.levels[f"mean/{name}"]
        spreads: Level = self.levels[f"spread/{name}"]
        before, usual = means.usual, math.exp(min(spreads.usual, LARGEST_LOG))
        wider = spreads.moved(math.log(spread)) and abs(spreads.recent - spreads.usual) > math.log(SPREAD)
        if means.moved(mean) and abs(means.recent - before) > MEAN * max(usual, spread):
            means.told()
            yield "dense_mean", name, f"the mean of dense column '{name}' is {mean:.4g}, and was {before:.4g} before"
        if wider:
            spreads.told()
            told = f"the standard deviation of dense column '{name}' is {spread:.4g}"
            yield "dense_spread", name, f"{told}, and was {usual:.4g} before"


def _noise(share: float, count: float) -> float:
    """The deviation of a share of so many independent values."""
    share = min(max(share, 1 / count), 1 - 1 / count) if count > 1 else 0.5
    return math.sqrt(share * (1 - share) / count)
