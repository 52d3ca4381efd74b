"""The ranks that a placed piece covers, and which of them holds the last of its rows.

A piece with coverage c on target t covers ranks t * c .. (t + 1) * c - 1: one rank, all ranks of a host, or the world.
Each of them holds the piece's `head` bytes except the last, which holds the `tail`: row blocks have ceil(rows / c) rows
each, so only the last may be shorter. This rule is stated only in these few functions, and all device states of
searches use them. All take plain integers and integer arrays that broadcast.
"""

from typing import TypeVar

import numpy as np

from recsmith._types import Bools, Floats, Ints

Number = TypeVar("Number", int, Ints)
Values = TypeVar("Values", Ints, Floats, Bools)


def first_rank(target: Number, coverage: Number) -> Number:
    """The first rank that a piece on a target covers."""
    return target * coverage


def last_rank(target: Number, coverage: Number) -> Number:
    """The last rank that a piece on a target covers; it holds the tail."""
    return (target + 1) * coverage - 1


def covered_ranks(target: Ints, coverage: int) -> Ints:
    """The ranks (..., coverage) that pieces of one coverage cover on targets (...)."""
    return (target * coverage)[..., None] + np.arange(coverage)


def covering_target(rank: Number, coverage: Number | int) -> Number:
    """The target on which a piece with this coverage covers a rank."""
    return rank // coverage  # pyright: ignore[reportReturnType]


def covers(target: Ints, coverage: Ints, rank: Ints | int) -> Bools:
    """Whether pieces on targets cover ranks."""
    return covering_target(np.asarray(rank), coverage) == target


def holds_tail(rank: Ints | int, coverage: Ints | int) -> Bools:
    """Whether a rank is the last of the ranks that a piece with this coverage covers."""
    return (np.asarray(rank) + 1) % coverage == 0


def bytes_on(rank: Ints | int, coverage: Ints | int, head: Ints, tail: Ints) -> Ints:
    """The bytes that a piece puts on a rank that it covers: the tail on the last rank, the head on all others."""
    return np.where(holds_tail(rank, coverage), tail, head)


def by_target(per_rank: Values, coverage: int) -> Values:
    """Values of ranks (..., W) as one row (..., W / coverage, coverage) per target; its last rank holds the tail."""
    return per_rank.reshape(*per_rank.shape[:-1], -1, coverage)
