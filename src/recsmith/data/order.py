"""The order in which all ranks of a job use the samples of an epoch, and the position in it.

The rule. A dataset is cut into blocks, whose order is drawn from the seed and the epoch. Consecutive blocks of this
order form a window, and the samples of a window are shuffled, too. So a sample can come anywhere in the epoch, and
no more than a window has to be kept in memory. Without shuffling, samples are used in stored order.

Each step uses the next `world_size * batch_size` samples of this order, which does not depend on the world size. So
the number of used samples says which were used. The ranks split a step's samples by where they are stored, so that
each rank reads few blocks.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recsmith._random import permutation
from recsmith._types import Ints, noun
from recsmith.errors import UsageError

WINDOW = 2**17  # samples at which a window of two or more blocks ends; it bounds what a rank keeps in memory
Stored = tuple[int, Ints]  # the place of a block in the order, and rows of the block
RanksOf = Callable[[Sequence[Stored]], Ints]  # returns the rank of each of these samples


@noun
class Position:
    """How far a job is in an epoch: it has used the first `used` samples of the order of this seed and epoch.

    All ranks have the same position. A job of another world size can continue from it, and no sample is lost or used
    twice.
    dataset: digest of the data, which changes with the data. together: length of the runs of samples stored side by
    side that shuffling keeps together. window: samples that are shuffled together.
    """

    epoch: int
    used: int
    seed: int
    shuffle: bool
    dataset: str
    together: int = 1
    window: int = WINDOW

    def __post_init__(self) -> None:
        """Check that nothing is negative."""
        if min(self.epoch, self.used, self.seed) < 0:
            raise UsageError(
                f"a position has epoch {self.epoch}, used {self.used} and seed {self.seed}; each is 0 or more"
            )


class EpochOrder:
    """The order of all samples of an epoch; a slot is a sample's place in it.

    sizes: samples of each block (K,). files: ranges of blocks that can only be read one after the other, as
    (first, last + 1); the blocks of a file keep their order, and only whole files change places. together: length of
    the runs of samples stored side by side that shuffling keeps together, as deduplication of sessions needs it; the
    last run of a window may be shorter. window: samples at which a window of two or more blocks ends; trade-off: a
    smaller window needs less memory and shuffles less.
    """

    def __init__(
        self, sizes: Ints, *, seed: int, epoch: int, shuffle: bool, files: Sequence[tuple[int, int]] = (),
        together: int = 1, window: int = WINDOW,
    ) -> None:  # fmt: skip
        self.seed, self.epoch, self.shuffle, self.together = seed, epoch, shuffle, together
        self.blocks = _block_order(sizes, seed, epoch, files) if shuffle else np.arange(len(sizes))  # by place (K,)
        self.sizes = sizes[self.blocks]
        self.firsts = np.cumsum(self.sizes) - self.sizes  # slot of each block's first sample (K,)
        self.num_samples = int(sizes.sum())
        self.windows = (
            _windows(self.sizes, window) if shuffle else np.arange(len(sizes) + 1)
        )  # place of the first block of each window, K at the end
        self.bounds = np.append(self.firsts, self.num_samples)[self.windows]  # slots at which windows begin and end
        self._kept: tuple[int, Ints] = (-1, self.firsts)

    def share(
        self, first: int, last: int, rank: int, world_size: int, ranks_of: RanksOf | None = None
    ) -> list[Stored]:  # fmt: skip
        """A rank's share of the samples in slots first to last - 1: places of blocks, and the rows in each.

        The samples are sorted by where they are stored, and cut into one run per rank, whose lengths differ by one at
        most. ranks_of: a function that assigns each sample to a rank instead.
        """
        stored = np.sort(np.concatenate([np.zeros(0, np.int64), *self._stored(first, last)]))
        if ranks_of is not None:
            return self._located(stored[ranks_of(self._located(stored)) == rank])
        return self._located(stored[len(stored) * rank // world_size : len(stored) * (rank + 1) // world_size])

    def _located(self, stored: Ints) -> list[Stored]:
        """Samples, sorted by where they are stored, as places of blocks and the rows in each."""
        places = np.searchsorted(self.firsts, stored, side="right") - 1
        cuts = np.flatnonzero(np.diff(places, prepend=-1, append=-1))
        return [(int(places[a]), stored[a:b] - self.firsts[places[a]]) for a, b in itertools.pairwise(cuts.tolist())]

    def windows_of(self, first: int, last: int) -> range:
        """Numbers of the windows that contain slots first to last - 1."""
        return range(self._window_of(first), self._window_of(last - 1) + 1)

    def _stored(self, first: int, last: int) -> Iterator[Ints]:
        """The samples in slots first to last - 1, window by window, numbered along the order of blocks."""
        window = self._window_of(first)
        while first < last:
            start, end = (int(each) for each in self.bounds[window : window + 2])
            yield self._window(window)[first - start : min(end, last) - start]
            first, window = end, window + 1

    def _window_of(self, slot: int) -> int:
        return int(np.searchsorted(self.bounds, slot, side="right")) - 1

    def _window(self, window: int) -> Ints:
        """The samples in all slots of a window; the result for the last window is cached."""
        if self._kept[0] != window:
            start, end = (int(each) for each in self.bounds[window : window + 2])
            self._kept = window, start + (self._drawn(window, end - start) if self.shuffle else np.arange(end - start))
        return self._kept[1]

    def _drawn(self, window: int, size: int) -> Ints:
        """The samples of a window in shuffled order, where runs of `together` samples stay whole."""
        runs = permutation(self.seed, self.epoch, f"window {window}", -(-size // self.together))
        if self.together == 1:
            return runs
        samples = (runs[:, None] * self.together + np.arange(self.together)).ravel()
        return samples[samples < size]


def _block_order(sizes: Ints, seed: int, epoch: int, files: Sequence[tuple[int, int]]) -> Ints:
    """The blocks in shuffled order; blocks of a file that can only be read in sequence stay together and in order."""
    bound = {block for first, last in files for block in range(first, last)}
    units = list(files)
    units += [(block, block + 1) for block in range(len(sizes)) if block not in bound]
    drawn: list[int] = permutation(seed, epoch, "blocks", len(units)).tolist()
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(*units[unit]) for unit in drawn)])


def _windows(sizes: Ints, window: int) -> Ints:
    """Indices of the blocks that begin a window: a window ends when it has `window` samples and two blocks."""
    begins, held = [0], 0
    for at, size in enumerate(sizes.tolist()):
        if held >= window and at - begins[-1] >= 2:
            begins.append(at)
            held = 0
        held += size
    return np.array([*begins, len(sizes)], dtype=np.int64)
