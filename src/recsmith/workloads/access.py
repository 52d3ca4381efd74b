"""How unevenly the rows of a table are read, and where its most read rows are."""

import math
from dataclasses import replace
from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.units import counted

NUM_REUSE_BINS = 17  # (0,1], (1,2], (2,4] ... (16384,32768], >32768 reads of a row in the counted batch
STEEPEST_ZIPF = 10.0  # largest exponent of a profile; with it, nearly all reads go to one row
ROUNDED = 1e-3  # largest deviation from 1 of the sum of shares: files round shares
MOST_BLOCKS = 65_536  # most blocks of rows in a profile; more are taken for a mistake
MOST_HALVINGS = 16  # halvings of all rows, to 2, 4, 8 ... blocks

HotRows = Literal["scattered", "in_front"]
"""Where the rows lie that are read most: anywhere, as hashed ids are, or in front, as ids that go by frequency."""


@noun
class AccessProfile:
    """How unevenly the rows of a table are read, and where its most read rows are.

    zipf: the i-th most read row is read in proportion to i ** -zipf; 0 is uniform.
    reuse_bins: share of the unique rows whose reads fall in (0,1], (1,2], (2,4] ... >32768 (NeuroShard's bins),
        counted over `lookups` reads of `unique_rows` different rows.
    block_lookups: reads of each of K equal blocks of rows, in order of rows, as counts or as shares.
    block_unique_rows: different rows that a batch reads in each of these blocks.
    busiest_lookups: the share of a batch's lookups in its busiest of 2, 4, 8, ... equal blocks, averaged over batches.
        If different rows are hot in different batches, it is more than the share of the busiest block over all batches.
    busiest_deviation: the standard deviation of these shares between batches.
    hot_rows: where the most read rows are, if blocks were not counted.
    """

    zipf: float | None = None
    reuse_bins: tuple[float, ...] | None = None
    lookups: int | None = None
    unique_rows: int | None = None
    block_lookups: tuple[float, ...] | None = None
    block_unique_rows: tuple[float, ...] | None = None
    busiest_lookups: tuple[float, ...] | None = None
    busiest_deviation: tuple[float, ...] | None = None
    hot_rows: HotRows | None = None

    def __post_init__(self) -> None:
        nowhere = self.block_lookups is None and self.hot_rows is None
        if (self.zipf is not None and self.reuse_bins is not None) or (
            self.zipf is None and self.reuse_bins is None and nowhere
        ):
            raise UsageError(
                "an access profile is either {zipf} or {reuse_bins, lookups, unique_rows}; give one of the two, or "
                "none of them and block_lookups or hot_rows"
            )
        if self.zipf is not None and not (math.isfinite(self.zipf) and 0 <= self.zipf <= STEEPEST_ZIPF):
            raise UsageError(f"zipf is {self.zipf}; it must lie between 0 (uniform) and {STEEPEST_ZIPF:g}")
        if self.reuse_bins is not None:
            self._check_bins(self.reuse_bins)
        self._check_blocks()

    def scattered(self) -> "AccessProfile":
        """The profile without its information on where the hot rows are."""
        return replace(
            self,
            block_lookups=None,
            block_unique_rows=None,
            busiest_lookups=None,
            busiest_deviation=None,
            hot_rows=None,
        )

    def _check_bins(self, bins: tuple[float, ...]) -> None:
        if len(bins) != NUM_REUSE_BINS or any(not 0 <= share <= 1 for share in bins) or abs(sum(bins) - 1) > ROUNDED:
            raise UsageError(
                f"reuse_bins must be {NUM_REUSE_BINS} shares of the unique rows, from 0 to 1, that add up to 1; these "
                f"are {counted(len(bins), 'share')} that {'adds' if len(bins) == 1 else 'add'} up to {sum(bins):.4g}"
            )
        if self.lookups is None or self.unique_rows is None or not 1 <= self.unique_rows <= self.lookups:
            raise UsageError(
                "reuse_bins need the `lookups` and `unique_rows` they were counted at (1 <= unique_rows <= lookups); "
                f"these are {self.lookups or 'missing'} and {self.unique_rows or 'missing'}"
            )

    def _check_blocks(self) -> None:
        by_block = self.block_lookups is not None
        if by_block and self.hot_rows is not None:
            raise UsageError(
                f"an access profile has block_lookups and also hot_rows {self.hot_rows}; the counted blocks say where "
                "hot rows lie, so leave hot_rows out"
            )
        if self.block_unique_rows is not None and (
            self.block_lookups is None or len(self.block_unique_rows) != len(self.block_lookups)
        ):
            raise UsageError("block_unique_rows need block_lookups of the same blocks; give both, of equally many")
        for name, shares in (("busiest_lookups", self.busiest_lookups), ("busiest_deviation", self.busiest_deviation)):
            if shares is not None and (
                not by_block or not 1 <= len(shares) <= MOST_HALVINGS or not all(0 <= share <= 1 for share in shares)
            ):
                raise UsageError(
                    f"{name} are shares, from 0 to 1, of the busiest of 2, 4, 8, ... blocks, at most "
                    f"{MOST_HALVINGS}; give block_lookups beside them"
                )
        for name, amounts in (("block_lookups", self.block_lookups), ("block_unique_rows", self.block_unique_rows)):
            wrong = amounts is not None and not all(math.isfinite(each) and each >= 0 for each in amounts)
            if wrong or (
                amounts is not None and not (1 <= len(amounts) <= MOST_BLOCKS and 0 < sum(amounts) < math.inf)
            ):
                raise UsageError(
                    f"{name} must be counts or shares, finite and 0 or more, of 1 to {MOST_BLOCKS:,} equal blocks of "
                    "rows, of which one is above 0"
                )
