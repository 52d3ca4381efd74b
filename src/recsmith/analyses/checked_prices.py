"""Least prices of pieces and tables under the multipliers of a proof; a part of checking.py.

Legend: N pieces, T tables, G fusion groups, J planes, P planes by levels, n width steps, m modes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.analyses.checked_statement import EQUAL, ROUNDING, Statement, at_least, at_most, double_below, products
from recsmith.errors import CorruptFile
from recsmith.plans.proofs import LeafProof, ShareWorth, StepWorth
from recsmith.problems import NO_PIECE

ANY = ((0.0, float("inf")), (0.0, float("inf")))  # ranges of seconds of both hosts if they are not told apart
SHARES = (0.0, 0.5, 1.0, 3.0)  # factors on `rest` in the price of the room left by a big piece; any value is valid
STEP, STEPS = 1 + 1e-9, 1 + Fraction(4, 10**9)  # factors on whole steps of a piece, of a rank: more than roundings
SHRUNK = 1 - 1e-9  # factor on shares of a rank: far more than roundings, so that none lifts a share over a step


@dataclass(frozen=True)
class Plans:
    """A part of the set of all plans.

    ready, rest: ranges of the slowest rank's seconds in the first phase and in the later ones. hosts: ranges of the
    seconds of pieces that cover a whole host, for the host where these are fewer, and for the other host.
    """

    ready: tuple[float, float]
    rest: tuple[float, float]
    open: Bools  # (T, G) groups that tables may use
    paid: Bools  # (G,) groups that are certainly used
    hosts: tuple[tuple[float, float], tuple[float, float]] = ANY


def mix_of(statement: Statement, shares_of: Sequence[Sequence[float]], plane: int = 0) -> Floats:
    """The shares of planes (G, J + P) of a leaf; those of a group add up to at most 1.

    Raises:
        CorruptFile: they add up to more, or are for other groups or planes.
    """
    mix = np.array(shares_of, dtype=np.float64)
    planes = statement.ready.shape[1]
    if mix.shape != (statement.evaluator.groups, planes + len(statement.levels.paid)) or not 0 <= plane < planes:
        raise CorruptFile("a proof of the certificate is of other groups or planes; write it anew")
    if any(sum(map(Fraction, shares)) > 1 for shares in shares_of):
        mix = mix * (1 - 2.0**-50)  # removes the search's own rounding error
        if any(sum(map(Fraction, shares)) > 1 for shares in mix.tolist()):
            raise CorruptFile("shares of planes in the certificate add up to more than 1; write it anew")
    return mix


def plain_prices(statement: Statement, proof: LeafProof, mix: Floats) -> tuple[Floats, Floats]:
    """Worth (N,) of the seconds of pieces in the first phase, and in the later ones, on each rank that they cover."""
    worth = at_most(proof.ready * mix, 1)[statement.group]
    return products(statement.mixed.T, worth.T), at_most(proof.rest * statement.rest, 1)


def piece_prices(statement: Statement, plans: Plans, proof: LeafProof, mix: Floats, more: Fraction) -> Floats:
    """Prices (N,) of pieces that do not span the world, per rank they cover; infinite for pieces that no plan has.

    On every rank, prices add up to at most ready multiplier * ready + rest multiplier * rest + more.
    """
    first, last = plain_prices(statement, proof, mix)
    if proof.shares:
        first = at_most(first + share_prices(statement, plans, proof, mix), 1)
    own = statement.ready[:, proof.plane]
    return charged_prices(statement, plans, proof, (first, last, own), allowed_pieces(statement, plans), more)


def allowed_pieces(statement: Statement, plans: Plans) -> Bools:
    """Which pieces (N,) plans may have: alone they keep within the longest phases and fit on a device."""
    return statement.fits & (statement.alone <= plans.ready[1] * (1 + EQUAL)) & (
        statement.alone_rest <= plans.rest[1] * (1 + EQUAL)
    )  # fmt: skip


def charged_prices(
    statement: Statement, plans: Plans, proof: LeafProof, prices: tuple[Floats, Floats, Floats], allowed: Bools,
    more: Fraction,
) -> Floats:  # fmt: skip
    """Prices (N,) of pieces, from their worth in both kinds of phases and of whole width steps in the later ones.

    A big piece takes more than half of the longest `ready`. It also pays for the time that no other piece on its rank
    can use. The price is infinite for pieces that are not allowed. prices: worth (N,) in the first phase, worth (N,) in
    the later ones, and seconds (N,) of pieces, which add up to at most `ready` on a rank.
    """
    high, later_worth = plans.ready[1], Fraction(proof.rest) + (Fraction(proof.steps.worth) if proof.steps else 0)
    first, last, own = prices
    later = last  # the most that the later phases are worth
    if proof.steps is not None:
        later = at_most(last + at_most(proof.steps.worth * statement.rest, 1), 1)
        last = at_most(last + step_prices(statement, proof.steps), 1)
    price = at_most(first + last, 1)
    big: Bools = own > high / 2
    beside = allowed & ~big & statement.local & plans.open[statement.table, statement.group]
    big &= allowed
    if big.any() and not (beside & (own <= 0)).any():
        for share in SHARES:
            kept, all_ = share * later, first + last
            worth = at_least((all_ - kept + at_least(all_ + kept, 3) * 4 * ROUNDING)[beside] / own[beside], 3)
            fill, rest = float(worth.max(initial=0.0)), Fraction(proof.rest) - Fraction(share) * later_worth
            for each in {fill, max(fill, proof.ready)}:  # any number >= fill is valid
                unused = min((Fraction(proof.ready) - Fraction(each)) * Fraction(end) for end in plans.ready)
                unused += min(rest * Fraction(end) for end in plans.rest) + more
                alone = double_below(unused) + at_most(each * own[big] + kept[big], 3)
                price[big] = np.maximum(price[big], np.nextafter(alone, -np.inf))
    return np.where(allowed, price, np.inf)


def step_seconds(plans: Plans, steps: StepWorth) -> Fraction:
    """Upper bound on the worth, in seconds, of the whole width steps on a rank: as many as the longest `rest` holds."""
    number = Fraction(plans.rest[1]) / Fraction(steps.seconds) * STEPS
    return Fraction(steps.worth) * Fraction(steps.seconds) * (number.numerator // number.denominator)


def step_prices(statement: Statement, steps: StepWorth) -> Floats:
    """Worth (N,) of the whole width steps of pieces in the later phases."""
    number: Floats = np.floor(statement.rest / steps.seconds * STEP)
    return at_most(steps.worth * (steps.seconds * number), 2)


def share_seconds(plans: Plans, proof: LeafProof) -> Fraction:
    """Upper bound on the worth, in seconds, of the shares that pieces take of a rank: the whole rank per function."""
    return Fraction(plans.ready[1]) * sum(Fraction(each.worth) for each in proof.shares)


def share_prices(statement: Statement, plans: Plans, proof: LeafProof, mix: Floats) -> Floats:
    """Worth (N,) of pieces' shares of a rank (of the longest `ready`) in addition to the worth of their seconds.

    Shares on a rank add up to at most 1. They are made a billionth smaller, far more than all roundings. So their sum
    is below 1, and a function of a rounded share is its value at a share that is slightly larger than the exact one.
    """
    seconds = products(statement.mixed.T, mix[statement.group].T)
    share = np.minimum(at_most(seconds * SHRUNK / plans.ready[1], 2), 1.0)
    worths = [at_most(each.worth * plans.ready[1] * share_value(each, share), 2) for each in proof.shares]
    return products(worths, [1.0] * len(worths))


def share_value(function: ShareWorth, share: Floats) -> Floats:
    """A dual feasible function of shares (N,): if shares of a rank sum to less than 1, values sum to at most 1."""
    by = function.by
    if function.kind == "cutoff":
        return np.where(share > 1 - by, 1.0, np.where(share < by, 0.0, share))
    if function.kind == "count":
        return at_most(np.floor(share * (by + 1)) / by, 1)
    times = int(1 / Fraction(by))
    left: Floats = times - np.floor((1 - share) / by)
    return at_most(np.where(share > 0.5, np.maximum(left, 0.0), np.floor(share / by)) / times, 1)


def table_prices(
    statement: Statement, byte_price: float, mix: Floats, price: Floats, column: Ints | None = None
) -> Floats:  # fmt: skip
    """The least price (T, G) of each table in each group, as a mean over all ranks; infinite if it has no place there.

    byte_price: price of a byte. mix: shares of planes (G, J + P). price (N,): prices of pieces that do not span the
    world, on each rank that they cover. column: the column of the result for each mode, in place of its group.
    """
    problem, modes = statement.problem, statement.problem.modes
    column, columns = (statement.evaluator.group, statement.evaluator.groups) if column is None else (
        column, int(column.max()) + 1
    )  # fmt: skip
    byte = at_most(byte_price * statement.bytes, 1)
    local = at_most(price * statement.coverage / statement.world + byte, 3)
    least: Floats = np.full((len(problem.tables), columns), np.inf)
    first = 0
    for mode, steps in statement.families:
        cover = covers(local[first : first + len(mode) * steps].reshape(len(mode), steps))[-1]
        np.minimum.at(least, (modes.table[mode], column[mode]), cover)
        first += len(mode) * steps
    everywhere = products(statement.mixed_whole.T, mix[statement.group].T)
    everywhere = np.where(statement.fits, at_most(everywhere + byte, 1), np.inf)
    for options, cost in ((statement.local_options, local), (statement.world_options, everywhere)):
        total: Floats = np.zeros(len(options))
        for piece, count in zip(problem.options.piece[options].T, problem.options.count[options].T, strict=True):
            there = piece != NO_PIECE
            total += np.where(there, cost[first + np.where(there, piece, 0)] * np.maximum(count, 1), 0.0)
        mode = problem.options.mode[options]
        np.minimum.at(least, (modes.table[mode], column[mode]), at_most(total, 1 + problem.options.piece.shape[1]))
    return least


def covers(cost: Floats) -> Floats:
    """Least cost (n + 1, m) of sets of pieces with 0 to n width steps in total; cost (m, n): of a piece of 1 to n."""
    modes, steps = cost.shape
    one, best = np.ascontiguousarray(cost.T), np.zeros((steps + 1, modes))
    for filled in range(1, steps + 1):
        best[filled] = at_most((one[:filled] + best[filled - 1 :: -1]).min(axis=0), 1)
    return best
