"""What proves the bound of a plan, as certificates hold it.

The proof is a tree. It begins with all plans that take fewer seconds than `below`, and splits them in two again and
again: by whether a fusion group is used, by whether the slowest rank's seconds in a phase lie below or above a time, by
whether a table spans the world, by how many seconds one of two hosts has in pieces that cover it. Parts may be proved
together, as one that holds them all. A leaf has multipliers, by which the cheapest places of all tables together cost
at least the certified seconds (docs/bounds.md). analyses/checking.py works that out anew.
"""

from itertools import pairwise
from math import prod
from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules

MOST_PARTS = 1_000_000
MOST_ENDS, MOST_PROOFS = 1_000, 10_000  # of the ways to split a table
MOST_LARGE = 300  # pieces of a proof by fillings of a rank
MOST_LEVELS = 1_000
MOST_NUMBER, LEAST_NUMBER = 1e100, 1e-100  # of what is multiplied, or divided by: prices of all pieces stay finite
Shares = tuple[float, ...]


@noun
class ShareWorth:
    """What the share of a rank that a piece takes is worth beyond its seconds, by a function of bin packing.

    kind: 'cutoff' (nothing for shares below `by`, the whole rank for those above 1 - by, and else the share), 'steps'
    (how often `by` goes into the share, over how often into 1; above a half 1 less that of what is left) or 'count'
    (how often 1 / (by + 1) goes into the share, over by). worth: of the whole rank, over the longest first phase.
    """

    kind: Literal["cutoff", "steps", "count"]
    by: float
    worth: float

    def __post_init__(self) -> None:
        whole = self.kind != "count" or (self.by >= 1 and float(self.by).is_integer())
        check_rules(
            None if LEAST_NUMBER <= self.by <= MOST_NUMBER and (self.by <= 0.5 or self.kind == "count") and whole
            else f"a proof counts shares by {self.kind} {self.by}; these go from {LEAST_NUMBER:g} to 0.5, "
            "and counts are whole",
            None if 0 <= self.worth <= MOST_NUMBER
            else f"a share of a rank is worth {self.worth} in a proof; it is from 0 to {MOST_NUMBER:g}",
        )  # fmt: skip


@noun
class StepWorth:
    """What seconds in the later phases are worth as well, counted in whole steps of width on each rank.

    seconds: of a step. worth: of each second of whole steps.
    """

    seconds: float
    worth: float

    def __post_init__(self) -> None:
        check_rules(
            None if LEAST_NUMBER <= self.seconds <= MOST_NUMBER
            else f"a step of width takes {self.seconds} s in a proof; it is from {LEAST_NUMBER:g} to {MOST_NUMBER:g}",
            None if 0 <= self.worth <= MOST_NUMBER
            else f"a second of whole steps is worth {self.worth} in a proof; it is from 0 to {MOST_NUMBER:g}",
        )  # fmt: skip


@noun
class LargePiece:
    """A piece of which a rank can hold few, and what it is worth beyond its seconds, as is any that takes no less.

    mode: number of the problem's way to place a table that it is of. width: its columns. worth: seconds.
    """

    mode: int
    width: int
    worth: float

    def __post_init__(self) -> None:
        check_rules(
            None if 0 <= self.worth <= MOST_NUMBER
            else f"a large piece is worth {self.worth} s in a proof; it is from 0 to {MOST_NUMBER:g}",
        )  # fmt: skip


@noun
class LeafProof:
    """A leaf: what a second of each phase, and a byte, is worth in the price of a piece.

    ready: of the first phase; rest: of the later ones. byte: seconds per byte. mix: of each group, shares of the cost
    model's planes. plane: by which it is decided which pieces are big. shares: what shares of a rank are worth as well.
    large: pieces that are worth more, because few of them are on a rank. steps: what whole steps of width are worth.
    """

    ready: float
    rest: float
    byte: float
    mix: tuple[Shares, ...]
    plane: int
    shares: tuple[ShareWorth, ...] = ()
    large: tuple[LargePiece, ...] = ()
    steps: StepWorth | None = None

    def __post_init__(self) -> None:
        numbers = (self.ready, self.rest, self.byte, *(share for shares in self.mix for share in shares))
        check_rules(
            None if all(0 <= each <= MOST_NUMBER for each in numbers)
            else f"a multiplier or a share is below 0 or above {MOST_NUMBER:g}; a proof has none",
            None if len(self.large) <= MOST_LARGE
            else f"a proof has {len(self.large):,} large pieces; they are at most {MOST_LARGE}",
        )  # fmt: skip


