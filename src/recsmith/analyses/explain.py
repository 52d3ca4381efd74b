"""Explains the step time of a plan: the slowest rank of each phase, its tables, and alternatives for one table.

A step is a sequence of phases, and the slowest rank determines the time of each. The cost of a table on a rank is the
time that the rank would save without it. These costs do not add up to the rank's time, because kernels take the longer
of two times and tables share launches.
"""

from dataclasses import replace

import numpy as np

from recsmith._types import noun
from recsmith.analyses.alternatives import Alternative, alternatives_to
from recsmith.analyses.fullest_rank import FullestRank, fullest_rank
from recsmith.analyses.hot_rows import HotRowsCost, hot_rows_costs
from recsmith.analyses.instead_of_blocks import instead_of_blocks
from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.costs import CostModel, phase_seconds
from recsmith.costs import cost_model as find_cost_model
from recsmith.costs.published import PublishedError, error_under
from recsmith.errors import UsageError
from recsmith.files import Source, did_you_mean
from recsmith.plans import PARTS, Placement, Plan, load_plan
from recsmith.problems import Problem, footprint_of, problem_holding, problem_of
from recsmith.sharding import SHARDING_TYPES, Shard
from recsmith.workloads import Table
from recsmith.workloads.reuse import Reuse

MOST_INSTEAD = 3  # most tables whose alternatives are priced: each takes up to a second in a large plan


@noun
class PartShare:
    """Seconds that a rank spends in one part of a phase, including launches and latencies.

    launch_s: the fixed seconds of kernels, independent of their work. latency_s: the fixed seconds of collectives,
    independent of their bytes.
    """

    part: str
    seconds: float
    launch_s: float
    latency_s: float


@noun
class TableShare:
    """Seconds that a phase's slowest rank would save without a table."""

    table: str
    sharding_type: str
    seconds: float


@noun
class Phase:
    """A phase of the step: its slowest rank, the parts of its time, and its tables, the most costly first.

    mean_s: mean seconds of all ranks, which a perfect balance of this plan's work would reach.
    """

    rank: int
    seconds: float
    mean_s: float
    parts: tuple[PartShare, ...]
    tables: tuple[TableShare, ...]

    @property
    def largest(self) -> PartShare:
        """The part of the phase that takes most seconds."""
        return max(self.parts, key=lambda part: part.seconds)


@noun
class RankShare:
    """Seconds that a rank would save without the table, part by part."""

    rank: int
    forward_compute_s: float
    backward_compute_s: float
    forward_comm_s: float
    backward_comm_s: float


@noun
class TableAccount:
    """A table of a plan: its placement, its cost on each rank, its lookups, and its alternatives, cheapest first.

    ids: number of ids that a covered rank looks up in a step. unique_ratio: distinct rows / ids, over all row blocks
        together; None without an access profile.
    """

    table: Table
    placement: Placement
    shards: tuple[Shard, ...]
    ranks: tuple[RankShare, ...]
    ids: float
    unique_ratio: float | None
    alternatives: tuple[Alternative, ...]


@noun
class Explanation:
    """The explanation of a plan's step time under a cost model, and the account of one table if asked for.

    total_s: seconds of the step; they include sequences_s, which are equal for all plans and belong to no phase.
    fullest: the rank with the least memory left.
    hot_rows: tables whose hot rows make one block of rows busier than the mean one, with their cost.
    """

    plan: Plan
    cost_model: str
    total_s: float
    phases: tuple[Phase, ...]
    account: TableAccount | None = None
    hot_rows: tuple[HotRowsCost, ...] = ()
    published_error: PublishedError | None = None
    sequences_s: float = 0.0
    fullest: FullestRank | None = None


