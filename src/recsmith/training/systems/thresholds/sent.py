"""What ranks have sent compared with all numbers, as figures and as text; without torch."""

import math
from dataclasses import fields

from recsmith._types import noun
from recsmith.errors import check_rules, too_small
from recsmith.files import Raw
from recsmith.units import format_size


def kept_of(width: int, share: float) -> int:
    """The number of columns sent of a rank's `width` columns, rounded up."""
    return math.ceil(share * width)


def column_bytes(width: int) -> int:
    """Bytes of a column's number among this many columns."""
    return 1 if width <= 256 else 4 if width > 32_768 else 2


@noun
class Sent:
    """Sums over steps of what a rank has sent to other ranks.

    steps: steps in which it sent something. numbers: numbers that were sent. of_numbers: numbers that could have been
    sent. bytes: bytes that were sent, places and lengths included. of_bytes: bytes of all numbers; for dense gradients,
    those of a ring all-reduce.
    """

    steps: int = 0
    numbers: int = 0
    of_numbers: int = 0
    bytes: int = 0
    of_bytes: int = 0

    def __post_init__(self) -> None:
        check_rules(*(too_small(each.name, getattr(self, each.name)) for each in fields(self)))

    def __add__(self, other: "Sent") -> "Sent":
        """The sum of both."""
        return Sent(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def __sub__(self, other: "Sent") -> "Sent":
        """What was sent after an earlier count."""
        return Sent(**{each.name: getattr(self, each.name) - getattr(other, each.name) for each in fields(self)})

    @property
    def share(self) -> float:
        """The share of numbers that was sent."""
        return self.numbers / self.of_numbers

    def to_raw(self, kind: str) -> Raw:
        """The share sent, and bytes per step and rank, for the log. kind: of messages."""
        return {
            f"{kind}_sent_share": self.share,
            f"{kind}_sent_bytes": self.bytes / self.steps,
            f"{kind}_all_bytes": self.of_bytes / self.steps,
        }

    def text(self, kind: str) -> str:
        """The share and bytes sent, as text. kind: of numbers."""
        sent, of = format_size(round(self.bytes / self.steps)), format_size(round(self.of_bytes / self.steps))
        return f"{self.share:.2%} of {kind} sent ({sent} of {of} a rank and step)"


@noun
class Crossed:
    """What a rank has sent since a run began. dense: gradients of dense layers. pooled: pooled embeddings."""

    dense: Sent = Sent()
    pooled: Sent = Sent()

    def __add__(self, other: "Crossed") -> "Crossed":
        """The sum of both."""
        return Crossed(dense=self.dense + other.dense, pooled=self.pooled + other.pooled)

    def __sub__(self, other: "Crossed") -> "Crossed":
        """What was sent after an earlier count."""
        return Crossed(dense=self.dense - other.dense, pooled=self.pooled - other.pooled)

    @property
    def kinds(self) -> dict[str, tuple[str, Sent]]:
        """(name, what was sent) by kind, for the kinds that had anything to send."""
        named = {"dense": ("dense gradients", self.dense), "pooled": ("pooled embeddings", self.pooled)}
        return {kind: (name, sent) for kind, (name, sent) in named.items() if sent.of_numbers and sent.steps}

    def to_raw(self) -> Raw:
        """Figures for the log."""
        return {key: each for kind, (_, sent) in self.kinds.items() for key, each in sent.to_raw(kind).items()}

    def __str__(self) -> str:
        """What was sent, as text; '' if nothing was."""
        return ", ".join(sent.text(name) for name, sent in self.kinds.values())