@noun
class HostWorth:
    """What seconds on one of two hosts are worth in the prices of its pieces.

    ready: of the first phase; rest: of the later ones. own: taken off the price of each second in the first phase of
    pieces that cover the host, or added where it is below 0. steps: what whole steps of width are worth.
    """

    ready: float
    rest: float
    own: float
    steps: StepWorth | None = None

    def __post_init__(self) -> None:
        check_rules(
            None if all(0 <= each <= MOST_NUMBER for each in (self.ready, self.rest)) and abs(self.own) <= MOST_NUMBER
            else f"a multiplier of a host is below 0 or above {MOST_NUMBER:g}; a proof has none",
        )  # fmt: skip


@noun
class HostsProof:
    """A leaf of plans on two hosts: what seconds are worth on the one that pieces cover for less time, and the other.

    plane: by which it is decided which pieces are big; none: by the mix that tells hosts apart.
    """

    hosts: tuple[HostWorth, HostWorth]
    plane: int | None = None


@noun
class LevelPlane:
    """One more plane of groups whose shares rise as they grow: what pieces cost at each level of how full they are.

    paid: part of a launch that pieces pay for, so that groups open with the rest. shares: of each group, and each level
    of it, shares of the cost model's planes, and of the ways in which pieces fill the level: by seconds, by each term
    that is cut, and by each kind of tables. A group of none costs nothing by this plane.
    """

    paid: float
    shares: tuple[tuple[Shares, ...], ...]

    def __post_init__(self) -> None:
        check_rules(
            None if 0 <= self.paid <= 1
            else f"pieces pay for {self.paid} of a launch in a proof; it is a part from 0 to 1",
            None if all(0 <= each <= MOST_NUMBER for group in self.shares for level in group for each in level)
            else f"a share of a level is below 0 or above {MOST_NUMBER:g}; a proof has none",
        )  # fmt: skip


@noun
class LevelsProof:
    """Levels of how full groups are, and planes by them, which stand after the cost model's own in every mix.

    terms: numbers of the work terms that are cut; ends: sums at which each is. Levels are all pairs of their ranges, of
    which the last term's change first. kinds: the kind of each table.
    """

    terms: tuple[int, ...]
    ends: tuple[tuple[float, ...], ...]
    kinds: tuple[int, ...]
    planes: tuple[LevelPlane, ...]

    def __post_init__(self) -> None:
        levels = prod(len(each) + 1 for each in self.ends)
        check_rules(
            None if len(self.terms) == len(set(self.terms)) == len(self.ends) and levels <= MOST_LEVELS
            else f"levels of a certificate cut some terms, each once, and are at most {MOST_LEVELS:,}",
            None if all(0 <= low <= high < float("inf") for each in self.ends for low, high in pairwise((0.0, *each)))
            else "the ends of levels in a certificate do not rise from 0 on",
        )  # fmt: skip


@noun
class SpreadProof:
    """A leaf of plans that split the columns of a table over single ranks: a bound of every way to do so.

    ends: seconds at which the range of the first phase is cut. proofs: multipliers; each way and range has the bound of
    those by which it is highest.
    """

    table: int
    ends: tuple[float, ...]
    proofs: tuple[LeafProof, ...]

    def __post_init__(self) -> None:
        check_rules(
            None if all(0 <= low < high < float("inf") for low, high in pairwise((0.0, *self.ends)))
            else "the ends of ranges in a certificate do not rise from above 0",
            None if len(self.ends) <= MOST_ENDS and len(self.proofs) <= MOST_PROOFS
            else f"ranges of a certificate are at most {MOST_ENDS:,}, and their proofs {MOST_PROOFS:,}",
        )  # fmt: skip


