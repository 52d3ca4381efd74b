"""Counts samples that repeat within an epoch, with a bounded set of seen samples, chosen by a hash of their numbers.

n samples of a batch
"""

import numpy as np

from recsmith._random import mixed
from recsmith._types import Ints
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.hot_sets import packed, unpacked

MOST = 4096  # samples that are kept; trade-off: with fewer, repeats in a small part of a large stream are missed
ALL = 2**63  # upper bound of hashes


class SeenSamples(PlainState):
    """Counts samples that were seen before in their epoch, among samples whose hash is below a bound.

    The bound is halved if more than `most` are kept. The kept samples are a uniform sample of all different ones
    (Gibbons, "Distinct Sampling for Highly-Accurate Answers to Distinct Values Queries", VLDB 2001).
    """

    STATE = ("bound", "checked", "repeated", "_packed")

    def __init__(self, *, most: int = MOST) -> None:
        self.most = most
        self.bound = ALL  # hashes below it are kept
        self.checked, self.repeated = 0, 0  # samples that were checked, and that were repeats, since `take`
        self._epochs: dict[int, int] = {}  # by hash of a sample, the epoch in which it was last seen

    def add(self, sample_ids: Ints, epoch: int) -> None:
        """Check the samples of a batch (n,)."""
        hashes = (mixed(mixed(sample_ids.astype(np.uint64))) >> np.uint64(1)).astype(np.int64)
        chosen = hashes[hashes < self.bound].tolist() if self.bound < ALL else hashes.tolist()
        epochs = self._epochs
        for each in chosen:
            self.repeated += epochs.get(each) == epoch
            epochs[each] = epoch
        self.checked += len(chosen)
        self._shrink()

    def take(self) -> tuple[int, int]:
        """(number of checked samples, number of repeats among them) since the last call."""
        found = self.checked, self.repeated
        self.checked = self.repeated = 0
        return found

    def take_in(self, other: "SeenSamples") -> None:
        """Merge the samples that another set has seen into this one."""
        self.bound = min(self.bound, other.bound)
        self.checked, self.repeated = self.checked + other.checked, self.repeated + other.repeated
        for sample, epoch in other._epochs.items():
            self._epochs[sample] = max(epoch, self._epochs.get(sample, epoch))
        self._epochs = {sample: epoch for sample, epoch in self._epochs.items() if sample < self.bound}
        self._shrink()

    def _shrink(self) -> None:
        while len(self._epochs) > self.most:
            self.bound //= 2
            self._epochs = {each: epoch for each, epoch in self._epochs.items() if each < self.bound}

    @property
    def _packed(self) -> list[str]:
        return [packed(np.array(list(part), np.int64)) for part in (self._epochs, self._epochs.values())]

    @_packed.setter
    def _packed(self, texts: list[str]) -> None:
        self._epochs = dict(zip(*(unpacked(text).tolist() for text in texts), strict=True))
