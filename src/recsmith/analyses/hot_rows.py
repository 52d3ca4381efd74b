"""Hot rows of tables that a plan splits by rows: where they are known or taken to lie, and what they cost a step.

TorchRec cuts rows into equal blocks in their order, so a rank that has the hot rows of a table looks up more than
others. A cost model prices every rank of such a table as the busiest one, for no rank does more.
"""

from dataclasses import replace
from typing import Literal

from recsmith._types import noun
from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.costs import CostModel
from recsmith.plans import Placement, Plan
from recsmith.problems import build_problem, footprint_of
from recsmith.problems.modes import Demand
from recsmith.workloads import Table, Workload
from recsmith.workloads.reuse import Reuse
from recsmith.workloads.row_blocks import busiest_block, hot_rows_of

Known = Literal["counted", "in_front", "scattered"]


@noun
class RowBlocks:
    """A table in blocks of rows. times: lookups of its busiest block over those of the mean one.

    known: whether lookups were counted by blocks, or where hot rows are taken to lie. stated: by the user.
    """

    table: str
    known: Known
    stated: bool
    times: float


SCATTERED = "rows scattered"


@noun
class Instead:
    """What a table could be instead, while all others stay: the seconds of the step, and how they change.

    way: a sharding type, or SCATTERED: the same blocks, of rows that the data scatters. ranks: (), and seconds None,
    where no rank has room.
    """

    way: str
    widths: tuple[int, ...]
    ranks: tuple[int, ...]
    total_s: float | None
    change: float | None


@noun
class HotRowsCost:
    """What uneven blocks of a table cost: seconds that a step's phases would be shorter if all were equally busy.

    instead: what the table could be instead, from cheap to dear, of the tables that cost most.
    """

    table: str
    times: float
    seconds: float
    instead: tuple[Instead, ...] = ()


def row_blocks_of(plan: Plan) -> tuple[RowBlocks, ...]:
    """The tables that a plan splits by rows, the most uneven first."""
    tables = {table.name: table for table in plan.workload.tables}
    split = [each for each in plan.placements if each.kind.blocks(plan.cluster) > 1]
    found = [_row_blocks(tables[placement.table], placement, plan) for placement in split]
    return tuple(sorted(found, key=lambda each: (-each.times, each.table)))


def _row_blocks(table: Table, placement: Placement, plan: Plan) -> RowBlocks:
    kind, assumed = placement.kind, plan.workload.hot_rows
    where = hot_rows_of(table, assumed)
    stated = where is not None and (
        assumed is not None or (table.access is not None and table.access.hot_rows is not None)
    )
    times = 1.0
    if where != "scattered":
        demand = Demand.of(plan.workload, (table,))
        lookups = float(demand.ids[0] * demand.repeats[0]) * kind.samples_share(plan.cluster)
        blocks = kind.blocks(plan.cluster)
        busiest = busiest_block(table, Reuse.of((table,)), blocks, lookups, assumed)
        times = blocks * busiest.lookups if busiest else 1.0
    return RowBlocks(table=table.name, known=where or "counted", stated=stated, times=times)


def hot_rows_costs(placed: PlacedCosts, plan: Plan, model: CostModel) -> tuple[HotRowsCost, ...]:
    """What uneven blocks cost a plan, table by table, the dearest first; tables whose blocks cost nothing are left out.

    Of each phase, on its slowest rank: what the table costs it now, less what it would cost with even blocks.
    """
    uneven = {each.table: each.times for each in row_blocks_of(plan) if each.times > 1}
    if not uneven:
        return ()
    problem = placed.problem
    even = build_problem(_even(problem.workload), problem.cluster, problem.space, problem.constraints, needless=True)
    other = PlacedCosts(model.compile(even), footprint_of(even, plan.placements))
    saved: dict[str, float] = dict.fromkeys(uneven, 0.0)
    for number, columns in enumerate(placed.evaluator.step_rule.phases):
        rank = int(placed.evaluator.step_rule.phase_seconds(placed.parts)[number].argmax())
        for costs, sign in ((placed, 1.0), (other, -1.0)):
            tables, seconds = costs.saved_on(rank)
            own: list[float] = seconds[:, columns].sum(axis=1).tolist()
            for name, each in zip(costs.names_of(tables), own, strict=True):
                if name in saved:
                    saved[name] += sign * each
    found = [HotRowsCost(table=name, times=uneven[name], seconds=each) for name, each in saved.items() if each > 0]
    return tuple(sorted(found, key=lambda each: (-each.seconds, each.table)))


def _even(workload: Workload) -> Workload:
    """The workload with hot rows scattered in all tables."""
    return replace(workload, hot_rows=None, tables=tuple(_scattered(table) for table in workload.tables))


def _scattered(table: Table) -> Table:
    access = table.access
    if access is None or (access.block_lookups is None and access.hot_rows is None):
        return table
    if access.zipf is None and access.reuse_bins is None:
        return replace(table, access=None)
    return replace(table, access=access.scattered())
