"""The hot set of a feature: which ids most lookups read at first, and whether as many of them do so later.

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

HOT, LOOKS = 256, 64  # ids of a hot set; looks whose ids it is chosen from
DELTA = 2e-3  # of ADWIN: chance of a false alarm that one of its tests may have
FAR, LEAST, IN_A_ROW = 8.0, 0.1, 3  # deviations, and share of lookups, by which so many looks in a row are sudden


class HotSet(PlainState):
    """Which ids are hot, and whether the share of lookups that read them changes.

    ADWIN finds slow changes. A sudden one, such as a swap, is found sooner: some looks in a row are far from the moving
    mean of the share, in robust deviations and by itself.
    On one rank: `add(ids)`. On several, each collects and counts its own ids, and all judge the sums.
    hot: ids of the set. looks: whose ids it is chosen from. After an alarm it is chosen anew.
    """

    STATE = ("share", "usual", "_looks", "_detector", "_moving", "_far", "_chosen", "_counts")

    def __init__(self, *, hot: int = HOT, looks: int = LOOKS, delta: float = DELTA) -> None:
        self.hot, self.looks, self.delta = hot, looks, delta
        self.share, self.usual = 0.0, 0.0  # of the last look, and its mean since the set was chosen
        self.begin()

    def begin(self) -> None:
        """Choose a set anew."""
        self._looks = 0
        self._detector = Adwin(delta=self.delta, scale=1.0)
        self._moving, self._far = Ewma(half_life=60.0, warm=16), 0  # looks in a row that are far from the mean
        self._ids: Ints | None = None  # of the hot set, sorted
        self._seen: list[tuple[Ints, Ints]] = []  # ids and counts of looks, until the set is chosen

    @property
    def chosen(self) -> bool:
        """Whether the hot set is known."""
        return self._ids is not None

    @property
    def full(self) -> bool:
        """Whether as many looks were collected as the set is chosen from."""
        return not self.chosen and self._looks >= self.looks

    def count(self, ids: Ints) -> int:
        """How many of a look's ids (n,) are hot; while the set is not chosen they are collected, and none is."""
        if self._ids is None:
            self._seen.append(np.unique(ids, return_counts=True))
            self._looks += 1
            return 0
        if not len(ids) or not len(self._ids):
            return 0
        place = np.searchsorted(self._ids, ids)
        return int((self._ids[np.minimum(place, len(self._ids) - 1)] == ids).sum())

    def collected(self) -> tuple[Ints, Ints]:
        """The ids that this rank collected, each once, and how often each was read."""
        return added_up(self._seen)

    def choose(self, ids: Ints, counts: Ints) -> None:
        """Take the most read of these as the hot set; ties go to the smaller id."""
        first = np.lexsort((ids, -counts))[: self.hot]
        self._ids, self._seen = np.sort(ids[first]), []
        self.usual = float(counts[first].sum() / max(int(counts.sum()), 1))

    def judge(self, hits: int, lookups: int) -> str | None:
        """What happened, where the share of lookups that read the hot set changed; then it is chosen anew."""
        if not self.chosen or not lookups:
            return None
        self.share = hits / lookups
        if not self._changed(self.share):
            self.usual += 0.01 * (self.share - self.usual)
            return None
        told = f"{self.usual:.0%} of lookups read the {self.hot} hottest ids, and {self.share:.0%} do now"
        self.begin()
        return told

    def _changed(self, share: float) -> bool:
        """Whether the share changed, slowly or suddenly."""
        far = self._moving.score(share) > FAR and abs(share - self.usual) > LEAST
        self._far = self._far + 1 if far else 0
        return bool(self._detector.score(share)) or self._far >= IN_A_ROW

    def add(self, ids: Ints) -> str | None:
        """Look at some ids (n,) of one rank; what happened, where the hot set changed."""
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
        """What was collected, as state keeps it."""
        return [packed(part) for part in self.collected()] if self._seen else []

    @_counts.setter
    def _counts(self, texts: list[str]) -> None:
        self._seen = [(unpacked(texts[0]), unpacked(texts[1]))] if texts else []

    def forget_counts(self) -> None:
        """Drop what this rank collected: another one has it."""
        self._seen = []


def added_up(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Ids, each once, and the sums of their counts."""
    if not parts:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ids, place = np.unique(np.concatenate([ids for ids, _ in parts]), return_inverse=True)
    return ids, np.bincount(place, np.concatenate([counts for _, counts in parts])).astype(np.int64)


def packed(numbers: Ints) -> str:
    """Whole numbers as text of a JSON file."""
    return base64.b64encode(zlib.compress(np.asarray(numbers, "<i8").tobytes(), 1)).decode()


def unpacked(text: Any) -> Ints:
    """Whole numbers of `packed`; CorruptFile where the text is none of its."""
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), "<i8").astype(np.int64)
    except (TypeError, ValueError, zlib.error) as error:
        raise CorruptFile(f"state of a watched job holds no packed numbers: {error}; it is damaged") from None
