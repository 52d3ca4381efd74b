"""Access profiles: how unevenly the rows of a table are read."""

import math

from recsmith._types import noun
from recsmith.errors import UsageError

NUM_REUSE_BINS = 17  # (0,1], (1,2], (2,4] ... (16384,32768], >32768 reads of a row in the counted batch
STEEPEST_ZIPF = 10.0  # largest exponent of a profile; with it, nearly all reads go to one row
ROUNDED = 1e-3  # how far shares may be from adding up to 1: files round them


@noun
class AccessProfile:
    """How unevenly the rows of a table are read: a Zipf exponent, or 17 counted reuse bins.

    zipf: the i-th most read row is read in proportion to i ** -zipf; 0 is uniform.
    reuse_bins: share of the unique rows whose reads fall in (0,1], (1,2], (2,4] ... >32768 (NeuroShard's bins),
        counted over `lookups` reads of `unique_rows` different rows.
    """

    zipf: float | None = None
    reuse_bins: tuple[float, ...] | None = None
    lookups: int | None = None
    unique_rows: int | None = None

    def __post_init__(self) -> None:
        """Check that exactly one of the two forms is given, and is complete."""
        if (self.zipf is None) == (self.reuse_bins is None):
            raise UsageError(
                "an access profile is either {zipf} or {reuse_bins, lookups, unique_rows}; give one of the two"
            )
        if self.zipf is not None and not (math.isfinite(self.zipf) and 0 <= self.zipf <= STEEPEST_ZIPF):
            raise UsageError(f"zipf is {self.zipf}; it must lie between 0 (uniform) and {STEEPEST_ZIPF:g}")
        if self.reuse_bins is not None:
            self._check_bins(self.reuse_bins)

    def _check_bins(self, bins: tuple[float, ...]) -> None:
        if len(bins) != NUM_REUSE_BINS or any(not 0 <= share <= 1 for share in bins) or abs(sum(bins) - 1) > ROUNDED:
            raise UsageError(f"reuse_bins must be {NUM_REUSE_BINS} shares of the unique rows that add up to 1")
        if self.lookups is None or self.unique_rows is None or not 1 <= self.unique_rows <= self.lookups:
            raise UsageError(
                "reuse_bins need the `lookups` and `unique_rows` they were counted at (1 <= unique_rows <= lookups)"
            )
