"""Priced alternatives for a table whose hot rows slow down a step because it is split into blocks of rows.

TorchRec cuts rows into blocks of ceil(rows / ranks) in their order only: it does not distribute rows by hash or round
robin, and replicates no part of a table. It can run the table whole, split by columns, split by rows of one host, or as
a copy on each rank; and blocks of rows that the data scatters (transform `scatter`).
"""

from dataclasses import replace

from recsmith.analyses.alternatives import alternatives_to
from recsmith.analyses.hot_rows import SCATTERED, Instead
from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.costs import CostModel
from recsmith.plans import Plan
from recsmith.problems import Problem, build_problem, footprint_of
from recsmith.workloads import AccessProfile, Table, Workload
from recsmith.workloads.scattered_rows import MOST_ROWS, scattered_blocks


def instead_of_blocks(
    placed: PlacedCosts, model: CostModel, plan: Plan, problem: Problem, name: str
) -> tuple[Instead, ...]:
    """Scattered rows, and the best placement of each other sharding type in the plan's space, the cheapest first.

    problem: the plan's space.
    """
    placement = next(each for each in plan.placements if each.table == name)
    found, seen = [_scatter(placed, model, plan, name)], {placement.sharding_type}
    for each in alternatives_to(placed, model, plan, problem, placement):
        way, before = each.sharding_type, each.sharding_type in seen
        seen.add(way)
        if not before:
            known = Instead(way=way, widths=each.widths, ranks=each.ranks, total_s=each.total_s, change=each.change)
            found.append(known)
    some = [each for each in found if each is not None]
    return tuple(sorted(some, key=lambda each: float("inf") if each.change is None else each.change))


def _scatter(placed: PlacedCosts, model: CostModel, plan: Plan, name: str) -> Instead | None:
    """The plan's own placement with the table's rows scattered; None if it has more rows than can be scattered."""
    given, placement = placed.problem, next(each for each in plan.placements if each.table == name)
    table = next(each for each in given.workload.tables if each.name == name)
    if table.num_embeddings > MOST_ROWS:
        return None
    work = with_scattered_rows(given.workload, table)
    other = build_problem(work, given.cluster, given.space, given.constraints, needless=True)
    step_s = PlacedCosts(model.compile(other), footprint_of(other, plan.placements)).step_s
    change = step_s / placed.step_s - 1 if placed.step_s else 0.0
    return Instead(way=SCATTERED, widths=placement.widths, ranks=placement.ranks, total_s=step_s, change=change)


def with_scattered_rows(workload: Workload, table: Table) -> Workload:
    """The workload with the rows of one of its tables scattered."""
    blocks, access = scattered_blocks(table, workload.hot_rows), table.access
    known = access is not None and (access.zipf is not None or access.reuse_bins is not None)
    text = (
        replace(access.scattered(), block_lookups=blocks) if known and access else AccessProfile(block_lookups=blocks)
    )
    tables = tuple(replace(each, access=text) if each.name == table.name else each for each in workload.tables)
    return replace(workload, tables=tables)