def explain(plan: Plan | Source, table: str | None = None, cost_model: str | CostModel | None = None) -> Explanation:
    """Explains the step time of a plan: the slowest rank of each phase, its largest part, and its costliest tables.

    Args:
        plan: a Plan, or its file.
        table: a table for which to add its costs, and the step's seconds with each other placement of the plan's space.
        cost_model: the plan's own by default.

    Raises:
        UsageError: the plan has no such table.
    """
    plan = load_plan(plan)
    if table is not None and table not in {each.name for each in plan.workload.tables}:
        names = [each.name for each in plan.workload.tables]
        raise UsageError(f"the plan has no table '{table}'{did_you_mean(table, names[:10_000])}")
    model, problem = find_cost_model(cost_model or plan.cost_model), problem_of(plan)
    wider = problem_holding(problem, plan.placements)
    placed = PlacedCosts(model.compile(wider), footprint_of(wider, plan.placements))
    hot = hot_rows_costs(placed, plan, model)
    ways = [instead_of_blocks(placed, model, plan, problem, each.table) for each in hot[:MOST_INSTEAD]]
    dearest = (replace(each, instead=instead) for each, instead in zip(hot, ways, strict=False))
    return Explanation(
        plan=plan, cost_model=model.name, total_s=placed.step_s, sequences_s=placed.sequences_s,
        phases=phases_of(placed),
        account=None if table is None else _account(placed, model, plan, problem, table),
        hot_rows=(*dearest, *hot[len(ways) :]),
        fullest=fullest_rank(wider, placed.footprint),
        published_error=error_under(placed.evaluator, model.name, plan.placements, placed.parts),
    )  # fmt: skip


def phases_of(placed: PlacedCosts) -> tuple[Phase, ...]:
    """All phases of a step, with the slowest rank of each."""
    return tuple(_phase(placed, number) for number in range(len(placed.evaluator.step_rule.phases)))


def _phase(placed: PlacedCosts, number: int) -> Phase:
    """One phase with its slowest rank; on a tie, the lowest rank."""
    seconds = phase_seconds(placed.evaluator, placed.parts)[number]
    rank = int(seconds.argmax())
    columns = placed.evaluator.step_rule.phases[number]
    launch = placed.opening(rank)
    return Phase(
        rank=rank, seconds=float(seconds[rank]), mean_s=float(seconds.mean()),
        parts=tuple(
            PartShare(
                part=PARTS[i], seconds=float(placed.parts[rank, i]),
                launch_s=float(launch[i]), latency_s=float(placed.latency[i]),
            )
            for i in columns
        ),
        tables=_shares(placed, rank, columns),
    )  # fmt: skip


def _shares(placed: PlacedCosts, rank: int, columns: tuple[int, ...]) -> tuple[TableShare, ...]:
    """The tables on a rank by their seconds in some parts (`columns`), the most costly first."""
    tables, saved = placed.saved_on(rank)
    seconds = saved[:, columns].sum(axis=1)
    kinds = np.zeros(len(placed.problem.tables), dtype=np.int64)
    kinds[placed.table] = placed.problem.modes.type[placed.footprint.mode]
    return tuple(
        TableShare(
            table=placed.problem.tables[tables[i]].name, sharding_type=SHARDING_TYPES[kinds[tables[i]]].name,
            seconds=float(seconds[i]),
        )
        for i in np.argsort(-seconds, kind="stable").tolist()
    )  # fmt: skip


def _account(placed: PlacedCosts, model: CostModel, plan: Plan, problem: Problem, name: str) -> TableAccount:
    """The account of one table of a plan. problem: the plan's space, whose options are the alternatives."""
    index = [table.name for table in placed.problem.tables].index(name)
    table = placed.problem.tables[index]
    placement = next(placement for placement in plan.placements if placement.table == name)
    ranks, saved = placed.saved_by(index)
    mode = placed.footprint.mode[placed.table == index][:1]
    ids = float(placed.problem.modes.ids[mode[0]])
    widths = placement.widths_of(table.embedding_dim)
    return TableAccount(
        table=table,
        placement=placement,
        shards=placement.kind.shards(table, placement.ranks, widths, plan.cluster),
        ranks=tuple(
            RankShare(rank=rank, **dict(zip(PARTS, row, strict=True)))
            for rank, row in zip(ranks.tolist(), saved.tolist(), strict=True)
        ),
        ids=ids,
        unique_ratio=_unique_ratio(table, ids, float(placed.problem.modes.spread[mode[0]])),
        alternatives=alternatives_to(placed, model, plan, problem, placement),
    )


def _unique_ratio(table: Table, ids: float, spread: float) -> float | None:
    if table.access is None or ids == 0:
        return None
    lookups = ids * spread  # of all row blocks
    unique = Reuse.of((table,)).unique_rows(np.zeros(1, dtype=np.int64), np.array([lookups]))
    return float(unique[0]) / lookups
