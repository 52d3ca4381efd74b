"""What a certificate is about, and what pieces and tables cost at least by multipliers: one half of checking.py.

Given is the statement: which options every table has and how many bytes they take (`recsmith.problems`), and what the
cost model says of single pieces, its supporting planes and latencies (`recsmith.costs`). Sums and products of numbers 0
or more are rounded to the nearest, and then made smaller by more than all roundings can have added. They are taken in
one order, so that every machine finds the same.

Legend: N pieces, P pieces of the problem, O options, T tables, G fusion groups, J planes, F phases, k work terms, n
width steps, m modes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.errors import CorruptFile, UsageError
from recsmith.plans.certificates import LeafProof, ShareWorth
from recsmith.problems import NO_PIECE
from recsmith.sharding import SPLIT_AT_WILL, WIDTH_STEP, Span

EQUAL = 1e-9  # relative: what the cost model says of a piece in double precision, beside the same in real numbers
SHARES = (0.0, 0.5, 1.0)  # of `rest` in the price of what could stand beside a big piece; any are valid
SHRUNK = 1 - 1e-9  # times shares of a rank: far more than their roundings, so no rounding takes one over a step
ROUNDING = 2.0**-52  # relative: more than a rounding to the nearest adds or takes


def at_most(numbers: Floats, roundings: int) -> Floats:
    """Numbers no higher than what these are after so many roundings: sums and products of numbers 0 or more."""
    return numbers * (1 - (roundings + 2) * ROUNDING)


def at_least(numbers: Floats, roundings: int) -> Floats:
    """Numbers no lower than what these are after so many roundings."""
    return numbers * (1 + (roundings + 2) * ROUNDING)


def double_below(number: Fraction) -> float:
    """A double that is no higher than a fraction."""
    return float(np.nextafter(float(number), -np.inf))


def products(columns: Iterable[Floats], factors: Iterable[Floats | float]) -> Floats:
    """Sums (N,) of products of columns (N,) with factors, 0 or more, no higher than they are."""
    total, roundings = None, 1
    for column, factor in zip(columns, factors, strict=True):
        total, roundings = column * factor if total is None else total + column * factor, roundings + 1
    assert total is not None
    return at_most(total, roundings)


def check_certifiable(evaluator: Evaluator) -> None:
    """UsageError where a cost model gives no bound, or one whose proof has no certificate."""
    if not evaluator.planes:
        raise UsageError("the cost model gives no bound, so there is nothing to certify; take --cost-model best")
    if evaluator.bends:
        raise UsageError(
            "the cost model has planes that lie below zero, and their proofs have no certificate yet; take another "
            "cost model, such as analytic"
        )


class Statement:
    """What a certificate is about: pieces of every width that tables can be placed with, and what they take.

    ready (N, J), rest (N,): seconds on each rank that a piece covers, by planes, in the first phase and in the later
    ones; whole (N, J): in all. coverage (N,): ranks that it covers. bytes (N,): on all of them. local (N,): whether it
    does not span the world. worldwide (G,): groups in which every piece does.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        check_certifiable(evaluator)
        self.evaluator = evaluator
        self.problem = problem = evaluator.problem
        modes, options = problem.modes, problem.options
        local = modes.span != Span.WORLD
        self.at_will: Bools = local & np.isin(modes.type, SPLIT_AT_WILL) & (problem.space.widths == "any")
        steps = problem.demand.dim[modes.table] // WIDTH_STEP
        split = np.flatnonzero(self.at_will)
        split = split[np.argsort(steps[split], kind="stable")]
        counts = np.unique(steps[split]).tolist()
        self.families = [(split[steps[split] == count], count) for count in counts]  # modes of as many width steps
        every: list[Ints] = [
            WIDTH_STEP * np.tile(np.arange(1, count + 1, dtype=np.int64), len(mine)) for mine, count in self.families
        ]
        self.first = sum(map(len, every))  # pieces of every width stand before those of the problem
        ends = np.cumsum(steps[split]).tolist()
        self.of_mode = {
            mode: slice(end - int(steps[mode]), end) for mode, end in zip(split.tolist(), ends, strict=True)
        }
        mode = np.concatenate([np.repeat(split, steps[split]), problem.pieces.mode])
        width = np.concatenate([*every, problem.pieces.width])
        head, tail = problem.least_memory(mode, width)
        self.fits: Bools = problem.fits_alone(mode, head, tail)
        self.fits[: self.first] &= problem.allowed(mode[: self.first], width[: self.first])
        coverage = modes.coverage[mode]
        self.bytes: Floats = ((coverage - 1) * head.device + tail.device).astype(np.float64)
        self.coverage, self.group = coverage.astype(np.float64), evaluator.group[mode]
        self.mode, self.width, self.table = mode, width, modes.table[mode]
        self.terms = evaluator.terms(mode, width)
        self._set_seconds(self.terms)
        self.world_options = np.flatnonzero(~local[options.mode])
        self.local_options = np.flatnonzero(local[options.mode] & ~self.at_will[options.mode])
        self.world = problem.cluster.world_size
        self.local: Bools = local[mode]
        self.worldwide: Bools = np.ones(evaluator.groups, dtype=bool)
        self.worldwide[evaluator.group[local]] = False

    def _set_seconds(self, terms: Floats) -> None:
        planes = self.evaluator.planes
        phases = [[self.seconds(terms, slopes) for slopes in plane.slopes] for plane in planes]
        self.ready: Floats = np.stack([each[0] for each in phases], axis=1)
        self.whole: Floats = np.stack([products(each, [1.0] * len(each)) for each in phases], axis=1)
        least = np.min([plane.slopes[1:] for plane in planes], axis=0)
        later = [self.seconds(terms, slopes) for slopes in least]
        self.rest: Floats = products(later, [1.0] * len(later)) if later else np.zeros(len(terms))
        self.opening = min(plane.opening for plane in planes)
        loads = self.evaluator.loads(terms)
        self.alone, self.alone_rest = loads[0] - self.opening, loads[1:].sum(axis=0)

    @staticmethod
    def seconds(terms: Floats, slopes: Floats) -> Floats:
        """What terms (N, k) cost by the slopes (k,) of a plane at least."""
        return products(terms.T, slopes.tolist())

    def certain(self, paid: Bools) -> Fraction:
        """Seconds that these groups cost the slowest rank at least, before any piece."""
        everywhere = self.worldwide | (self.world == 1)
        total, opening = Fraction(0), Fraction(self.opening)
        for group in np.flatnonzero(paid).tolist():
            total += sum(map(Fraction, self.evaluator.shared[group].tolist())) + (opening if everywhere[group] else 0)
        return total + (opening if (paid & ~everywhere).any() else 0)