@noun
class RanksProof:
    """A leaf by constraints: some ranks carry all of the tables that may be on no others, by a mix of planes."""

    ranks: tuple[int, ...]
    mix: tuple[Shares, ...]

    def __post_init__(self) -> None:
        check_rules(
            None if self.ranks and all(0 <= one < other for one, other in pairwise((*self.ranks, float("inf"))))
            else "the ranks of a proof are one or more numbers from 0 on, which rise",
            None if all(0 <= share < float("inf") for shares in self.mix for share in shares)
            else "a share of a plane is below 0 or not finite; a proof has none",
        )  # fmt: skip


@noun
class PlacesProof:
    """A leaf by a constraint that counts: its tables share so many places, by a mix of planes.

    constraint: its number among those between tables. price: seconds per place. seconds: of a step in which its tables
    need more places than there are; 0: of none.
    """

    constraint: int
    price: float
    seconds: float
    mix: tuple[Shares, ...]

    def __post_init__(self) -> None:
        numbers = (self.price, self.seconds, *(share for shares in self.mix for share in shares))
        check_rules(
            None if all(0 <= each <= MOST_NUMBER for each in numbers)
            else f"a price, seconds or a share of a plane are below 0 or above {MOST_NUMBER:g}; a proof has none",
        )  # fmt: skip


@noun
class ProofPart:
    """Plans that share something. They are split in two, or a leaf proves a bound of them.

    split: 'group' (of: its number; the first half does not use it, the second does), 'ready' or 'rest' (at: seconds;
    the first half lies below, the second above), 'table' (of: its number; the first half does not let it span the
    world, the second does nothing else), 'spread' (of: a table; the second half splits its columns over single ranks,
    in a group that places it in no other way, the first does not), 'host' (of: 0, the one of two hosts that pieces
    cover for less time, or 1; at: seconds of those pieces; the first half lies below, the second above). halves: places
    of both, further on in the list. into: place of a part that holds these plans and those of all others that name it,
    and is proved for all of them.
    """

    split: Literal["group", "ready", "rest", "table", "spread", "host"] | None = None
    of: int = 0
    at: float = 0.0
    halves: tuple[int, int] = (0, 0)
    proof: LeafProof | None = None
    spreads: SpreadProof | None = None
    ranks: RanksProof | None = None
    places: PlacesProof | None = None
    hosts: HostsProof | None = None
    into: int | None = None

    def __post_init__(self) -> None:
        ways = (self.split, self.proof, self.spreads, self.ranks, self.places, self.hosts, self.into)
        check_rules(
            None if sum(each is not None for each in ways) == 1
            else "a part of a certificate is split or has a proof, and one of these has several of both, or none",
        )  # fmt: skip

    @property
    def is_leaf(self) -> bool:
        """Whether it has a proof of its own."""
        return self.split is None and self.into is None


@noun
class ProofTree:
    """What is certified, and the parts that prove it, the first of which is all plans.

    seconds: that no plan takes less than. below: what only plans are looked at that take less. closed: (group, other)
    pairs: nothing is placed in the first, because the other holds the same at no higher cost. levels: of how full
    groups are, where mixes have planes by these. apart: of each group, shares of the cost model's planes, by which the
    seconds of pieces that cover one of two hosts are counted; of none where hosts are not told apart.
    """

    seconds: float
    below: float
    closed: tuple[tuple[int, int], ...]
    parts: tuple[ProofPart, ...]
    levels: LevelsProof | None = None
    apart: tuple[Shares, ...] = ()

    def __post_init__(self) -> None:
        check_rules(
            None if 0 <= self.seconds <= self.below <= MOST_NUMBER
            else f"it certifies {self.seconds} s of plans below {self.below} s; certified is no more than that, "
            f"and that is at most {MOST_NUMBER:g} s",
            None if 0 < len(self.parts) <= MOST_PARTS
            else f"it has {len(self.parts):,} parts; they are 1 to {MOST_PARTS:,}",
        )  # fmt: skip
