"""The share of lookups in the busiest of equal row blocks in each batch, and how much it varies between batches.

Legend: H halvings of all rows, to 2, 4, 8 ... blocks; I ids of a batch.
"""

from dataclasses import dataclass, field

import numpy as np

from recsmith._types import Floats, Ints
from recsmith.files import Raw

HALVINGS = 7  # halvings of all rows, down to the counted blocks
BLOCKS = 2**HALVINGS  # blocks counted; trade-off: more blocks resolve the blocks of more ranks, and make larger files


def busiest_shares(ids: Ints, rows: int) -> Floats:
    """The share of a batch's lookups in the busiest of 2, 4, 8 ... BLOCKS equal blocks of rows (H,).

    One half of the ids (every second one) selects the busiest block, and the other half gives its share; both ways are
    averaged. So chance alone does not make the busiest block of a small batch look busier than that of a large one.
    """
    block = ids * BLOCKS // rows
    one, other = block[::2], block[1::2]
    counts, others = (np.bincount(each, minlength=BLOCKS) for each in (one, other))
    found: list[float] = []
    for _ in range(HALVINGS):  # from the smallest blocks to the largest
        of_other, of_one = others[counts.argmax()] / max(len(other), 1), counts[others.argmax()] / max(len(one), 1)
        found.append((of_other + of_one) / 2)
        counts, others = counts[::2] + counts[1::2], others[::2] + others[1::2]
    return np.array(found[::-1])


def _none() -> Floats:
    return np.zeros(HALVINGS)


@dataclass
class BusiestShares:
    """Sums over batches: of ids, of ids times the busiest blocks' shares (H,), and of ids times the squared shares."""

    ids: int = 0
    shares: Floats = field(default_factory=_none)
    squares: Floats = field(default_factory=_none)

    def add(self, ids: Ints, rows: int) -> None:
        """Add the ids of one more batch."""
        if len(ids):
            found = busiest_shares(ids, rows)
            self.merge(BusiestShares(len(ids), len(ids) * found, len(ids) * found**2))

    def merge(self, other: "BusiestShares") -> None:
        """Add the sums of another instance."""
        self.ids += other.ids
        self.shares = self.shares + other.shares
        self.squares = self.squares + other.squares

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean shares over batches, weighted by their ids."""
        return tuple((self.shares / max(self.ids, 1)).tolist())

    @property
    def deviation(self) -> tuple[float, ...]:
        """The standard deviation of the shares between batches."""
        variance = self.squares / max(self.ids, 1) - (self.shares / max(self.ids, 1)) ** 2
        return tuple(np.sqrt(np.maximum(variance, 0.0)).tolist())

    def to_raw(self) -> Raw:
        """Plain data from which `from_raw` restores the sums."""
        return {"ids": self.ids, "busiest": self.shares.tolist(), "busiest_squares": self.squares.tolist()}

    @classmethod
    def from_raw(cls, raw: Raw) -> "BusiestShares":
        """The sums from the data of `to_raw`; if older files have no squares, all batches are assumed to be equal.

        Raises:
            ValueError: the data is damaged.
        """
        ids, shares = int(raw["ids"]), np.array(raw.get("busiest", [0.0] * HALVINGS), dtype=np.float64)
        squares = np.array(raw.get("busiest_squares", shares**2 / max(ids, 1)), dtype=np.float64)
        for name, sums in (("busiest", shares), ("busiest_squares", squares)):
            if sums.shape != (HALVINGS,) or not ((sums >= 0) & (sums <= ids)).all():
                raise ValueError(f"'{name}' are not {HALVINGS} numbers from 0 to the {ids:,} ids")
        return cls(ids, shares, squares)
