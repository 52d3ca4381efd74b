"""What a certificate is about: pieces of every width, and what these take; the statement that checking.py starts from.

Given are which options every table has and how many bytes they take (`recsmith.problems`), and what the cost model says
of single pieces, its supporting planes and latencies (`recsmith.costs`). Sums and products of numbers 0 or more are
rounded to the nearest, and then made smaller by more than all roundings can have added. They are taken in one order, so
that every machine finds the same.

Legend: N pieces, P pieces of the problem, T tables, G fusion groups, J planes, F phases, k work terms, m modes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.errors import UsageError
from recsmith.sharding import SPLIT_AT_WILL, WIDTH_STEP, Span

EQUAL = 1e-9  # relative: what the cost model says of a piece in double precision, beside the same in real numbers
NO_PLAN = Fraction(2) ** 1000  # seconds: what a part proves that no plan is in, because a table has no place there
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


@dataclass(frozen=True)
class LevelSeconds:
    """Planes by levels of how full groups are: seconds (N, P) of pieces; paid (P,): part of a launch that these pay."""

    seconds: Floats
    paid: tuple[float, ...]


class Statement:
    """What a certificate is about: pieces of every width that tables can be placed with, and what they take.

    ready (N, J), rest (N,): seconds on each rank that a piece covers, by planes, in the first phase and in the later
    ones; whole (N, J): in all. coverage (N,): ranks that it covers. bytes (N,): on all of them. local (N,): whether it
    does not span the world. worldwide (G,): groups in which every piece does. levels: more planes, of none at first.
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
        self.levels = LevelSeconds(np.zeros((len(mode), 0)), ())

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

    @property
    def mixed(self) -> Floats:
        """Seconds (N, J + P) in the first phase by all planes that are mixed."""
        return np.hstack([self.ready, self.levels.seconds])

    @property
    def mixed_whole(self) -> Floats:
        """The same in all phases, of pieces that span the world, which have no levels: there the first plane counts."""
        return np.hstack([self.whole, np.repeat(self.whole[:, :1], len(self.levels.paid), axis=1)])

    def certain(self, paid: Bools) -> Fraction:
        """Seconds that these groups cost the slowest rank at least, before any piece."""
        everywhere = self.worldwide | (self.world == 1)
        total, opening = Fraction(0), Fraction(self.opening)
        for group in np.flatnonzero(paid).tolist():
            total += sum(map(Fraction, self.evaluator.shared[group].tolist())) + (opening if everywhere[group] else 0)
        return total + (opening if (paid & ~everywhere).any() else 0)
