"""The proof of a plan's bound, in the form that certificates store.

The proof is a tree. Its root is all plans that take fewer seconds than `below`. Nodes split plans in two: by whether a
fusion group is used, by whether the slowest rank's seconds in a phase are below or above a time, by whether a table
spans the world, or by the seconds that one of two hosts has in pieces that cover it. Parts may be proved together, as
one part that contains them all. A leaf has multipliers, under which the cheapest placements of all tables together cost
at least the certified seconds (docs/bounds.md). analyses/checking.py recomputes that.
"""

from itertools import pairwise
from math import prod
from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules

MOST_PARTS = 1_000_000
MOST_ENDS, MOST_PROOFS = 1_000, 10_000  # limits for the splits of a table
MOST_LARGE = 300  # most large pieces in a proof by fillings of a rank
MOST_LEVELS = 1_000
MOST_NUMBER, LEAST_NUMBER = 1e100, 1e-100  # limits of multipliers and divisors: prices of all pieces stay finite
Shares = tuple[float, ...]


@noun
class ShareWorth:
    """Extra price of a piece for the share of a rank that it takes, by a dual feasible function of bin packing.

    kind: 'cutoff' (0 for shares below `by`, 1 for those above 1 - by, and else the share), 'steps' (how often `by` fits
        into the share, over how often into 1; for shares above a half, 1 less the value of the rest) or 'count' (how
        often 1 / (by + 1) fits into the share, over by).
    worth: the extra price of a whole rank, over the longest first phase.
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
    """Extra price of seconds in the later phases, counted in whole steps of width on each rank.

    seconds: of a step.
    worth: price of each second of whole steps.
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
    """A piece of which a rank can hold only few, with its extra price, which also applies to more costly pieces.

    mode: number of the problem's mode (a way to place a table) of this piece.
    width: its columns.
    worth: extra price in seconds.
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
    """A leaf: the multipliers of seconds in each phase, and of bytes, in the price of a piece.

    ready: multiplier of the first phase; rest: of the later ones.
    byte: seconds per byte.
    mix: for each group, shares of the cost model's planes.
    plane: the plane that decides which pieces are big.
    shares: extra prices of shares of a rank.
    large: pieces with extra prices, because few of them fit on a rank.
    steps: extra price of whole steps of width.
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
    """The multipliers of seconds on one of two hosts in the prices of its pieces.

    ready: multiplier of the first phase; rest: of the later ones.
    own: subtracted from the price of each second in the first phase of pieces that cover the host, or added if it is
        below 0.
    steps: extra price of whole steps of width.
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
    """A leaf for plans on two hosts: multipliers of the host that pieces cover for less time, and of the other host.

    plane: the plane that decides which pieces are big; None: the mix that distinguishes hosts decides.
    """

    hosts: tuple[HostWorth, HostWorth]
    plane: int | None = None


@noun
class LevelPlane:
    """One more plane, for groups whose shares rise as they grow: costs of pieces at each level of the group's size.

    paid: part of a launch that pieces pay for; opening a group costs the rest.
    shares: for each group, and each level of it, shares of the cost model's planes, and of the measures by which pieces
        fill the level: seconds, each term that is cut, and each kind of tables. A group without shares costs nothing by
        this plane.
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
    """Levels of the size of groups, and planes defined on them, which follow the cost model's own planes in every mix.

    terms: numbers of the work terms that are cut; ends: sums at which each term is cut. Levels are all combinations of
        their ranges; the range of the last term changes first.
    kinds: the kind of each table.
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
    """A leaf for plans that split the columns of a table over single ranks: a bound for every such split.

    ends: seconds at which the range of the first phase is cut.
    proofs: multipliers; each split and range has the highest bound that any of these gives.
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
    """A leaf by constraints: some ranks hold all tables that may be on no other ranks, priced by a mix of planes."""

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
    """A leaf by a constraint that counts: its tables share a limited number of places, priced by a mix of planes.

    constraint: its number among the constraints between tables.
    price: seconds per place.
    seconds: a step time at which the tables need more places than there are; 0 if unused.
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
    """Plans with a common property, which are split in two, or whose bound is proved by a leaf.

    split: 'group' (of: its number; the first half does not use it, the second does), 'ready' or 'rest' (at: seconds;
        the first half is below, the second above), 'table' (of: its number; the first half does not let it span the
        world, the second always does), 'spread' (of: a table; the second half splits its columns over single ranks, in
        a group that places it in no other way, the first does not), 'host' (of: 0, the one of two hosts that pieces
        cover for less time, or 1; at: seconds of those pieces; the first half is below, the second above).
    halves: indices of both halves, further on in the list.
    into: index of a part that contains these plans and those of all other parts that name it, and that is proved for
        all of them.
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
        """Whether the part has a proof of its own."""
        return self.split is None and self.into is None


@noun
class ProofTree:
    """The certified seconds, and the parts that prove them; the first part is all plans.

    seconds: lower bound of all plans.
    below: only plans that take less than this are examined.
    closed: (group, other) pairs: nothing is placed in the first, because the other has the same pieces at no higher
        cost.
    levels: levels of the size of groups, if mixes have planes by them.
    apart: for each group, shares of the cost model's planes by which the seconds of pieces that cover one of two hosts
        are counted; empty if hosts are not distinguished.
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
