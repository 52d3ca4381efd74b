"""Tables of ids without end: which ids get a row of a table that has fewer, and which of them lose it again."""

from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules

Eviction = Literal["lfu", "lru", "age", "none"]
EVICTIONS: dict[Eviction, str] = {
    "lfu": "the id that was seen least often loses its row; of these the one that was last seen longest ago, and of "
    "these the smallest",
    "lru": "the id that was last seen longest ago loses its row; of these the one that was seen least often, and of "
    "these the smallest",
    "age": "the id that has had its row for the longest time loses it; of these the smallest",
    "none": "no id loses its row; once all rows are taken, new ids read row 0",
}
MOST_ADMIT = 2**20  # more is taken for a mistake
ID_BYTES, COUNT_BYTES, SLOT_BYTES, QUEUE_BYTES = 8, 12, 8, 12  # of a row: its id, how often and when, place, order
WAITING_BYTES = 20  # of a row, where ids wait: a place in the list of those that do


@noun
class Dynamic:
    """How the raw ids of a table get its rows: by numbers of any size from 0 to 2^63 - 1, which no row has by itself.

    admit: times an id must have been seen before it has a row, that time counted; until then it reads row 0, which no
    id has for itself. As many ids wait as the table has rows, and of more the one that began to wait first is
    forgotten. evict: which id of those that a batch does not hold loses its row to a new one: `lfu` the one that was
    seen least often, `lru` the one that was last seen longest ago, `age` the one that has had its row for the longest
    time; `none` keeps all, and new ids read row 0 once rows are taken.
    """

    admit: int = 1
    evict: Eviction = "lru"

    def __post_init__(self) -> None:
        check_rules(
            None
            if 1 <= self.admit <= MOST_ADMIT
            else f"admit is {self.admit}; an id gets a row when it was seen so often, 1 to {MOST_ADMIT:,} times"
        )

    @property
    def rule(self) -> str:
        """Which id loses its row, in a sentence."""
        return EVICTIONS[self.evict]

    @property
    def row_bytes(self) -> int:
        """Bytes of host memory that the map of ids takes for each row of the table, beside the row."""
        own = ID_BYTES + COUNT_BYTES + SLOT_BYTES + QUEUE_BYTES
        return own + (WAITING_BYTES if self.admit > 1 else 0)
