"""Sensitivity of a plan's cost to errors of its pooling factors: one placement, many random draws of the demand.

A draw multiplies the pooling factors of each table (of all its features) by one factor, which is uniform on
[1 - off, 1 + off] and independent between tables; 0.2 means "off by up to 20 % in either direction". Placement, batch
and access profiles do not change, and memory is not checked. The k-th draw is the same for every plan of the same
tables in any order, so that plans can be compared.

Legend: T tables, M modes, P plans, N pieces, D draws, W ranks, G fusion groups, F phases.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.costs import CostModel, Evaluator, phase_seconds
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.errors import LARGEST_SEED, UsageError, check_rules, outside
from recsmith.files import Source
from recsmith.plans import Plan, load_plan
from recsmith.problems import Footprint, Problem, footprint_of, problem_holding, problem_of, sum_per_group
from recsmith.problems.modes import Demand, Modes

OFF = 0.2  # largest relative error of pooling factors: a convention, not measured
DRAWS = 100  # number of draws: enough for a 95th percentile with five draws above it
PIECES_AT_ONCE = 20_000  # most pieces x draws that are priced together; more take memory and save no time

Columns = TypeVar("Columns", Demand, Modes)


@noun
class Spread:
    """Median seconds of a step over the draws, and the 95th percentile.

    off: largest relative error of the pooling factors.
    """

    median_s: float
    p95_s: float
    off: float
    draws: int


def sensitivity(
    plan: Plan | Source,
    cost_model: str | CostModel | None = None,
    *,
    draws: int = DRAWS,
    off: float = OFF,
    seed: int = 0,
) -> Spread:
    """How much a plan's cost depends on its pooling factors, under a cost model (the plan's own by default).

    Raises:
        UsageError: fewer than one draw, `off` outside of 0 .. 1, or a seed below 0.
    """
    plan = load_plan(plan)
    problem = problem_holding(problem_of(plan), plan.placements)
    footprint = footprint_of(problem, plan.placements)
    return spread_of(find_cost_model(cost_model or plan.cost_model), problem, footprint, draws, off, seed)


def spread_of(
    model: CostModel, problem: Problem, footprint: Footprint, draws: int = DRAWS, off: float = OFF, seed: int = 0
) -> Spread:
    """The spread of the cost of placed pieces."""
    return spreads_of(model, problem, [footprint], draws, off, seed)[0]


def spreads_of(
    model: CostModel, problem: Problem, footprints: Sequence[Footprint], draws: int = DRAWS, off: float = OFF,
    seed: int = 0,
) -> list[Spread]:  # fmt: skip
    """The spreads of several plans of one problem; distinct pieces are priced once per draw, several draws at once."""
    if draws < 1 or not 0 <= off <= 1:
        raise UsageError(f"sensitivity of {draws} draws that are off by {off}: draws start at 1, off lies in 0 .. 1")
    check_rules(outside("seed", seed, 0, LARGEST_SEED))
    used, plans = _in_use(problem, footprints)
    factors, features = _factors(used, draws, off, seed), _features(used)
    at_once = max(1, PIECES_AT_ONCE // plans.pieces.shape[1])
    parts = range(0, draws, at_once)
    totals = np.concatenate(
        [_totals(model, used, plans, factors[first : first + at_once], features) for first in parts], axis=1
    )
    beside = sequence_seconds(problem.workload, problem.cluster)  # at the given pooling factors
    return [
        Spread(median_s=median + beside, p95_s=high + beside, off=off, draws=draws)
        for median, high in np.percentile(totals, (50, 95), axis=1).T.tolist()
    ]


def _factors(problem: Problem, draws: int, off: float, seed: int) -> Floats:
    """Factors (D, T), drawn in order of the tables' names."""
    by_name = np.argsort(np.argsort([table.name for table in problem.tables]))
    return np.random.default_rng(seed).uniform(1 - off, 1 + off, (draws, len(by_name)))[:, by_name]


class _Plans(NamedTuple):
    """Plans of a problem: distinct pieces (2, N), as mode and width, and each plan's indices (n,) into them."""

    pieces: Ints
    places: list[Ints]
    footprints: list[Footprint]


