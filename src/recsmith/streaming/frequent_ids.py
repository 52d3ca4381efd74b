"""Finds an id that newly takes a large share of a feature, from counts of hash bits that ranks can add up.

Cormode and Muthukrishnan, "What's Hot and What's Not: Tracking Most Frequent Items Dynamically", PODS 2003, count bits
in groups of ids. Here the group is the feature. An id that takes the share t of it moves the shares of all 64 bits
together, from u to (1 - t) u + t h, where h are the bits of its hash. So the signs of the moves give the hash, and
the hash can be inverted to the id.

F features, K bits
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from recsmith._random import unmixed
from recsmith._types import Floats, Ints
from recsmith.errors import CorruptFile
from recsmith.streaming.detectors.plain_state import PlainState, by_places
from recsmith.streaming.hot_sets import packed, unpacked
from recsmith.streaming.job_sums import BITS, FEATURE, JobSums

LEARN = 0.05  # weight of a look in the usual shares
LOOKS, WINDOW = 8, 4  # looks that the usual shares need; number of newest looks that are compared with them
SHARE, FAR = 0.1, 6.0  # least share of a feature that an id newly takes; deviations by which shares of bits must move
VARIED = 0.05  # least share of 0s and of 1s for which a bit is informative
MOST = 2**40  # bound of ids; the bits of no id give a number below it with a probability of 2**-24
WEIGHTS = np.uint64(1) << np.arange(BITS, dtype=np.uint64)
SAMPLED = FEATURE.index("sampled")


class FrequentIds(PlainState):
    """Watches the shares of hash bits in all features of a job."""

    STATE = ("_kept",)

    def __init__(self, features: int) -> None:
        self._usual = np.full((features, BITS), 0.5)
        self._looks = np.zeros(features, np.int64)  # number of learned looks, by feature
        self._last = np.zeros((0, features, BITS + 1), np.int64)  # newest looks: counts of bits, and number of ids

    def look(self, sums: JobSums) -> Iterator[tuple[int, int, float]]:
        """(row of the feature, id, share) of each id that takes a share of SHARE or more beyond what is usual."""
        now = np.column_stack([sums.bits, sums.features[:, SAMPLED]]).astype(np.int64)
        if len(self._last) == WINDOW:
            self._learn(self._last[0])
        self._last = np.concatenate([self._last, now[None]])[-WINDOW:]
        total = self._last.sum(0)
        count, known = total[:, BITS], self._looks >= LOOKS
        shares = total[:, :BITS] / np.maximum(count, 1)[:, None]
        for row in np.flatnonzero(known & (count > 0) & moved_far(self._usual, shares, count)).tolist():
            found = one_id(self._usual[row], shares[row])
            if found is not None:
                yield row, *found

    def with_features(self, places: Ints) -> "FrequentIds":
        """The watch of reordered features. places: the former row of each feature, -1 for new ones."""
        made, fresh = FrequentIds(len(places)), FrequentIds(1)
        made._usual = by_places(self._usual, places, fresh._usual)
        made._looks = by_places(self._looks, places, fresh._looks)
        made._last = by_places(self._last, places, np.zeros((len(self._last), 1, BITS + 1), np.int64), 1)
        return made

    def _learn(self, look: np.ndarray) -> None:
        """Update the usual shares with a look (F, K + 1) that has left the compared window."""
        for row in np.flatnonzero(look[:, BITS]).tolist():
            shares = look[row, :BITS] / look[row, BITS]
            self._usual[row] += (shares - self._usual[row]) * max(LEARN, 1 / (self._looks[row] + 1))
            self._looks[row] += 1

    @property
    def _kept(self) -> list[object]:
        """Usual shares, their numbers of looks, and the last looks, in the form of the state."""
        return [packed(part.ravel()) for part in (self._usual.view(np.int64), self._looks, self._last)]

    @_kept.setter
    def _kept(self, texts: list[str]) -> None:
        usual, looks, last = (unpacked(text) for text in texts)
        shares, newest = usual.view(np.float64), last.reshape(-1, *self._last.shape[1:])
        ids = newest[:, :, BITS:]
        if not ((shares >= 0) & (shares <= 1)).all() or (looks < 0).any() or (newest < 0).any() or (newest > ids).any():
            raise CorruptFile("state of a watched job counts more bits than ids, or fewer than none; it is damaged")
        self._usual = shares.reshape(self._usual.shape).copy()
        self._looks, self._last = looks.reshape(self._looks.shape).copy(), newest


def moved_far(usual: Floats, shares: Floats, count: Ints) -> npt.NDArray[np.bool_]:
    """Features (F,) of which at least half of the informative bits have shares far from the usual ones.

    usual, shares: shares of the bits (F, K). count: number of ids from which shares were counted (F,).
    """
    varied = said(usual)
    deviation = np.sqrt(np.maximum(usual * (1 - usual), VARIED * (1 - VARIED)) / np.maximum(count, 1)[:, None])
    far = varied & (np.abs(shares - usual) >= FAR * deviation)
    return far.any(1) & (2 * far.sum(1) >= varied.sum(1))


def said(usual: Floats) -> npt.NDArray[np.bool_]:
    """Which bits are informative: both values are frequent enough."""
    return np.minimum(usual, 1 - usual) >= VARIED


def one_id(usual: Floats, shares: Floats) -> tuple[int, float] | None:
    """(id, share) of a single id that explains how the shares of bits (K,) moved from the usual ones; else None."""
    varied = said(usual)
    moved, u = (shares - usual)[varied], usual[varied]
    share = float(np.median(np.where(moved > 0, moved / (1 - u), -moved / u)))
    if share < SHARE:
        return None
    bits = shares - (1 - share) * usual > share / 2
    found = int(unmixed(WEIGHTS[bits].sum(dtype=np.uint64, keepdims=True))[0])
    return (found, share) if found < MOST else None
