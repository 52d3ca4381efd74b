"""What pieces and tables cost at least by multipliers: a part of checking.py.

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

ANY = ((0.0, float("inf")), (0.0, float("inf")))  # seconds of both hosts, where they are not told apart
SHARES = (0.0, 0.5, 1.0, 3.0)  # times `rest` in the price of what could stand beside a big piece; any are valid
STEP, STEPS = 1 + 1e-9, 1 + Fraction(4, 10**9)  # times the whole steps of a piece, and of a rank: more than roundings
SHRUNK = 1 - 1e-9  # times shares of a rank: far more than their roundings, so no rounding takes one over a step


@dataclass(frozen=True)
class Plans:
    """A part of all plans: ranges of the slowest rank's seconds, groups that tables may use, and that are used.

    hosts: ranges of what pieces that cover a host take, of the one of two hosts where that is less, and of the other.
    """

    ready: tuple[float, float]
    rest: tuple[float, float]
    open: Bools  # (T, G)
    paid: Bools  # (G,)
    hosts: tuple[tuple[float, float], tuple[float, float]] = ANY


def mix_of(statement: Statement, shares_of: Sequence[Sequence[float]], plane: int = 0) -> Floats:
    """The shares of planes (G, J) of a leaf, which add up to at most 1.

    Raises:
        CorruptFile: they do not, or are of something else.
    """
    mix = np.array(shares_of, dtype=np.float64)
    planes = statement.ready.shape[1]
    if mix.shape != (statement.evaluator.groups, planes + len(statement.levels.paid)) or not 0 <= plane < planes:
        raise CorruptFile("a proof of the certificate is of other groups or planes; write it anew")
    if any(sum(map(Fraction, shares)) > 1 for shares in shares_of):
        mix = mix * (1 - 2.0**-50)  # what the search's own rounding added
        if any(sum(map(Fraction, shares)) > 1 for shares in mix.tolist()):
            raise CorruptFile("shares of planes in the certificate add up to more than 1; write it anew")
    return mix


def plain_prices(statement: Statement, proof: LeafProof, mix: Floats) -> tuple[Floats, Floats]:
    """What the seconds of pieces (N,) are worth in the first phase and in the later ones, on each rank they cover."""
    worth = at_most(proof.ready * mix, 1)[statement.group]
    return products(statement.mixed.T, worth.T), at_most(proof.rest * statement.rest, 1)


def piece_prices(statement: Statement, plans: Plans, proof: LeafProof, mix: Floats, more: Fraction) -> Floats:
    """The price (N,) of pieces that do not span the world, on each rank that they cover; infinite for none of `plans`.

    On every rank prices add up to at most ready multiplier * ready + rest multiplier * rest + more.
    """
    first, last = plain_prices(statement, proof, mix)
    if proof.shares:
        first = at_most(first + share_prices(statement, plans, proof, mix), 1)
    own = statement.ready[:, proof.plane]
    return charged_prices(statement, plans, proof, (first, last, own), allowed_pieces(statement, plans), more)


def allowed_pieces(statement: Statement, plans: Plans) -> Bools:
    """Which pieces (N,) plans may have: those that alone stay within the longest phases, and fit a device."""
    return statement.fits & (statement.alone <= plans.ready[1] * (1 + EQUAL)) & (
        statement.alone_rest <= plans.rest[1] * (1 + EQUAL)
    )  # fmt: skip


def charged_prices(
    statement: Statement, plans: Plans, proof: LeafProof, prices: tuple[Floats, Floats, Floats], allowed: Bools,
    more: Fraction,
) -> Floats:  # fmt: skip
    """The price (N,) of pieces by what they are worth in the first phase and in the later ones, and whole steps there.

    So that a big piece, of more than half of the longest `ready`, pays for what nothing beside it can use, it is priced
    by what is left. It is infinite for pieces that are not allowed. prices: the worth in both; and own seconds, of
    which those of a rank add up to at most `ready`.
    """
    high, later_worth = plans.ready[1], Fraction(proof.rest) + (Fraction(proof.steps.worth) if proof.steps else 0)
    first, last, own = prices
    later = last  # what the later phases are worth at most
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
            for each in {fill, max(fill, proof.ready)}:  # any number that is as high is valid
                unused = min((Fraction(proof.ready) - Fraction(each)) * Fraction(end) for end in plans.ready)
                unused += min(rest * Fraction(end) for end in plans.rest) + more
                alone = double_below(unused) + at_most(each * own[big] + kept[big], 3)
                price[big] = np.maximum(price[big], np.nextafter(alone, -np.inf))
    return np.where(allowed, price, np.inf)


def step_seconds(plans: Plans, steps: StepWorth) -> Fraction:
    """Seconds that the whole steps of width on a rank are worth at most: those of the longest later phases."""
    number = Fraction(plans.rest[1]) / Fraction(steps.seconds) * STEPS
    return Fraction(steps.worth) * Fraction(steps.seconds) * (number.numerator // number.denominator)


def step_prices(statement: Statement, steps: StepWorth) -> Floats:
    """What the whole steps of width in the later phases of pieces (N,) are worth."""
    number: Floats = np.floor(statement.rest / steps.seconds * STEP)
    return at_most(steps.worth * (steps.seconds * number), 2)


def share_seconds(plans: Plans, proof: LeafProof) -> Fraction:
    """Seconds that the shares of a rank are worth which its pieces take, at most: all of the rank by each function."""
    return Fraction(plans.ready[1]) * sum(Fraction(each.worth) for each in proof.shares)


def share_prices(statement: Statement, plans: Plans, proof: LeafProof, mix: Floats) -> Floats:
    """What the shares (N,) of a rank that pieces take of the longest `ready` are worth beyond their seconds.

    Shares on a rank add up to at most 1. They are made a billionth smaller, so that they add up to less by far more
    than all roundings, and what a function makes of a rounded one is what it makes of one that is a little larger.
    """
    seconds = products(statement.mixed.T, mix[statement.group].T)
    share = np.minimum(at_most(seconds * SHRUNK / plans.ready[1], 2), 1.0)
    worths = [at_most(each.worth * plans.ready[1] * share_value(each, share), 2) for each in proof.shares]
    return products(worths, [1.0] * len(worths))


def share_value(function: ShareWorth, share: Floats) -> Floats:
    """What shares (N,) of a rank are worth of one rank: where they add up to less than 1, so do these to at most 1."""
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
    """The least price (T, G) of every table in every group, over the world's ranks; infinite where it has no place.

    price (N,): of pieces that do not span the world, on each rank that they cover. column: of each mode, in place of
    its group.
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
    """The least (n + 1, m) that pieces cost which together have 0 to n width steps; cost (m, n): of one of 1 to n."""
    modes, steps = cost.shape
    one, best = np.ascontiguousarray(cost.T), np.zeros((steps + 1, modes))
    for filled in range(1, steps + 1):
        best[filled] = at_most((one[:filled] + best[filled - 1 :: -1]).min(axis=0), 1)
    return best
