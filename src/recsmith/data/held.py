"""What a rank holds of a window: its blocks as one batch, of which each step takes its samples at once."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recsmith._types import Ints
from recsmith.data.batch import concatenated
from recsmith.data.deduplication import deduplicated
from recsmith.data.source import Block


class HeldBlocks:
    """The blocks of a window that were read so far, joined.

    groups: features of which only distinct bags are held. Cost: blocks that come later copy all that is held, so give
    those that a step needs together. Memory: twice the blocks, while they are joined.
    """

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self.groups = groups
        self._firsts: dict[int, int] = {}  # row of each block's first sample, by place
        self._block: Block | None = None

    def missing(self, places: Sequence[int]) -> list[int]:
        """Which of these places of blocks are not held."""
        return [place for place in places if place not in self._firsts]

    def add(self, blocks: dict[int, Block]) -> None:
        """Hold more blocks, given by place."""
        held = [] if self._block is None else [self._block]
        first = sum(len(each.samples) for each in held)
        for place, block in blocks.items():
            self._firsts[place] = first
            first += len(block.samples)
            held.append(replace(block, samples=deduplicated(block.samples, self.groups, nearby=True)))
        self._block = _joined(held, self.groups)

    def rows(self, share: Sequence[tuple[int, Ints]]) -> Ints:
        """Rows of what is held, of rows in each place."""
        return np.concatenate([np.zeros(0, np.int64), *(self._firsts[place] + rows for place, rows in share)])

    @property
    def block(self) -> Block:
        """All that is held."""
        assert self._block is not None  # something was added
        return self._block


def _joined(blocks: Sequence[Block], groups: Sequence[Sequence[str]]) -> Block:
    samples = deduplicated(concatenated([each.samples for each in blocks]), groups)
    if all(each.valid is None for each in blocks):
        return Block(samples=samples)
    valid = [np.ones(len(each.samples), np.bool_) if each.valid is None else each.valid for each in blocks]
    words = next(each.first_corrupt for each in blocks if each.valid is not None)
    return Block(samples=samples, valid=np.concatenate(valid), first_corrupt=words)
