"""What binds the step of a plan, and what one table could do instead.

A step is a sequence of phases, and the slowest rank of each decides. What a table costs a rank is by how much the rank
would be faster without it; such seconds do not add up to the rank's, for kernels take the longer of two times and
tables share launches.
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

MOST_INSTEAD = 3  # tables whose alternatives are priced; trade-off: each takes up to a second of a large plan


@noun
class PartShare:
    """Seconds that a rank spends in one part of a phase; launches and latencies are in them.

    launch_s: what kernels cost however little they do. latency_s: what collectives cost however little they carry.
    """

    part: str
    seconds: float
    launch_s: float
    latency_s: float


@noun
class TableShare:
    """By how many seconds a phase's slowest rank were faster without a table."""

    table: str
    sharding_type: str
    seconds: float


@noun
class Phase:
    """A phase of the step: its slowest rank, what that spends, and its tables, the dearest first.

    mean_s: of all ranks, which a perfect balance of this plan's work would reach.
    """

    rank: int
    seconds: float
    mean_s: float
    parts: tuple[PartShare, ...]
    tables: tuple[TableShare, ...]

    @property
    def largest(self) -> PartShare:
        """The part that takes most of it."""
        return max(self.parts, key=lambda part: part.seconds)


@noun
class RankShare:
    """By how many seconds a rank were faster without the table, part by part."""

    rank: int
    forward_compute_s: float
    backward_compute_s: float
    forward_comm_s: float
    backward_comm_s: float


@noun
class TableAccount:
    """A table of a plan: where it is, what it costs its ranks, how it is read, and its alternatives, cheapest first.

    ids: rows that a covered rank looks up in a step. unique_ratio: different rows over ids, of all row blocks together;
        None where the workload gives no access profile.
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
    """Why a step of a plan takes as long as it does under a cost model; and of one table, if one was asked for.

    total_s: of the step; sequences_s of it are those of any plan, and in no phase.
    fullest: the rank that has least memory left.
    hot_rows: tables whose hot rows make one block of rows busier than others, and what that costs the step.
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
    """What binds the step of a plan: the slowest rank of each phase, its largest term, and its dearest tables.

    plan: a Plan, or its file. table: also what this table costs, and what the step would cost with any other placement
    of it in the plan's space.
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
    """What binds each phase of a step."""
    return tuple(_phase(placed, number) for number in range(len(placed.evaluator.step_rule.phases)))


def _phase(placed: PlacedCosts, number: int) -> Phase:
    """One phase: its slowest rank, the lowest of several."""
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
    """The tables on a rank, by what they cost it in some parts."""
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
    """All about one table of a plan. problem: the plan's space, whose options the alternatives are."""
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
    lookups = ids * spread  # of all blocks
    unique = Reuse.of((table,)).unique_rows(np.zeros(1, dtype=np.int64), np.array([lookups]))
    return float(unique[0]) / lookups
