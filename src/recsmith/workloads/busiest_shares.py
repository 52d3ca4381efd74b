"""How busy the busiest of equal blocks of rows is, batch by batch, and how much that differs between batches.

Legend: H halvings of all rows, to 2, 4, 8 ... blocks; I ids of a batch.
"""

from dataclasses import dataclass, field

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.files import Raw

HALVINGS = 7  # of all rows, to blocks that are counted
BLOCKS = 2**HALVINGS  # that are counted; trade-off: more tell apart the blocks of more ranks, and make larger files


def busiest_shares(ids: Ints, rows: int) -> Floats:
    """The share of a batch's lookups in the busiest of 2, 4, 8 ... BLOCKS equal blocks of rows (H,).

    Which block is the busiest is asked of every other id, and how busy it is of those between. So chance alone makes no
    block of a small batch busier than those of a large one.
    """
    block = ids * BLOCKS // rows
    one, other = block[::2], block[1::2]
    counts, others = (np.bincount(each, minlength=BLOCKS) for each in (one, other))
    found: list[float] = []
    for _ in range(HALVINGS):  # from the smallest blocks on
        of_other, of_one = others[counts.argmax()] / max(len(other), 1), counts[others.argmax()] / max(len(one), 1)
        found.append((of_other + of_one) / 2)
        counts, others = counts[::2] + counts[1::2], others[::2] + others[1::2]
    return np.array(found[::-1])


def _none() -> Floats:
    return np.zeros(HALVINGS)


@dataclass
class BusiestShares:
    """Sums over batches of their ids, of these times the shares (H,) of the busiest blocks, and times their squares."""

    ids: int = 0
    shares: Floats = field(default_factory=_none)
    squares: Floats = field(default_factory=_none)

    def add(self, ids: Ints, rows: int) -> None:
        """Count one more batch."""
        if len(ids):
            found = busiest_shares(ids, rows)
            self.merge(BusiestShares(len(ids), len(ids) * found, len(ids) * found**2))

    def merge(self, other: "BusiestShares") -> None:
        """Add what another one has counted."""
        self.ids += other.ids
        self.shares = self.shares + other.shares
        self.squares = self.squares + other.squares

    @property
    def mean(self) -> tuple[float, ...]:
        """Shares in the mean of batches, by their ids."""
        return tuple((self.shares / max(self.ids, 1)).tolist())

    @property
    def deviation(self) -> tuple[float, ...]:
        """The standard deviation of the shares of batches."""
        variance = self.squares / max(self.ids, 1) - (self.shares / max(self.ids, 1)) ** 2
        return tuple(np.sqrt(np.maximum(variance, 0.0)).tolist())

    def to_raw(self) -> Raw:
        """Plain data, of which `from_raw` makes it again."""
        return {"ids": self.ids, "busiest": self.shares.tolist(), "busiest_squares": self.squares.tolist()}

    @classmethod
    def from_raw(cls, raw: Raw) -> "BusiestShares":
        """What `to_raw` gave; without squares, as of files of before, batches are taken to be alike.

        Raises:
            ValueError: it is damaged.
        """
        ids, shares = int(raw["ids"]), np.array(raw.get("busiest", [0.0] * HALVINGS), dtype=np.float64)
        squares = np.array(raw.get("busiest_squares", shares**2 / max(ids, 1)), dtype=np.float64)
        for name, sums in (("busiest", shares), ("busiest_squares", squares)):
            if sums.shape != (HALVINGS,) or not ((sums >= 0) & (sums <= ids)).all():
                raise ValueError(f"'{name}' are not {HALVINGS} numbers from 0 to the {ids:,} ids")
        return cls(ids, shares, squares)
