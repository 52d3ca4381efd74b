"""Tables for ids without an upper limit: which ids are assigned one of the table's rows, and which lose it again."""

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
MOST_ADMIT = 2**20  # a larger number is taken for a mistake
# bytes per row: id; count and time last seen; slot; place in order
ID_BYTES, COUNT_BYTES, SLOT_BYTES, QUEUE_BYTES = 8, 12, 8, 12
WAITING_BYTES = 20  # bytes per row if ids wait for admission: an entry in the waiting list


@noun
class Dynamic:
    """How raw ids, which are any numbers from 0 to 2^63 - 1 instead of row numbers, are assigned rows of a table.

    admit: times an id must be seen, this time included, before it is assigned a row; until then it reads row 0, which
        is assigned to no id. As many ids can wait as the table has rows; beyond that, the id that has waited longest is
        forgotten.
    evict: which id loses its row to a new id, among those that the current batch does not hold: `lfu` the one seen
        least often, `lru` the one last seen longest ago, `age` the one that has had its row longest; `none` evicts
        none, and new ids read row 0 once all rows are taken.
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
        """The sentence that says which id loses its row."""
        return EVICTIONS[self.evict]

    @property
    def row_bytes(self) -> int:
        """Bytes of host memory that the id map takes for each row of the table, in addition to the row."""
        own = ID_BYTES + COUNT_BYTES + SLOT_BYTES + QUEUE_BYTES
        return own + (WAITING_BYTES if self.admit > 1 else 0)
