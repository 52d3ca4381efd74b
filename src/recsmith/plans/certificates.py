"""A certificate: what proves the bound of a plan, in a file that a program of its own can check.

The proof is a tree. It begins with all plans that take fewer seconds than `below`, and splits them in two again and
again: by whether a fusion group is used, by whether the slowest rank's seconds in a phase lie below or above a time, by
whether a table spans the world. A leaf has multipliers, by which the cheapest places of all tables together cost at
least the certified seconds (docs/bounds.md). analyses/checking.py works that out anew.
"""

import hashlib
from itertools import pairwise
from typing import Literal

from recsmith._types import Source, noun
from recsmith.errors import CorruptFile, check_rules
from recsmith.files import (
    check_schema,
    decode,
    dump_json,
    encode,
    parse_json,
    read_text,
    source_text,
    starts_with_schema,
    write_text,
)
from recsmith.plans.files import plan_from_raw, plan_to_raw
from recsmith.plans.plan import Plan

SCHEMA = "recsmith/certificate/1"
CERTIFICATE_FILE = starts_with_schema(SCHEMA)  # what `--certificate` may overwrite
MOST_PARTS = 1_000_000
MOST_ENDS, MOST_PROOFS = 1_000, 10_000  # of the ways to split a table


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
            None if 0 < self.by < float("inf") and (self.by <= 0.5 or self.kind == "count") and whole
            else f"a proof counts shares by {self.kind} {self.by}; these are above 0 and at most 0.5, counts are whole",
            None if 0 <= self.worth < float("inf")
            else f"a share of a rank is worth {self.worth} in a proof; it is 0 or more, and finite",
        )  # fmt: skip


@noun
class LeafProof:
    """A leaf: what a second of each phase, and a byte, is worth in the price of a piece.

    ready: of the first phase; rest: of the later ones. byte: seconds per byte. mix: of each group, shares of the cost
    model's planes. plane: by which it is decided which pieces are big. shares: what shares of a rank are worth as well.
    """

    ready: float
    rest: float
    byte: float
    mix: tuple[tuple[float, ...], ...]
    plane: int
    shares: tuple[ShareWorth, ...] = ()

    def __post_init__(self) -> None:
        numbers = (self.ready, self.rest, self.byte, *(share for shares in self.mix for share in shares))
        check_rules(
            None if all(0 <= each < float("inf") for each in numbers)
            else "a multiplier or a share is below 0 or not finite; a proof has none",
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
class ProofPart:
    """Plans that share something. They are split in two, or a leaf proves a bound of them.

    split: 'group' (of: its number; the first half does not use it, the second does), 'ready' or 'rest' (at: seconds;
    the first half lies below, the second above), 'table' (of: its number; the first half does not let it span the
    world, the second does nothing else), 'spread' (of: a table; the second half splits its columns over single ranks,
    in a group that places it in no other way, the first does not). halves: places of both, further on in the list.
    """

    split: Literal["group", "ready", "rest", "table", "spread"] | None = None
    of: int = 0
    at: float = 0.0
    halves: tuple[int, int] = (0, 0)
    proof: LeafProof | None = None
    spreads: SpreadProof | None = None

    def __post_init__(self) -> None:
        check_rules(
            None if sum(each is not None for each in (self.split, self.proof, self.spreads)) == 1
            else "a part of a certificate is split or has a proof, and one of these has several of both, or none",
        )  # fmt: skip


@noun
class ProofTree:
    """What is certified, and the parts that prove it, the first of which is all plans.

    seconds: that no plan takes less than. below: what only plans are looked at that take less. closed: (group, other)
    pairs: nothing is placed in the first, because the other holds the same at no higher cost.
    """

    seconds: float
    below: float
    closed: tuple[tuple[int, int], ...]
    parts: tuple[ProofPart, ...]

    def __post_init__(self) -> None:
        check_rules(
            None if 0 <= self.seconds <= self.below < float("inf")
            else f"it certifies {self.seconds} s of plans below {self.below} s; certified is no more than that",
            None if 0 < len(self.parts) <= MOST_PARTS
            else f"it has {len(self.parts):,} parts; they are 1 to {MOST_PARTS:,}",
        )  # fmt: skip


@noun
class Certificate:
    """A plan, and the proof that no plan of its space takes fewer seconds under its cost model."""

    plan: Plan
    tree: ProofTree


def save_certificate(certificate: Certificate, target: Source) -> None:
    """Write a certificate's file, whole or not at all."""
    tree = certificate.tree
    raw = {"schema": SCHEMA, "digest": _digest(tree), "plan": plan_to_raw(certificate.plan), "tree": encode(tree)}
    write_text(source_text(target, "a certificate"), dump_json(raw))


def load_certificate(source: Source) -> Certificate:
    """The certificate of a file ('-' is stdin), whose proof is not checked yet.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: it is no certificate, or was changed after it was written.
    """
    named = source_text(source, "a certificate")
    raw = parse_json(read_text(named), named)
    if not isinstance(raw, dict):
        raise CorruptFile(f"'{named}' holds no certificate; write one with `recsmith plan ... --certificate FILE`")
    body = check_schema(raw, SCHEMA, named)  # pyright: ignore[reportUnknownArgumentType]
    missing = next((key for key in ("plan", "tree", "digest") if key not in body), None)
    if missing is not None:
        raise CorruptFile(f"'{named}' is a certificate without `{missing}`; write it anew")
    tree = decode(ProofTree, body["tree"], named)
    if body["digest"] != _digest(tree):
        raise CorruptFile(f"'{named}' was changed after it was written: its digest is of another proof; write it anew")
    plan = plan_from_raw(body["plan"], named)  # pyright: ignore[reportArgumentType]
    return Certificate(plan=plan, tree=tree)


def _digest(tree: ProofTree) -> str:
    return hashlib.sha256(dump_json({"tree": encode(tree)}).encode()).hexdigest()
