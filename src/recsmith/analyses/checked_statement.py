"""The statement from which checking.py starts: pieces of every width, with their seconds and bytes.

Its inputs are the options of every table and their bytes (`recsmith.problems`), and the cost model's terms of single
pieces, supporting planes and latencies (`recsmith.costs`). Sums and products of numbers >= 0 are rounded to the
nearest, and then lowered by more than all roundings can have added. They are computed in one order, so that every
machine gets the same result.

Legend: N pieces, P planes by levels, T tables, G fusion groups, J planes, F phases, k work terms, m modes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.errors import UsageError
from recsmith.sharding import SPLIT_AT_WILL, WIDTH_STEP, Span

EQUAL = 1e-9  # relative tolerance between the cost model's seconds in double precision and in real numbers
NO_PLAN = Fraction(2) ** 1000  # seconds: the bound of a part that holds no plan, because a table has no place in it
ROUNDING = 2.0**-52  # relative: more than the error of one rounding to the nearest


def at_most(numbers: Floats, roundings: int) -> Floats:
    """Lower bounds on the exact values of numbers >= 0 that were computed with this many roundings."""
    return numbers * (1 - (roundings + 2) * ROUNDING)


def at_least(numbers: Floats, roundings: int) -> Floats:
    """Upper bounds on the exact values of numbers >= 0 that were computed with this many roundings."""
    return numbers * (1 + (roundings + 2) * ROUNDING)


def double_below(number: Fraction) -> float:
    """A double no higher than a fraction."""
    return float(np.nextafter(float(number), -np.inf))


def products(columns: Iterable[Floats], factors: Iterable[Floats | float]) -> Floats:
    """Lower bounds (N,) on the sum of columns (N,) times factors; all numbers are >= 0."""
    total, roundings = None, 1
    for column, factor in zip(columns, factors, strict=True):
        total, roundings = column * factor if total is None else total + column * factor, roundings + 1
    assert total is not None
    return at_most(total, roundings)


def check_certifiable(evaluator: Evaluator) -> None:
    """Raise UsageError if a cost model gives no bound, or one whose proof has no certificate."""
    if not evaluator.planes:
        raise UsageError("the cost model gives no bound, so there is nothing to certify; take --cost-model best")
    if evaluator.bends:
        raise UsageError(
            "the cost model has planes that lie below zero, and their proofs have no certificate yet; take another "
            "cost model, such as analytic"
        )


@dataclass(frozen=True)
class LevelSeconds:
    """Planes by levels of group load: seconds (N, P) of pieces; paid (P,): the part of a launch included in these."""

    seconds: Floats
    paid: tuple[float, ...]


class Statement:
    """Pieces of every width with which tables can be placed, with lower bounds on their seconds and bytes.

    ready (N, J): seconds in the first phase on each rank that a piece covers, by plane. rest (N,): seconds in the later
    phases. whole (N, J): seconds in all phases, by plane. coverage (N,): number of ranks that a piece covers. bytes
    (N,): bytes on all of these ranks together. local (N,): whether a piece does not span the world. worldwide (G,):
    groups in which every piece spans the world. levels: further planes by levels; none at first.
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
        self.families = [(split[steps[split] == count], count) for count in counts]  # by number of width steps
        every: list[Ints] = [
            WIDTH_STEP * np.tile(np.arange(1, count + 1, dtype=np.int64), len(mine)) for mine, count in self.families
        ]
        self.first = sum(map(len, every))  # pieces of every width precede those of the problem
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
        """Lower bounds (N,) on the seconds of terms (N, k) by the slopes (k,) of a plane."""
        return products(terms.T, slopes.tolist())

    @property
    def mixed(self) -> Floats:
        """Seconds (N, J + P) in the first phase, by all planes that a mix can use."""
        return np.hstack([self.ready, self.levels.seconds])

    @property
    def mixed_whole(self) -> Floats:
        """Seconds (N, J + P) in all phases. Pieces that span the world have no levels, so plane 0 counts for these."""
        return np.hstack([self.whole, np.repeat(self.whole[:, :1], len(self.levels.paid), axis=1)])

    def certain(self, paid: Bools) -> Fraction:
        """Lower bound on the seconds that these groups (G,) cost the slowest rank, without any piece."""
        everywhere = self.worldwide | (self.world == 1)
        total, opening = Fraction(0), Fraction(self.opening)
        for group in np.flatnonzero(paid).tolist():
            total += sum(map(Fraction, self.evaluator.shared[group].tolist())) + (opening if everywhere[group] else 0)
        return total + (opening if (paid & ~everywhere).any() else 0)
