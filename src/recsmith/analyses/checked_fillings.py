"""Upper bound on the worth of the large pieces on a rank, over all fillings of a rank; a part of checking.py.

A proof may give some large pieces a worth in addition to their seconds. The pieces of a rank keep within its limits:
the longest first phase by every plane, the longest later phases, and the memory of the largest rank. So they are worth
no more than the best filling of these limits, which is searched for here (docs/bounds.md). Parts of limits are whole
numbers, rounded down, and worths are rounded up. So sums of them are exact, and no rounding lowers a filling's worth.

Legend: N pieces, L large pieces, J planes, R limits.
"""

from fractions import Fraction
from math import ceil

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.analyses.checked_prices import Plans
from recsmith.analyses.checked_statement import EQUAL, Statement, at_most
from recsmith.errors import CorruptFile
from recsmith.plans.proofs import LargePiece, LeafProof

WHOLE = 2**40  # number of units into which each limit, and the largest worth of a piece, is divided
LEAST = WHOLE // 1000  # least units of its tightest limit that a large piece takes; smaller pieces are worth nothing
MOST_TRIED = 100_000  # most fillings that are tried, in a third of a second; the rest counts by an upper bound
ABOVE = 1 + 2.0**-30  # factor on upper bounds of fillings: more than roundings take off


def filling_prices(statement: Statement, plans: Plans, proof: LeafProof) -> tuple[Floats, Fraction]:
    """Worth (N,) of pieces in addition to their seconds, and an upper bound on the sum of these on a rank.

    A piece that takes at least as much as a large piece of every binding limit is worth as much as that one: a rank
    that holds it could hold the large piece in its place.

    Raises:
        CorruptFile: a large piece of the proof does not exist.
    """
    held = np.array([_number_of(statement, piece) for piece in proof.large], dtype=np.int64)
    parts, worth = _parts(statement, plans), np.array([piece.worth for piece in proof.large])
    most = parts[held].max(axis=1)
    fits = (most >= LEAST) & (most <= WHOLE) & (worth > 0)
    held, worth = held[fits], worth[fits]
    parts = parts[:, _that_bind(parts[held])]
    value: Floats = np.zeros(len(parts))
    for piece, more in zip(held.tolist(), worth.tolist(), strict=True):
        same: Bools = np.logical_and.reduce(parts >= parts[piece], axis=1)
        value = np.where(same, np.maximum(value, more), value)
    if not len(held):
        return value, Fraction(0)
    unit = Fraction(float(worth.max())) / WHOLE
    worths = [ceil(Fraction(each) / unit) for each in worth.tolist()]
    return value, most_worth(parts[held].tolist(), worths) * unit


def _that_bind(parts: Ints) -> list[int]:
    """Limits of parts (L, R) that can bind: a limit is dropped if no piece takes more of it than of another one."""
    kept: list[int] = []
    for one in range(parts.shape[1]):
        others = (*kept, *range(one + 1, parts.shape[1]))
        if not any((parts[:, one] <= parts[:, other]).all() for other in others):
            kept.append(one)
    return kept


def _number_of(statement: Statement, piece: LargePiece) -> int:
    """The index of a large piece among the statement's pieces."""
    found = np.flatnonzero(statement.local & (statement.mode == piece.mode) & (statement.width == piece.width))
    if not len(found):
        raise CorruptFile(
            f"a large piece of the certificate, {piece.width} columns by way {piece.mode} to place a table, does not "
            "exist; write it anew"
        )
    return int(found[0])


def _parts(statement: Statement, plans: Plans) -> Ints:
    """Units (N, R) that pieces take of each limit of a rank, rounded down; above WHOLE if a piece exceeds the limit.

    Bytes of pieces that cover a host are not counted, because not all of its ranks hold equally many.
    """
    single = np.where(statement.coverage == 1, statement.bytes, 0.0)
    takes = np.column_stack([statement.ready, statement.rest, single])
    planes, capacity = statement.ready.shape[1], float(statement.problem.capacity.max())
    limits = np.array([plans.ready[1]] * planes + [plans.rest[1], capacity]) * (1 + EQUAL)
    share = np.where(takes > 0, 2.0, 0.0)  # for a limit of 0
    np.divide(takes, limits, out=share, where=limits > 0)
    return np.floor(at_most(np.minimum(share, 2.0), 1) * WHOLE).astype(np.int64)


def most_worth(parts: list[list[int]], worths: list[int]) -> int:
    """Upper bound on the worth of a filling with any number of each piece; parts (L, R): units they take of limits.

    Branch and bound decides how often a rank holds the first piece, then the second, and so on. After MOST_TRIED
    fillings the remaining ones count by their upper bounds, so the result is never too low.
    """
    order = sorted(range(len(parts)), key=lambda piece: -worths[piece] / max(parts[piece]))
    parts, worths = [parts[piece] for piece in order], [worths[piece] for piece in order]
    ratios = _ratios(parts, worths)
    whole = [WHOLE] * len(parts[0])
    most = sum(worth * _times(own, whole) for own, worth in zip(parts, worths, strict=True))
    best = tried = 0

    def look(piece: int, room: list[int], worth: int) -> None:
        nonlocal best, tried
        best, tried = max(best, worth), tried + 1
        if piece == len(parts):
            return
        more = min((ratio * room[limit] for limit, ratio in ratios[piece].items()), default=most) * ABOVE
        if worth + more <= best:
            return
        if tried > MOST_TRIED:
            best = min(most, worth + ceil(more))
            return
        own = parts[piece]
        for times in range(_times(own, room), -1, -1):
            look(piece + 1, [left - times * each for left, each in zip(room, own, strict=True)],
                 worth + times * worths[piece])  # fmt: skip

    look(0, whole, 0)
    return int(best)


def _times(own: list[int], room: list[int]) -> int:
    """How often a piece fits into the room that is left of the limits."""
    return min(left // each for each, left in zip(own, room, strict=True) if each)


def _ratios(parts: list[list[int]], worths: list[int]) -> list[dict[int, float]]:
    """For each piece the highest worth per unit of a limit, of it and all later pieces; only of limits that all use."""
    found: list[dict[int, float]] = []
    for own, worth in zip(reversed(parts), reversed(worths), strict=True):
        after = found[-1] if found else dict.fromkeys(range(len(own)), 0.0)
        found.append({limit: max(ratio, worth / own[limit]) for limit, ratio in after.items() if own[limit]})
    return found[::-1]
