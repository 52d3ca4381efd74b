"""Many placements of the same items side by side: each step places the next item of every episode.

A device is masked where it has no room for the item. Where every device is masked the episode has come to a dead end:
the item stays NOWHERE, the episode is marked, and goes on with the next item, so that whoever plans may repair it. No
step ever puts an item where it does not fit.

Legend: E episodes, N items, D devices.
"""

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.planners.placing.items import ItemBatch
from recsmith.planners.search.assignment import NOWHERE


class Episodes:
    """E placements under way. step: the item that is placed next. target (E, N): where items went, NOWHERE before.

    free (E, D): bytes left. dead (E,): whether some item found no room.
    """

    def __init__(self, items: ItemBatch, count: int) -> None:
        self.items, self.step = items, 0
        self.free = np.repeat(items.free[None], count, axis=0)
        self.target = np.full((count, len(items)), NOWHERE)
        self.dead = np.zeros(count, dtype=bool)
        self._each = np.arange(count)

    @property
    def done(self) -> bool:
        """Whether every item has had its turn."""
        return self.step == len(self.items)

    def room(self) -> Bools:
        """Which devices have room for the next item (E, D)."""
        room = self.free >= self.items.bytes[self.step]
        return room if self.items.open is None else room & self.items.open[self.step]

    def place(self, device: Ints) -> Bools:
        """Put the next item of each episode on a device (E,); whether it was placed (E,): devices must have room."""
        size = self.items.bytes[self.step]
        fits = self.room()[self._each, device]
        self.free[self._each[fits], device[fits]] -= size
        self.target[fits, self.step] = device[fits]
        self.dead |= ~fits
        self.step += 1
        return fits
