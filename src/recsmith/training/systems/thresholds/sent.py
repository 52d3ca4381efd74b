"""What ranks have sent beside all that there is, as figures and in words; without torch."""

import math
from dataclasses import fields

from recsmith._types import noun
from recsmith.errors import check_rules, too_small
from recsmith.files import Raw
from recsmith.units import format_size


def kept_of(width: int, share: float) -> int:
    """Columns that cross of so many of a rank: whole ones, rounded up."""
    return math.ceil(share * width)


def column_bytes(width: int) -> int:
    """Bytes that say which of so many columns a number is of."""
    return 1 if width <= 256 else 4 if width > 32_768 else 2


@noun
class Sent:
    """Sums over steps of what a rank has sent to the others.

    steps: that sent something. numbers: that were sent. of_numbers: that there were. bytes: that were sent, places and
    lengths included. of_bytes: that all numbers take, of dense gradients by a ring.
    """

    steps: int = 0
    numbers: int = 0
    of_numbers: int = 0
    bytes: int = 0
    of_bytes: int = 0

    def __post_init__(self) -> None:
        check_rules(*(too_small(each.name, getattr(self, each.name)) for each in fields(self)))

    def __add__(self, other: "Sent") -> "Sent":
        """Both together."""
        return Sent(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def __sub__(self, other: "Sent") -> "Sent":
        """What came after another."""
        return Sent(**{each.name: getattr(self, each.name) - getattr(other, each.name) for each in fields(self)})

    @property
    def share(self) -> float:
        """Of the numbers, those that were sent."""
        return self.numbers / self.of_numbers

    def to_raw(self, kind: str) -> Raw:
        """The share, and bytes of a mean step and rank, for the log. kind: of messages."""
        return {
            f"{kind}_sent_share": self.share,
            f"{kind}_sent_bytes": self.bytes / self.steps,
            f"{kind}_all_bytes": self.of_bytes / self.steps,
        }

    def told(self, kind: str) -> str:
        """For people. kind: of numbers."""
        sent, of = format_size(round(self.bytes / self.steps)), format_size(round(self.of_bytes / self.steps))
        return f"{self.share:.2%} of {kind} sent ({sent} of {of} a rank and step)"


@noun
class Crossed:
    """What a rank has sent since a run began. dense: of gradients of dense layers. pooled: of pooled embeddings."""

    dense: Sent = Sent()
    pooled: Sent = Sent()

    def __add__(self, other: "Crossed") -> "Crossed":
        """Both together."""
        return Crossed(dense=self.dense + other.dense, pooled=self.pooled + other.pooled)

    def __sub__(self, other: "Crossed") -> "Crossed":
        """What came after another."""
        return Crossed(dense=self.dense - other.dense, pooled=self.pooled - other.pooled)

    @property
    def kinds(self) -> dict[str, tuple[str, Sent]]:
        """(what it is called, what was sent) by kind, of kinds of which anything is."""
        named = {"dense": ("dense gradients", self.dense), "pooled": ("pooled embeddings", self.pooled)}
        return {kind: (name, sent) for kind, (name, sent) in named.items() if sent.of_numbers and sent.steps}

    def to_raw(self) -> Raw:
        """For the log."""
        return {key: each for kind, (_, sent) in self.kinds.items() for key, each in sent.to_raw(kind).items()}

    def __str__(self) -> str:
        """For people; '' where nothing crossed."""
        return ", ".join(sent.told(name) for name, sent in self.kinds.values())
