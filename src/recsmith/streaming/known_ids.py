"""Counts ids that are new to a job, by bits of their hashes, which ranks can merge.

Only a sample of ids, chosen by their hash, is checked, since with all ids the bits of a period would soon be full. An
id is new if the previous period did not read it (two alternating Bloom filters with one hash: Bloom, "Space/Time
Trade-offs in Hash Coding with Allowable Errors", CACM 1970).

n ids, F features
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from recsmith._types import Ints
from recsmith.errors import CorruptFile
from recsmith.streaming.detectors.plain_state import PlainState, by_places
from recsmith.streaming.hot_sets import packed, unpacked

BITS, PART = 2**13, 32  # bits per feature; one in PART ids is checked; both are powers of 2
PERIOD = 32  # looks in a period
Bits = npt.NDArray[np.uint8]


class KnownIds(PlainState):
    """The sampled ids of all features that a job read in the previous period and in this one."""

    STATE = ("looks", "_kept")

    def __init__(self, features: int) -> None:
        self.looks = 0  # looks in the current period
        self._known: Bits | None = None  # ids of the previous period (F, BITS)
        self._read: Bits = np.zeros((features, BITS), np.uint8)  # ids of the current period, of this rank

    def count(self, rows: Ints, hashes: npt.NDArray[np.uint64]) -> Ints:
        """Numbers of checked ids and of new ones among them, of each feature (F, 2). rows: the feature of each hash."""
        features = len(self._read)
        chosen = np.flatnonzero((hashes >> np.uint64(32)) & np.uint64(PART - 1) == 0)
        rows, bits = rows[chosen], ((hashes[chosen] >> np.uint64(40)) & np.uint64(BITS - 1)).astype(np.int64)
        self._read[rows, bits] = 1
        if self._known is None:
            return np.zeros((features, 2), np.int64)
        there = np.any(self._known, axis=1)[rows]  # skip features not read before, of which all ids would be new
        rows, bits = rows[there], bits[there]
        new = rows[self._known[rows, bits] == 0]
        return np.column_stack([np.bincount(rows, minlength=features), np.bincount(new, minlength=features)])

    def with_features(self, places: Ints) -> "KnownIds":
        """The known ids of reordered features. places: the former row of each feature, -1 for new ones."""
        made, fresh = KnownIds(len(places)), np.zeros((1, BITS), np.uint8)
        made.looks, made._read = self.looks, by_places(self._read, places, fresh)
        made._known = None if self._known is None else by_places(self._known, places, fresh)
        return made

    def look(self, merge: Callable[[Bits], Bits]) -> None:
        """End a look; at the end of a period, its ids become the known ones. merge: merges the bits of all ranks."""
        self.looks += 1
        if self.looks < PERIOD:
            return
        self._known, self._read, self.looks = merge(self._read), np.zeros_like(self._read), 0

    def merged(self, merge: Callable[[Bits], Bits]) -> "KnownIds":
        """A copy with the ids that all ranks read in this period."""
        found = KnownIds(len(self._read))
        found.looks, found._known, found._read = self.looks, self._known, merge(self._read)
        return found

    @property
    def _kept(self) -> list[str]:
        return [packed_bits(each) for each in (self._read, self._known) if each is not None]

    @_kept.setter
    def _kept(self, texts: list[str]) -> None:
        parts = [unpacked_bits(text, self._read.shape) for text in texts]
        self._read, self._known = parts[0], parts[1] if len(parts) > 1 else None


def packed_bits(bits: Bits) -> str:
    """Bits as text for a JSON file."""
    return packed(np.packbits(bits).view("<i8"))


def unpacked_bits(text: str, shape: tuple[int, ...]) -> Bits:
    """The bits in a text of `packed_bits`; CorruptFile if they do not have this shape."""
    bits = np.unpackbits(unpacked(text).view(np.uint8))
    if bits.size != int(np.prod(shape)):
        raise CorruptFile("state of a watched job holds ids of other features; it is damaged")
    return bits.reshape(shape).copy()
