"""Seconds of pieces by levels of their group's load: planes in addition to the cost model's; a part of checking.py.

These apply to heads whose shares rise with a group's load. A level gives ranges for the sums of some terms of a group.
At a level, a piece bears at least the shares at the ranges' lower ends, and pays a part of the launch in proportion to
the part of the level that it fills. Its price is the least over all levels that it does not exceed. By these prices,
the pieces of a group cost no more than its head, less the part of the launch that is not included (docs/bounds.md).

Legend: N pieces, U rows of different terms, G fusion groups, J planes, P planes by levels, k work terms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from math import fsum

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.analyses.checked_prices import Plans
from recsmith.analyses.checked_statement import EQUAL, LevelSeconds, Statement, at_most, products
from recsmith.costs.protocol import RisesBeside
from recsmith.errors import CorruptFile
from recsmith.plans.proofs import LevelPlane, LevelsProof, Shares

SHRUNK = 1 - 2.0**-45  # factor on shares: removes more than the search's own rounding added


def levels_of(statement: Statement, proof: LevelsProof, most: float) -> LevelSeconds:
    """The planes by levels of a certificate. most: upper bound on a rank's seconds in the first phase after a launch.

    Raises:
        CorruptFile: the cost model has no such levels, or the shares of a level add up to more than 1.
    """
    evaluator, terms = statement.evaluator, statement.terms.shape[1]
    kinds = np.array(proof.kinds, dtype=np.int64)
    if not isinstance(evaluator, RisesBeside) or statement.world == 1 or most <= 0:
        raise CorruptFile("the certificate has levels, and its cost model or cluster has none; write it anew")
    if not all(0 <= term < terms for term in proof.terms) or len(kinds) != len(statement.problem.tables) or (
        len(kinds) and not 0 <= kinds.min() <= kinds.max() < len(kinds)
    ):  # fmt: skip
        raise CorruptFile("levels of the certificate are of other terms or tables; write it anew")
    mine = np.flatnonzero(statement.local & statement.fits)
    seconds: Floats = np.zeros((len(statement.terms), len(proof.planes)))
    price = np.full((len(mine), len(proof.planes)), np.inf)
    pieces = _Pieces.of(statement, kinds, mine)
    for number, level in enumerate(_levels(proof, terms)):
        open_, parts = level.priced(statement, pieces, most)
        for at, plane in enumerate(proof.planes):
            found = np.where(open_, _by_level(statement, pieces, plane, number, parts), np.inf)
            price[:, at] = np.minimum(price[:, at], found)
    seconds[mine] = np.where(np.isfinite(price), price, 0.0)
    return LevelSeconds(seconds, tuple(plane.paid for plane in proof.planes))


def taken_seconds(statement: Statement, plans: Plans, mix: Floats) -> Fraction:
    """The most by which the seconds of a rank's pieces, by a mix of planes (G, J + P), may exceed `ready`."""
    planes, levels = statement.ready.shape[1], statement.levels
    groups = np.flatnonzero(np.logical_or.reduce(plans.open, axis=0) & ~statement.worldwide).tolist()
    parts = [
        sum((Fraction(share) * Fraction(paid) for share, paid in zip(mix[group, planes:].tolist(), levels.paid,
                                                                     strict=True)), Fraction(0))
        for group in groups
    ]  # fmt: skip
    return max(parts, default=Fraction(0)) * Fraction(statement.opening)


@dataclass(frozen=True)
class _Pieces:
    """Pieces (N,): their groups, kinds of tables, and columns as a fraction of the table's / number of alike tables.

    terms (U, k): distinct rows of work terms. row (N,): each piece's row of terms.
    """

    group: Ints
    kind: Ints
    columns: Floats
    terms: Floats
    row: Ints

    @classmethod
    def of(cls, statement: Statement, kinds: Ints, mine: Ints) -> "_Pieces":
        """The pieces `mine` of a statement."""
        terms, row = np.unique(statement.terms[mine], axis=0, return_inverse=True)
        table = statement.table[mine]
        columns = statement.width[mine] / statement.problem.demand.dim[table]
        alike = np.bincount(kinds, minlength=len(kinds))[kinds[table]]
        return cls(statement.group[mine], kinds[table], at_most(columns / alike, 2), terms, row.ravel())


@dataclass(frozen=True)
class _Level:
    """The least and the most of a group's sum of each term (k,), and the terms that are cut into ranges."""

    least: Floats
    most: Floats
    cut: tuple[int, ...]

    def priced(self, statement: Statement, pieces: _Pieces, most: float) -> tuple[Bools, Floats]:
        """Which pieces (N,) a group of this level can hold; their seconds by each plane, and by what they fill."""
        assert isinstance(statement.evaluator, RisesBeside)
        launch = statement.opening
        risen = statement.evaluator.at_least(pieces.terms, self.least)
        seconds = [statement.seconds(risen, plane.slopes[0]) for plane in statement.evaluator.planes]
        mean = products(seconds, [1 / len(seconds)] * len(seconds))
        fills = [at_most(mean * launch / most, 2)]
        for term in self.cut:
            end = float(self.most[term])
            own = pieces.terms[:, term] * launch
            fills.append(at_most(own / end, 2) if 0 < end < np.inf else np.zeros(len(own)))
        open_: Bools = np.logical_and.reduce(pieces.terms <= self.most * (1 + EQUAL), axis=1)
        return open_[pieces.row], np.column_stack([*seconds, *fills])[pieces.row]


def _levels(proof: LevelsProof, terms: int) -> Iterator[_Level]:
    """All levels, with the last term's ranges varying fastest; together they contain all possible sums."""
    ranges = [list(pairwise((0.0, *ends, np.inf))) for ends in proof.ends]
    for chosen in product(*ranges):
        least, most = np.zeros(terms), np.full(terms, np.inf)
        for term, (low, high) in zip(proof.terms, chosen, strict=True):
            least[term], most[term] = low, high
        yield _Level(least, most, proof.terms)


def _by_level(statement: Statement, pieces: _Pieces, plane: LevelPlane, number: int, parts: Floats) -> Floats:
    """Seconds (N,) of pieces at a level by a plane."""
    if len(plane.shares) != statement.evaluator.groups:
        raise CorruptFile("levels of the certificate are of other groups; write it anew")
    planes, price = len(statement.evaluator.planes), np.zeros(len(pieces.row))
    for group, levels in enumerate(plane.shares):
        mine = np.flatnonzero(pieces.group == group)
        if len(mine) and levels:
            shares = levels[number] if number < len(levels) else ()
            own, fills, kinds = _shares(shares, planes, parts.shape[1], int(pieces.kind.max()) + 1)
            factors = [*own, *(at_most(np.array(fills), 1) * plane.paid).tolist()]
            of_columns = at_most(plane.paid * np.array(kinds) * statement.opening, 2)[pieces.kind[mine]]
            flat = products(parts[mine].T, factors)
            price[mine] = at_most(flat + at_most(of_columns * pieces.columns[mine], 1), 1)
    return price


def _shares(shares: Shares, planes: int, parts: int, kinds: int) -> tuple[Shares, Shares, Shares]:
    """Shares of planes, of fills by seconds and terms, and of fills by kinds of tables; each sum is at most 1."""
    own, fills = shares[:planes], shares[planes:]
    if len(shares) < parts + kinds or any(fsum(each) > 1 + 2.0**-46 for each in (own, fills)):
        raise CorruptFile("shares of a level in the certificate are of something else, or add up to more than 1")
    own, fills = (tuple(share * SHRUNK for share in each) for each in (own, fills))
    return own, fills[: parts - planes], fills[parts - planes :]