@dataclass(frozen=True)
class Plans:
    """A part of all plans: ranges of the slowest rank's seconds, groups that tables may use, and that are used."""

    ready: tuple[float, float]
    rest: tuple[float, float]
    open: Bools  # (T, G)
    paid: Bools  # (G,)


def mix_of(statement: Statement, proof: LeafProof) -> Floats:
    """The shares of planes (G, J) of a leaf, which add up to at most 1.

    Raises:
        CorruptFile: they do not, or are of something else.
    """
    mix = np.array(proof.mix, dtype=np.float64)
    planes = statement.ready.shape[1]
    if mix.shape != (statement.evaluator.groups, planes) or not 0 <= proof.plane < planes:
        raise CorruptFile("a proof of the certificate is of other groups or planes; write it anew")
    if any(sum(map(Fraction, shares)) > 1 for shares in proof.mix):
        mix = mix * (1 - 2.0**-50)  # what the search's own rounding added
        if any(sum(map(Fraction, shares)) > 1 for shares in mix.tolist()):
            raise CorruptFile("shares of planes in the certificate add up to more than 1; write it anew")
    return mix


def plain_prices(statement: Statement, proof: LeafProof, mix: Floats) -> tuple[Floats, Floats]:
    """What the seconds of pieces (N,) are worth in the first phase and in the later ones, on each rank they cover."""
    worth = at_most(proof.ready * mix, 1)[statement.group]
    return products(statement.ready.T, worth.T), at_most(proof.rest * statement.rest, 1)


