"""Proves the bound of a certificate again, by code that shares nothing with the search that found it.

Given is the statement: which options every table has and how many bytes they take (`recsmith.problems`), and what the
cost model says of single pieces, its supporting planes and latencies (`recsmith.costs`). From there on every step of
the proof (docs/bounds.md) is worked out anew: that the parts cover all plans, that what is left out is no loss, and
what each leaf proves. Numbers of single pieces are rounded against the claim in every operation, and those of a leaf
are fractions, so no rounding can make a claim true.

Legend: N pieces, P pieces of the problem, O options, T tables, G fusion groups, J planes, F phases, k work terms, n
width steps.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import fsum

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.errors import CorruptFile, UsageError
from recsmith.plans.certificates import LeafProof, ProofPart, ProofTree
from recsmith.problems import NO_PIECE
from recsmith.sharding import SPLIT_AT_WILL, WIDTH_STEP, Span

EQUAL = 1e-9  # relative: what the cost model says of a piece in double precision, beside the same in real numbers
SHARES = (0.0, 0.5, 1.0)  # of `rest` in the price of what could stand beside a big piece; any are valid


def down(numbers: Floats) -> Floats:
    """The next number below, of results that were rounded to the nearest; 0 stays 0.

    A sum that comes out as 0 is exact, and a product that does is of numbers 0 or more.
    """
    return np.where(np.isfinite(numbers) & (numbers != 0), np.nextafter(numbers, -np.inf), numbers)


def up(numbers: Floats) -> Floats:
    """The next number above."""
    return np.nextafter(numbers, np.inf)


def products(left: Floats, right: Floats) -> Floats:
    """Sums (N,) of products of numbers (N, k) and (k,), 0 or more, no higher than they are."""
    total: Floats = np.zeros(len(left))
    for column, factor in zip(left.T, right.tolist(), strict=True):
        total = down(total + down(column * factor))
    return total


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
    ones; whole (N, J): in all. coverage (N,): ranks that it covers. bytes (N,): on all of them.
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
        mode = np.concatenate([np.repeat(split, steps[split]), problem.pieces.mode])
        width = np.concatenate([*every, problem.pieces.width])
        head, tail = problem.least_memory(mode, width)
        self.fits: Bools = problem.fits_alone(mode, head, tail)
        self.fits[: self.first] &= problem.allowed(mode[: self.first], width[: self.first])
        coverage = modes.coverage[mode]
        self.bytes: Floats = ((coverage - 1) * head.device + tail.device).astype(np.float64)
        self.coverage, self.group = coverage.astype(np.float64), evaluator.group[mode]
        self.mode, self.width = mode, width
        self._set_seconds(evaluator.terms(mode, width))
        self.world_options = np.flatnonzero(~local[options.mode])
        self.local_options = np.flatnonzero(local[options.mode] & ~self.at_will[options.mode])
        self.world = problem.cluster.world_size
        self.worldwide: Bools = np.zeros(evaluator.groups, dtype=bool)
        self.worldwide[evaluator.group[~local]] = True

    def _set_seconds(self, terms: Floats) -> None:
        planes = self.evaluator.planes
        self.terms = terms
        self.ready = np.stack([products(terms, plane.slopes[0]) for plane in planes], axis=1)
        later = [[products(terms, slope) for slope in plane.slopes[1:]] for plane in planes]
        self.whole = self.ready.copy()
        for plane, seconds in enumerate(later):
            for each in seconds:
                self.whole[:, plane] = down(self.whole[:, plane] + each)
        least = np.min([plane.slopes[1:] for plane in planes], axis=0)
        self.rest: Floats = np.zeros(len(terms))
        for slope in least:
            self.rest = down(self.rest + products(terms, slope))
        self.opening = min(plane.opening for plane in planes)
        loads = self.evaluator.loads(terms)
        self.alone, self.alone_rest = loads[0] - self.opening, loads[1:].sum(axis=0)

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


def proven_seconds(evaluator: Evaluator, tree: ProofTree) -> float:
    """Seconds that a certificate's tree proves: no plan of the evaluator's space takes fewer.

    Raises:
        CorruptFile: a part is none of the tree, or what it leaves out may matter.
        UsageError: the cost model has no planes, or some below zero.
    """
    statement = Statement(evaluator)
    open_: Bools = np.ones((len(evaluator.problem.tables), evaluator.groups), dtype=bool)
    for group, other in tree.closed:
        _check_closed(statement, group, other, {closed for closed, _ in tree.closed})
        open_[:, group] = False
    several = evaluator.step_rule.several_phases
    nobody: Bools = np.zeros(evaluator.groups, dtype=bool)
    everything = Plans((0.0, tree.below), (0.0, tree.below if several else 0.0), open_, nobody)
    least, todo, seen = Fraction(tree.below), [(0, everything)], set[int]()
    while todo:
        place, plans = todo.pop()
        if place in seen or place >= len(tree.parts):
            raise CorruptFile(f"part {place} of the certificate is there twice, or not at all; write it anew")
        seen.add(place)
        part = tree.parts[place]
        if part.proof is None:
            todo += zip(part.halves, _halves(statement, plans, part), strict=True)
        else:
            least = min(least, _leaf_seconds(statement, plans, part.proof))
    return float(down(np.array(float(max(least, Fraction(0)) * (1 - Fraction(EQUAL))))))


def _halves(statement: Statement, plans: Plans, part: ProofPart) -> tuple[Plans, Plans]:
    """Both halves of a split: every plan of the part is in one of them."""
    if part.split in ("ready", "rest"):
        low, high = getattr(plans, part.split)
        if not low <= part.at <= high:
            raise CorruptFile(f"a range of {low} to {high} s is split at {part.at} s; write the certificate anew")
        return replace(plans, **{part.split: (low, part.at)}), replace(plans, **{part.split: (part.at, high)})
    if not 0 <= part.of < plans.open.shape[part.split == "group"]:
        raise CorruptFile(f"{part.split} {part.of} of the certificate does not exist; write it anew")
    without = plans.open.copy()
    if part.split == "group":
        without[:, part.of] = False
        return replace(plans, open=without), replace(plans, paid=plans.paid | (np.arange(len(plans.paid)) == part.of))
    only = plans.open.copy()
    without[part.of, statement.worldwide], only[part.of, ~statement.worldwide] = False, False
    return replace(plans, open=without), replace(plans, open=only)


def _leaf_seconds(statement: Statement, plans: Plans, proof: LeafProof) -> Fraction:
    """Seconds that no plan of a part takes less than, by the multipliers of a leaf."""
    mix = np.array(proof.mix, dtype=np.float64)
    planes = statement.ready.shape[1]
    if mix.shape != (statement.evaluator.groups, planes) or not 0 <= proof.plane < planes:
        raise CorruptFile("a proof of the certificate is of other groups or planes; write it anew")
    if any(sum(map(Fraction, shares)) > 1 for shares in proof.mix):
        mix = mix * (1 - 2.0**-50)  # shares add up to at most 1
        if any(sum(map(Fraction, shares)) > 1 for shares in mix.tolist()):
            raise CorruptFile("shares of planes in the certificate add up to more than 1; write it anew")
    least = np.where(plans.open, _table_prices(statement, plans, proof, mix), np.inf).min(axis=1)
    low = Fraction(plans.ready[0]) + Fraction(plans.rest[0])
    certain = statement.certain(plans.paid)
    if not np.isfinite(least).all():
        return Fraction(2) ** 1000  # a table has no place: there is no such plan
    capacity = sum(map(Fraction, statement.problem.capacity.tolist()))
    ready, rest, byte = Fraction(proof.ready), Fraction(proof.rest), Fraction(proof.byte)
    total = Fraction(float(down(np.array(fsum(least.tolist()))))) - byte * capacity
    total += min((1 - ready) * Fraction(end) for end in plans.ready)
    total += min((1 - rest) * Fraction(end) for end in plans.rest)
    return certain + max(total, low)


def _table_prices(statement: Statement, plans: Plans, proof: LeafProof, mix: Floats) -> Floats:
    """The least price (T, G) of every table in every group; infinite where it has no place there."""
    problem, modes = statement.problem, statement.problem.modes
    price = _piece_prices(statement, plans, proof, mix)
    least: Floats = np.full(plans.open.shape, np.inf)
    first = 0
    for mode, steps in statement.families:
        cover = cheapest_cover(price[first : first + len(mode) * steps].reshape(len(mode), steps))
        np.minimum.at(least, (modes.table[mode], statement.evaluator.group[mode]), cover)
        first += len(mode) * steps
    everywhere = np.zeros(len(price))
    for plane in range(mix.shape[1]):
        everywhere = down(everywhere + down(statement.whole[:, plane] * mix[statement.group, plane]))
    everywhere = np.where(statement.fits, down(everywhere + down(proof.byte * statement.bytes)), np.inf)
    for options, cost in ((statement.local_options, price), (statement.world_options, everywhere)):
        total: Floats = np.zeros(len(options))
        for piece, count in zip(problem.options.piece[options].T, problem.options.count[options].T, strict=True):
            there = piece != NO_PIECE
            each = np.where(there, cost[first + np.where(there, piece, 0)], 0.0)
            total = down(total + np.where(there, down(each * np.maximum(count, 1)), 0.0))
        mode = problem.options.mode[options]
        np.minimum.at(least, (modes.table[mode], statement.evaluator.group[mode]), total)
    return least


def _piece_prices(statement: Statement, plans: Plans, proof: LeafProof, mix: Floats) -> Floats:
    """The price (N,) of pieces that do not span the world, over all ranks that they cover, over the world's ranks.

    On every rank prices add up to at most ready multiplier * ready + rest multiplier * rest. So that a big piece, of
    more than half of the longest `ready`, pays for what nothing beside it can use, it is priced by what is left.
    """
    high = plans.ready[1]
    first: Floats = np.zeros(len(statement.rest))
    for plane in range(mix.shape[1]):
        worth = down(proof.ready * mix[statement.group, plane])
        first = down(first + down(worth * statement.ready[:, plane]))
    last, own = down(proof.rest * statement.rest), statement.ready[:, proof.plane]
    price = down(first + last)
    allowed = statement.fits & (statement.alone <= high * (1 + EQUAL)) & (
        statement.alone_rest <= plans.rest[1] * (1 + EQUAL)
    )  # fmt: skip
    big: Bools = own > high / 2
    local = ~statement.worldwide[statement.group]
    beside = allowed & ~big & local & plans.open[statement.problem.modes.table[statement.mode], statement.group]
    if not (beside & (own <= 0)).any():
        for share in SHARES:
            worth = up(up(first[beside] + up((1 - share) * last[beside])) / own[beside])
            fill = float(worth.max(initial=0.0))
            unused = min((Fraction(proof.ready) - Fraction(fill)) * Fraction(end) for end in plans.ready)
            unused += (1 - Fraction(share)) * Fraction(proof.rest) * Fraction(plans.rest[0])
            left = np.nextafter(float(unused), -np.inf)
            alone = down(left + down(fill * own)) + down(share * proof.rest * statement.rest)
            price = np.where(big, np.maximum(price, np.nextafter(alone, -np.inf)), price)
    spread = down(down(price * statement.coverage) / statement.world)
    return np.where(allowed, down(spread + down(proof.byte * statement.bytes)), np.inf)


def cheapest_cover(cost: Floats) -> Floats:
    """The least (m,) that pieces cost which together have all n width steps; cost (m, n): of one of 1 to n steps."""
    modes, steps = cost.shape
    best: Floats = np.zeros((modes, steps + 1))
    for filled in range(1, steps + 1):
        best[:, filled] = down(cost[:, :filled] + best[:, :filled][:, ::-1]).min(axis=1)
    return best[:, steps]


def _check_closed(statement: Statement, group: int, other: int, closed: set[int]) -> None:
    """CorruptFile unless whatever a group can hold another one holds at no higher cost, and is open itself."""
    evaluator, problem = statement.evaluator, statement.problem
    modes, options = problem.modes, problem.options
    where = f"group {group} is left out of the certificate for group {other}"
    if not (0 <= group < evaluator.groups and 0 <= other < evaluator.groups) or other in closed:
        raise CorruptFile(f"{where}, which is not there; write it anew")
    if (evaluator.shared[other] > evaluator.shared[group]).any():
        raise CorruptFile(f"{where}, whose collectives take longer; write it anew")
    keys = list(zip(modes.table.tolist(), modes.kernel.tolist(), modes.load_factor.tolist(), strict=True))
    into = {key: mode for mode, key in enumerate(keys) if evaluator.group[mode] == other}
    for option in np.flatnonzero(evaluator.group[options.mode] == group).tolist():
        mine = int(options.mode[option])
        theirs = into.get(keys[mine])
        pieces = [each for each in options.piece[option].tolist() if each != NO_PIECE]
        if theirs is None or modes.coverage[theirs] != modes.coverage[mine] or not (
            statement.at_will[theirs] or _has_option(statement, theirs, option)
        ) or any(not _holds(statement, theirs, statement.first + piece) for piece in pieces):  # fmt: skip
            raise CorruptFile(f"{where}, which does not hold all that it holds; write it anew")


def _has_option(statement: Statement, mode: int, option: int) -> bool:
    """Whether a mode has an option of the same pieces."""
    problem, options = statement.problem, statement.problem.options

    def shape(one: int) -> list[tuple[int, int]]:
        pairs = zip(options.piece[one].tolist(), options.count[one].tolist(), strict=True)
        return [(int(problem.pieces.width[piece]), count) for piece, count in pairs if piece != NO_PIECE]

    return any(shape(option) == shape(one) for one in np.flatnonzero(options.mode == mode).tolist())


def _holds(statement: Statement, mode: int, piece: int) -> bool:
    """Whether a mode holds a piece of the same width at no higher cost, in as many bytes."""
    problem, evaluator = statement.problem, statement.evaluator
    modes: Ints = np.array([statement.mode[piece], mode])
    widths = np.repeat(statement.width[piece], 2)
    terms, (head, tail) = evaluator.terms(modes, widths), problem.least_memory(modes, widths)
    same = all(each[0] == each[1] for part in (head, tail) for each in (part.device, part.host))
    allowed = bool(problem.allowed(modes, widths)[1]) or not statement.at_will[mode]
    return bool((terms[1] <= terms[0] * (1 + EQUAL)).all()) and same and allowed