def _in_use(problem: Problem, footprints: Sequence[Footprint]) -> tuple[Problem, _Plans]:
    """The problem reduced to the modes that are placed, whose pieces and options must not be used; and the plans."""
    kept = np.unique(np.concatenate([each.mode for each in footprints]))
    columns = {name: getattr(problem.modes, name)[kept] for name in Modes.__dataclass_fields__}
    columns["group"] = np.unique(columns["group"], return_inverse=True)[1]
    placed = [replace(each, mode=np.searchsorted(kept, each.mode)) for each in footprints]
    every = np.concatenate([np.stack([each.mode, each.width]) for each in placed], axis=1)
    pieces, place = np.unique(every, axis=1, return_inverse=True)
    places = np.split(place.ravel(), np.cumsum([len(each.mode) for each in placed])[:-1])
    return replace(problem, modes=Modes(**columns)), _Plans(pieces, places, placed)


def _totals(model: CostModel, problem: Problem, plans: _Plans, factors: Floats, features: Floats) -> Floats:
    """Seconds of the step (P, D) with the pooling factors multiplied by factors (D, T)."""
    draws, modes, (mode, width) = len(factors), len(problem.modes.table), plans.pieces
    evaluator = model.compile(_repeated(problem, factors, features))
    every = (mode + modes * np.arange(draws)[:, None]).ravel()
    terms = evaluator.terms(every, np.tile(width, draws)).reshape(draws, len(mode), -1).swapaxes(0, 1)
    each = zip(plans.footprints, plans.places, strict=True)
    return np.stack([_seconds(evaluator, problem, placed, terms[place]) for placed, place in each])


def _seconds(evaluator: Evaluator, problem: Problem, placed: Footprint, terms: Floats) -> Floats:
    """Seconds of the step (D,), from the terms (N, D, k) of placed pieces."""
    used, group = np.unique(evaluator.group[placed.mode], return_inverse=True)
    sums = sum_per_group(terms, group, len(used), placed, problem)  # (W, G, D, k)
    local = evaluator.head(sums.swapaxes(1, 2)).sum(axis=2)  # (W, D, G, 4) -> (W, D, 4)
    parts = local + evaluator.shared[used].sum(axis=0)
    return phase_seconds(evaluator, parts).max(axis=1).sum(axis=0)  # (F, W, D) -> (D,)


def _repeated(problem: Problem, factors: Floats, features: Floats) -> Problem:
    """One problem for all draws: the tables are repeated D times, each time with other pooling factors."""
    draws, tables = len(factors), len(problem.tables)
    once = _repeat(problem.demand, draws)
    factor, pooled = factors.ravel(), once.pooled
    filled = _filled(problem, factors, features).ravel()
    demand = replace(
        once,
        ids=once.ids * factor,
        bags=np.where(pooled, once.bags, once.bags * factor),
        outputs=np.where(pooled, filled, once.outputs * factor),
    )
    change = demand.outputs / np.where(once.outputs > 0, once.outputs, 1.0)
    modes = _repeat(problem.modes, draws)
    table = modes.table + tables * np.repeat(np.arange(draws), len(problem.modes.table))
    kept = replace(
        modes,
        table=table,
        ids=modes.ids * factor[table],
        bags=np.where(pooled[table], modes.bags, modes.bags * factor[table]),
        outputs=modes.outputs * change[table],
    )
    return replace(problem, tables=problem.tables * draws, demand=demand, modes=kept)


def _repeat(columns: Columns, times: int) -> Columns:
    """A set of columns, each repeated `times` times."""
    names = type(columns).__dataclass_fields__
    return replace(columns, **{name: np.tile(getattr(columns, name), times) for name in names})


def _features(problem: Problem) -> Floats:
    """For each of n features (3, n): index of its table, pooling factor, and poolings in a step."""
    usual = problem.workload.batch_size
    features = [
        (t, feature.pooling_factor, feature.num_poolings * (feature.batch_size or usual))
        for t, table in enumerate(problem.tables)
        for feature in table.features
    ]
    return np.array(features, dtype=np.float64).T


def _filled(problem: Problem, factors: Floats, features: Floats) -> Floats:
    """Outputs of pooled tables (D, T) as TorchRec counts them: min(1, pooling factor) per pooling."""
    of, pooling_factor, poolings = features
    table = of.astype(np.int64)
    filled = np.zeros((len(problem.tables), len(factors)))
    np.add.at(filled, table, (np.minimum(1.0, pooling_factor * factors[:, table]) * poolings).T)
    return filled.T