def piece_prices(statement: Statement, plans: Plans, proof: LeafProof, mix: Floats) -> Floats:
    """The price (N,) of pieces that do not span the world, on each rank that they cover; infinite for none of `plans`.

    On every rank prices add up to at most ready multiplier * ready + rest multiplier * rest + share_seconds. So that a
    big piece, of more than half of the longest `ready`, pays for what nothing beside it can use, it is priced by what
    is left.
    """
    high, filled = plans.ready[1], share_seconds(plans, proof)
    first, last = plain_prices(statement, proof, mix)
    if filled:
        first = at_most(first + share_prices(statement, plans, proof, mix), 1)
    own, price = statement.ready[:, proof.plane], at_most(first + last, 1)
    allowed = statement.fits & (statement.alone <= high * (1 + EQUAL)) & (
        statement.alone_rest <= plans.rest[1] * (1 + EQUAL)
    )  # fmt: skip
    big: Bools = own > high / 2
    beside = allowed & ~big & statement.local & plans.open[statement.table, statement.group]
    big &= allowed
    if big.any() and not (beside & (own <= 0)).any():
        for share in SHARES:
            worth = at_least((first[beside] + (1 - share) * last[beside]) / own[beside], 3)
            fill = float(worth.max(initial=0.0))
            unused = min((Fraction(proof.ready) - Fraction(fill)) * Fraction(end) for end in plans.ready)
            unused += (1 - Fraction(share)) * Fraction(proof.rest) * Fraction(plans.rest[0]) + filled
            kept = at_most(fill * own[big] + share * last[big], 3)
            alone = np.nextafter(double_below(unused) + kept, -np.inf)
            price[big] = np.maximum(price[big], alone)
    return np.where(allowed, price, np.inf)


def share_seconds(plans: Plans, proof: LeafProof) -> Fraction:
    """Seconds that the shares of a rank are worth which its pieces take, at most: all of the rank by each function."""
    return Fraction(plans.ready[1]) * sum(Fraction(each.worth) for each in proof.shares)


def share_prices(statement: Statement, plans: Plans, proof: LeafProof, mix: Floats) -> Floats:
    """What the shares (N,) of a rank that pieces take of the longest `ready` are worth beyond their seconds.

    Shares on a rank add up to at most 1. They are made a billionth smaller, so that they add up to less by far more
    than all roundings, and what a function makes of a rounded one is what it makes of one that is a little larger.
    """
    seconds = products(statement.ready.T, mix[statement.group].T)
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


def table_prices(statement: Statement, proof: LeafProof, mix: Floats, price: Floats) -> Floats:
    """The least price (T, G) of every table in every group, over the world's ranks; infinite where it has no place.

    price (N,): of pieces that do not span the world, on each rank that they cover.
    """
    problem, modes = statement.problem, statement.problem.modes
    byte = at_most(proof.byte * statement.bytes, 1)
    local = at_most(price * statement.coverage / statement.world + byte, 3)
    least: Floats = np.full((len(problem.tables), statement.evaluator.groups), np.inf)
    first = 0
    for mode, steps in statement.families:
        cover = covers(local[first : first + len(mode) * steps].reshape(len(mode), steps))[-1]
        np.minimum.at(least, (modes.table[mode], statement.evaluator.group[mode]), cover)
        first += len(mode) * steps
    everywhere = products(statement.whole.T, mix[statement.group].T)
    everywhere = np.where(statement.fits, at_most(everywhere + byte, 1), np.inf)
    for options, cost in ((statement.local_options, local), (statement.world_options, everywhere)):
        total: Floats = np.zeros(len(options))
        for piece, count in zip(problem.options.piece[options].T, problem.options.count[options].T, strict=True):
            there = piece != NO_PIECE
            total += np.where(there, cost[first + np.where(there, piece, 0)] * np.maximum(count, 1), 0.0)
        mode = problem.options.mode[options]
        at = (modes.table[mode], statement.evaluator.group[mode])
        np.minimum.at(least, at, at_most(total, 1 + problem.options.piece.shape[1]))
    return least


def covers(cost: Floats) -> Floats:
    """The least (n + 1, m) that pieces cost which together have 0 to n width steps; cost (m, n): of one of 1 to n."""
    modes, steps = cost.shape
    one, best = np.ascontiguousarray(cost.T), np.zeros((steps + 1, modes))
    for filled in range(1, steps + 1):
        best[filled] = at_most((one[:filled] + best[filled - 1 :: -1]).min(axis=0), 1)
    return best
