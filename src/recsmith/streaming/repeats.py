"""Samples that come again: a bounded set of samples that were seen, chosen by a hash of their numbers.

n samples of a batch
"""

import numpy as np

from recsmith._random import mixed
from recsmith._types import Ints
from recsmith.streaming.detectors.plain_state import PlainState
from recsmith.streaming.hot_sets import packed, unpacked

MOST = 4096  # samples that are kept; trade-off: with fewer, repeats of a small part of a large stream stay unseen
ALL = 2**63  # hashes are smaller


class SeenSamples(PlainState):
    """Counts samples that were seen before, among those whose hash is below a bound; the bound halves when it is full.

    Gibbons, "Distinct Sampling for Highly-Accurate Answers to Distinct Values Queries", VLDB 2001: whichever samples
    come, those that are kept are an even choice of all different ones.
    most: samples that are kept. far: samples between two sights of one, from which on it is no repeat but the next
    epoch; none: there are no epochs.
    """

    STATE = ("bound", "seen", "_packed")

    def __init__(self, *, most: int = MOST, far: int | None = None) -> None:
        self.most, self.far = most, far
        self.bound, self.seen = ALL, 0  # of hashes; samples that came so far
        self._last: dict[int, int] = {}  # when each was seen last

    def add(self, sample_ids: Ints, samples: int) -> tuple[int, int]:
        """(samples that were looked at, those of them that were seen before) of a batch (n,).

        samples: of all ranks' batches together, by which the time between two sights is counted.
        """
        hashes = (mixed(mixed(sample_ids.astype(np.uint64))) >> np.uint64(1)).astype(np.int64)
        chosen = hashes[hashes < self.bound].tolist() if self.bound < ALL else hashes.tolist()
        last, now, far, repeats = self._last, self.seen, self.far, 0
        for each in chosen:
            before = last.get(each)
            repeats += before is not None and (far is None or now - before < far)
            last[each] = now
        self.seen += samples
        while len(last) > self.most:
            self.bound //= 2
            self._last = last = {each: when for each, when in last.items() if each < self.bound}
        return len(chosen), repeats

    @property
    def _packed(self) -> list[str]:
        return [packed(np.array(list(part), np.int64)) for part in (self._last, self._last.values())]

    @_packed.setter
    def _packed(self, texts: list[str]) -> None:
        self._last = dict(zip(*(unpacked(text).tolist() for text in texts), strict=True))

    def take_in(self, others: "list[SeenSamples]") -> None:
        """Become one that has seen what others have seen too."""
        self.bound = min([self.bound, *(each.bound for each in others)])
        for each in others:
            for sample, when in each._last.items():
                self._last[sample] = max(when, self._last.get(sample, when))
        self._last = {sample: when for sample, when in self._last.items() if sample < self.bound}
