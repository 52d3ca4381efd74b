"""The order in which a world uses the samples of an epoch, and how far it is.

The rule. A dataset is cut into blocks. Their order is drawn from the seed and the epoch; blocks that follow each other
in it make a window, and the samples of a window are used in an order that is drawn, too. So a sample can come anywhere
in the epoch, and no more than a window has to be kept. Without shuffling the samples are used as they are stored.

Step after step the world uses the next `world_size * batch_size` samples of this order, whatever its size, so how many
were used says which. The ranks share the samples of a step by where they are stored: each reads few blocks.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recsmith._random import permutation
from recsmith._types import Ints, noun
from recsmith.errors import UsageError

WINDOW = 2**17  # samples of a window, at least, unless two blocks have more: what a rank keeps is bounded by it
Stored = tuple[int, Ints]  # the place of a block in the order, and rows of it
RanksOf = Callable[[Sequence[Stored]], Ints]  # the rank of each of these samples


@noun
class Position:
    """How far a world is in an epoch: it has used the first `used` samples of the order of this seed and epoch.

    Every rank has the same one, and a world of another size goes on from it: no sample is lost or used again.
    dataset: a digest of what is read; data that has changed since has another one. together: samples stored side by
    side that stay so. window: samples that are shuffled together.
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

    sizes: samples of each block (K,). files: blocks that can only be read one after the other, as (first, last + 1);
    they stay together and in this order, and only the files change places. together: so many samples that are stored
    side by side stay so, as sessions must that are to be deduplicated; the last ones of a window may be fewer. window:
    samples that are shuffled together, at least, unless two blocks have more; trade-off: fewer need less memory.
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
        )  # first place of each, K at the end
        self.bounds = np.append(self.firsts, self.num_samples)[self.windows]  # slots at which windows begin and end
        self._kept: tuple[int, Ints] = (-1, self.firsts)

    def share(
        self, first: int, last: int, rank: int, world_size: int, ranks_of: RanksOf | None = None
    ) -> list[Stored]:  # fmt: skip
        """A rank's share of the samples in slots first to last - 1: places of blocks, and the rows in each.

        The samples are sorted by where they are stored, and cut into runs that differ by one sample at most. ranks_of:
        says the rank of each of them instead.
        """
        stored = np.sort(np.concatenate([np.zeros(0, np.int64), *self._stored(first, last)]))
        if ranks_of is not None:
            return self._located(stored[ranks_of(self._located(stored)) == rank])
        return self._located(stored[len(stored) * rank // world_size : len(stored) * (rank + 1) // world_size])

    def _located(self, stored: Ints) -> list[Stored]:
        """Places of the blocks of some samples, in order of where they are stored, and the rows in each."""
        places = np.searchsorted(self.firsts, stored, side="right") - 1
        cuts = np.flatnonzero(np.diff(places, prepend=-1, append=-1))
        return [(int(places[a]), stored[a:b] - self.firsts[places[a]]) for a, b in itertools.pairwise(cuts.tolist())]

    def windows_of(self, first: int, last: int) -> range:
        """The windows that slots first to last - 1 are in."""
        return range(self._window_of(first), self._window_of(last - 1) + 1)

    def _stored(self, first: int, last: int) -> Iterator[Ints]:
        """The samples of slots first to last - 1, window by window, numbered along the order of blocks."""
        window = self._window_of(first)
        while first < last:
            start, end = (int(each) for each in self.bounds[window : window + 2])
            yield self._window(window)[first - start : min(end, last) - start]
            first, window = end, window + 1

    def _window_of(self, slot: int) -> int:
        return int(np.searchsorted(self.bounds, slot, side="right")) - 1

    def _window(self, window: int) -> Ints:
        """The samples of all slots of a window; the last one asked for is kept."""
        if self._kept[0] != window:
            start, end = (int(each) for each in self.bounds[window : window + 2])
            self._kept = window, start + (self._drawn(window, end - start) if self.shuffle else np.arange(end - start))
        return self._kept[1]

    def _drawn(self, window: int, size: int) -> Ints:
        """The samples of a window in drawn order, in runs of those that stay together."""
        runs = permutation(self.seed, self.epoch, f"window {window}", -(-size // self.together))
        if self.together == 1:
            return runs
        samples = (runs[:, None] * self.together + np.arange(self.together)).ravel()
        return samples[samples < size]


def _block_order(sizes: Ints, seed: int, epoch: int, files: Sequence[tuple[int, int]]) -> Ints:
    """Blocks in drawn order; those of a file that is read from its beginning stay together."""
    bound = {block for first, last in files for block in range(first, last)}
    units = list(files)
    units += [(block, block + 1) for block in range(len(sizes)) if block not in bound]
    drawn: list[int] = permutation(seed, epoch, "blocks", len(units)).tolist()
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(*units[unit]) for unit in drawn)])


def _windows(sizes: Ints, window: int) -> Ints:
    """Indices of the blocks that begin a window: a window ends when it has so many samples and two blocks."""
    begins, held = [0], 0
    for at, size in enumerate(sizes.tolist()):
        if held >= window and at - begins[-1] >= 2:
            begins.append(at)
            held = 0
        held += size
    return np.array([*begins, len(sizes)], dtype=np.int64)
