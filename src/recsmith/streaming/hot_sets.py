"""The hot set of a feature: the ids that lookups read most, and changes of the share of lookups that read them.

n sampled ids of a look
"""

import base64
import zlib
from typing import Any

import numpy as np

from recsmith._types import Ints
from recsmith.errors import CorruptFile
from recsmith.streaming.detectors.adwin import Adwin
from recsmith.streaming.detectors.ewma import Ewma
from recsmith.streaming.detectors.plain_state import PlainState

HOT, LOOKS = 256, 64  # ids in a hot set; looks from whose ids it is chosen
DELTA = 2e-3  # ADWIN's probability of a false alarm per test
FAR, LEAST, IN_A_ROW = 8.0, 0.1, 3  # a sudden change: deviations, share of lookups, and number of looks in a row


class HotSet(PlainState):
    """Chooses the hot ids, and detects changes of the share of lookups that read them.

    ADWIN detects slow changes. A sudden one, such as a swap, is detected sooner: several looks in a row are far from
    the moving mean of the share, both in robust deviations and absolutely.
    On one rank, call `add(ids)`. On several ranks, each collects and counts its own ids, and all judge the sums.
    hot: number of ids in the set. looks: number of looks from which it is chosen. After an alarm it is chosen anew.
    """

    STATE = ("share", "usual", "_looks", "_detector", "_moving", "_far", "_chosen", "_counts")

    def __init__(self, *, hot: int = HOT, looks: int = LOOKS, delta: float = DELTA) -> None:
        self.hot, self.looks, self.delta = hot, looks, delta
        self.share, self.usual = 0.0, 0.0  # share of hot lookups in the last look, and its usual value
        self.begin()

    def begin(self) -> None:
        """Start to choose a new hot set."""
        self._looks = 0
        self._detector = Adwin(delta=self.delta, scale=1.0)
        self._moving, self._far = Ewma(half_life=60.0, warm=16), 0  # moving mean; looks in a row that are far from it
        self._ids: Ints | None = None  # ids of the hot set, sorted
        self._seen: list[tuple[Ints, Ints]] = []  # ids and counts of each look until the set is chosen

    @property
    def chosen(self) -> bool:
        """Whether the hot set is chosen."""
        return self._ids is not None

    @property
    def full(self) -> bool:
        """Whether enough looks were collected to choose the hot set."""
        return not self.chosen and self._looks >= self.looks

    def count(self, ids: Ints) -> int:
        """Number of hot ids among those of a look (n,); until the set is chosen, ids are collected and none is hot."""
        if self._ids is None:
            self._seen.append(np.unique(ids, return_counts=True))
            self._looks += 1
            return 0
        if not len(ids) or not len(self._ids):
            return 0
        place = np.searchsorted(self._ids, ids)
        return int((self._ids[np.minimum(place, len(self._ids) - 1)] == ids).sum())

    def collected(self) -> tuple[Ints, Ints]:
        """(different ids that this rank collected, how often each was read)."""
        return added_up(self._seen)

    def choose(self, ids: Ints, counts: Ints) -> None:
        """Take the most read ids as the hot set; of equal counts, the smaller id."""
        first = np.lexsort((ids, -counts))[: self.hot]
        self._ids, self._seen = np.sort(ids[first]), []
        self.usual = float(counts[first].sum() / max(int(counts.sum()), 1))

    def judge(self, hits: int, lookups: int) -> str | None:
        """A text about a change of the share of lookups that read the hot set, which is then chosen anew; else None."""
        if not self.chosen or not lookups:
            return None
        self.share = hits / lookups
        if not self._changed(self.share):
            self.usual += 0.01 * (self.share - self.usual)
            return None
        text = f"{self.usual:.0%} of lookups read the {self.hot} hottest ids, and {self.share:.0%} do now"
        self.begin()
        return text

    def _changed(self, share: float) -> bool:
        """Whether the share has changed, slowly or suddenly."""
        far = self._moving.score(share) > FAR and abs(share - self.usual) > LEAST
        self._far = self._far + 1 if far else 0
        return bool(self._detector.score(share)) or self._far >= IN_A_ROW

    def add(self, ids: Ints) -> str | None:
        """Process the ids of a look (n,) on a single rank; returns a text if the share of hot lookups changed."""
        hits = self.count(ids)
        if self.full:
            self.choose(*self.collected())
            return None
        return self.judge(hits, len(ids))

    @property
    def _chosen(self) -> str | None:
        return None if self._ids is None else packed(self._ids)

    @_chosen.setter
    def _chosen(self, text: str | None) -> None:
        self._ids = None if text is None else unpacked(text)

    @property
    def _counts(self) -> list[str]:
        """The collected ids and counts, in the form of the state."""
        return [packed(part) for part in self.collected()] if self._seen else []

    @_counts.setter
    def _counts(self, texts: list[str]) -> None:
        self._seen = [(unpacked(texts[0]), unpacked(texts[1]))] if texts else []

    def forget_counts(self) -> None:
        """Drop the ids that this rank collected, when another rank has them."""
        self._seen = []


def added_up(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """(different ids, sums of their counts) of several parts."""
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ids, place = np.unique(np.concatenate([ids for ids, _ in parts]), return_inverse=True)
    return ids, np.bincount(place, np.concatenate([counts for _, counts in parts])).astype(np.int64)


def packed(numbers: Ints) -> str:
    """Whole numbers as text for a JSON file."""
    return base64.b64encode(zlib.compress(np.asarray(numbers, "<i8").tobytes(), 1)).decode()


def unpacked(text: Any) -> Ints:
    """The whole numbers in a text of `packed`; CorruptFile for any other text."""
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), "<i8").astype(np.int64)
    except (TypeError, ValueError, zlib.error) as error:
        raise CorruptFile(f"state of a watched job holds no packed numbers: {error}; it is damaged") from None
