"""Which tables a round of planning anew may move, and how the others are held."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import escape

from recsmith.planning.carried import Carried
from recsmith.plans import Placement
from recsmith.problems import Constraints, Pin, TableRule
from recsmith.sharding import TYPE_NAMES

COPIES = "data_parallel"
COPIED = 0.1  # of what may move, for tables that become data_parallel: they are received on all devices
LARGEST_COPIES = 0.01  # of what may move, for the copies of one table; trade-off: larger ones leave less to others
UNCOPIED = tuple(name for name in TYPE_NAMES if name != COPIES)


@dataclass(frozen=True)
class Freed:
    """Tables that a round may place anew. names: of all. copied: of those that may also become data_parallel."""

    names: frozenset[str]
    copied: frozenset[str]

    def share(self, carried: Carried) -> float:
        """Their part of the weights of all tables that stay."""
        return sum(carried.sizes[name] for name in self.names) / max(sum(carried.sizes.values()), 1)

    def constraints(self, given: Constraints, placements: Sequence[Placement]) -> Constraints:
        """The given constraints; besides, these placements stay as they are but for free tables."""
        pins = (
            TableRule(tables=escape(each.table), pin=Pin.of(each))
            for each in placements
            if each.table not in self.names
        )
        split = (
            TableRule(tables=escape(each.table), sharding_types=UNCOPIED)
            for each in placements
            if each.table in self.names - self.copied and each.sharding_type != COPIES
        )
        return replace(given, rules=(*given.rules, *pins, *split))


def free_tables(
    carried: Carried, moved: dict[str, int], limit: int, tried: frozenset[str], world: int, order: Sequence[str]
) -> Freed:
    """Tables whose bytes stay within the limit, together with what the others have moved; untried ones first.

    Any placement moves a table's bytes at most once, but for copies on all `world` devices. moved: bytes that each
    table moves as it is placed now. order: of the tables that may be freed. Those without a placement are free as well.
    """
    left = limit - sum(moved.values())
    names, copied = set[str](), set[str]()
    for group in ([name for name in order if name not in tried], [name for name in order if name in tried]):
        for_copies = min(COPIED * limit, left)
        for name in group:
            copies = carried.sizes[name] * (world - 1)
            if copies <= min(LARGEST_COPIES * limit, for_copies):
                copied.add(name)
                for_copies -= copies
                left -= copies
        for name in group:
            more = 0 if name in copied else carried.sizes[name] - moved.get(name, 0)
            if more <= left:
                names.add(name)
                left -= more
    return Freed(frozenset(names), frozenset(copied))
