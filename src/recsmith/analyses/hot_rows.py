"""Hot rows of tables that a plan splits by rows: their known or assumed position, and their cost in a step.

TorchRec cuts rows into equal blocks in their order, so a rank with the hot rows of a table has more lookups than the
rest. A cost model prices every rank of such a table like the busiest one, because no rank has more work.
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
    """A table that is split into blocks of rows. times: lookups of its busiest block / lookups of its mean block.

    known: 'counted' if lookups were counted by block, else the assumed position of hot rows. stated: whether the user
    stated that position.
    """

    table: str
    known: Known
    stated: bool
    times: float


SCATTERED = "rows scattered"


@noun
class Instead:
    """An alternative for a table while all other tables keep their placements: the step's seconds, and their change.

    way: a sharding type, or SCATTERED: the same blocks, with rows that the data scatters. ranks: the ranks; () if no
    rank has room, and then total_s is None.
    """

    way: str
    widths: tuple[int, ...]
    ranks: tuple[int, ...]
    total_s: float | None
    change: float | None


@noun
class HotRowsCost:
    """The cost of a table's uneven blocks: seconds that a step's phases would save if all blocks were equally busy.

    instead: the table's alternatives, the cheapest first; only given for the most costly tables.
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
    """The cost of uneven blocks in a plan, the most costly table first; tables without such a cost are left out.

    The cost is the sum over phases, on each phase's slowest rank, of the table's seconds now less those with even
    blocks.
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
    """The workload with the hot rows of all tables scattered."""
    return replace(workload, hot_rows=None, tables=tuple(_scattered(table) for table in workload.tables))


def _scattered(table: Table) -> Table:
    access = table.access
    if access is None or (access.block_lookups is None and access.hot_rows is None):
        return table
    if access.zipf is None and access.reuse_bins is None:
        return replace(table, access=None)
    return replace(table, access=access.scattered())
