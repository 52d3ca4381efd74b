"""Bounds that follow from constraints: some ranks must carry much, or places are scarce; a part of checking.py.

The constraints are read from the problem: the ranks that are open to each table, pinned tables, and limits between
tables. By a mix of planes, a rank takes at least the seconds of its pieces. So the pieces of some ranks add up to at
most the number of these ranks times the step (docs/bounds.md).

Legend: T tables, W ranks, G fusion groups, C different numbers of ranks that a piece covers.
"""

from fractions import Fraction
from math import ceil, fsum

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.analyses.checked_prices import Plans, mix_of, table_prices
from recsmith.analyses.checked_statement import EQUAL, NO_PLAN, Statement, at_most, products
from recsmith.errors import CorruptFile
from recsmith.plans.proofs import PlacesProof, RanksProof


def ranks_seconds(statement: Statement, plans: Plans, proof: RanksProof) -> Fraction:
    """Lower bound in seconds on all plans of a part, by the tables that only some ranks may hold.

    Raises:
        CorruptFile: there are no such ranks.
    """
    legality, mine = statement.problem.legality, np.zeros(statement.world, dtype=bool)
    if proof.ranks[-1] >= statement.world:
        raise CorruptFile(f"rank {proof.ranks[-1]} of the certificate does not exist; write it anew")
    mine[list(proof.ranks)] = True
    open_: Bools = np.ones((len(plans.open), statement.world), dtype=bool) if legality.open is None else legality.open
    seconds = _seconds(statement, mix_of(statement, proof.mix))
    least = _least(statement, plans, mix_of(statement, proof.mix), seconds)[0].min(axis=1)
    if not np.isfinite(least).all():
        return NO_PLAN
    inside = np.logical_and.reduce(~open_ | mine, axis=1) & ~legality.pinned
    total = _sum(least[inside]) * statement.world + _pinned_seconds(statement, plans, seconds, mine)
    return total / len(proof.ranks)


def _pinned_seconds(statement: Statement, plans: Plans, seconds: Floats, mine: Bools) -> Fraction:
    """Seconds of some ranks (`mine`, (W,)) for pinned tables, openings of groups, and the shared costs of groups."""
    evaluator, problem, total = statement.evaluator, statement.problem, Fraction(0)
    held: Bools = np.zeros((statement.world, evaluator.groups), dtype=bool)
    held[:, plans.paid & statement.worldwide] = True
    for table in np.flatnonzero(problem.legality.pinned).tolist():
        mode, *others = np.unique(problem.options.mode[problem.modes.table[problem.options.mode] == table]).tolist()
        size = int(problem.modes.coverage[mode])
        for width, target in () if others else problem.legality.splits[table].pinned:
            on = slice(target * size, (target + 1) * size)
            pieces = (statement.mode == mode) & (statement.width == width) & statement.fits
            total += Fraction(float(seconds[pieces].max(initial=0.0))) * int(mine[on].sum())
            held[on, evaluator.group[mode]] = True
    shared = evaluator.shared[held.any(axis=0) | plans.paid]
    total += sum(map(Fraction, shared.ravel().tolist()), Fraction(0)) * int(mine.sum())
    return total + Fraction(statement.opening) * int(held[mine].sum())


def places_seconds(statement: Statement, plans: Plans, proof: PlacesProof) -> Fraction:
    """Lower bound in seconds on all plans of a part, by a constraint on the number of places of some tables.

    Raises:
        CorruptFile: there is no such constraint, or it does not count places.
    """
    legality = statement.problem.legality
    group = legality.groups[proof.constraint] if 0 <= proof.constraint < len(legality.groups) else None
    if group is None or group.kind == "together":
        raise CorruptFile(f"constraint {proof.constraint} of the certificate counts no places; write it anew")
    mix = mix_of(statement, proof.mix)
    least, coverage = _least(statement, plans, mix, _seconds(statement, mix))
    if not np.isfinite(least.min(axis=1)).all():
        return NO_PLAN
    unit = group.local if group.kind == "tables" else 1
    places, taken = group.most * (statement.world // group.local), -(-coverage // unit)
    counts = np.isin(legality.row, group.rows) & (legality.row >= 0)
    priced = at_most(least[counts] + at_most(proof.price * taken / statement.world, 2), 1).min(axis=1)
    mean = _sum(least[~counts].min(axis=1)) + _sum(priced) - Fraction(proof.price) * places / statement.world
    if proof.seconds > 0 and _places(least[counts] * statement.world, taken, unit * proof.seconds) > places:
        return max(mean, Fraction(proof.seconds))
    return mean


def _places(seconds: Floats, taken: Ints, most: float) -> int:
    """Least number of places for tables with these seconds (T, C) on all ranks, if a place has room for `most`."""
    needed = at_most(seconds / most, 3) * (1 - EQUAL)
    ways = [[(each, places) for each, places in zip(row, taken.tolist(), strict=True) if each < np.inf]
            for row in needed.tolist()]  # fmt: skip
    return sum(min((max(places, ceil(each)) for each, places in own), default=0) for own in ways)


def _seconds(statement: Statement, mix: Floats) -> Floats:
    """Lower bounds (N,) on the seconds of pieces in all phases, per rank they cover, by a mix of planes (G, J)."""
    return np.where(statement.fits, products(statement.mixed_whole.T, mix[statement.group].T), np.inf)


def _least(statement: Statement, plans: Plans, mix: Floats, seconds: Floats) -> tuple[Floats, Ints]:
    """Least seconds (T, C) of tables, as a mean over all ranks, by coverage; and the numbers of ranks covered (C,)."""
    coverage, number = np.unique(statement.problem.modes.coverage, return_inverse=True)
    column = statement.evaluator.group * len(coverage) + number
    column_count = statement.evaluator.groups * len(coverage)
    least: Floats = np.full((len(plans.open), column_count), np.inf)
    found = table_prices(statement, 0.0, mix, seconds, column)
    least[:, : found.shape[1]] = found
    by_group = least.reshape(len(plans.open), -1, len(coverage))
    return np.where(plans.open[:, :, None], by_group, np.inf).min(axis=1), coverage


def _sum(seconds: Floats) -> Fraction:
    """A lower bound on the sum of seconds (n,)."""
    return Fraction(float(np.nextafter(fsum(seconds.tolist()), -np.inf)))
