"""Dynamic tables (unbounded ids) in words: how many rows they have, and which ids get and lose one."""

from collections import Counter

from recsmith.plans import Plan
from recsmith.units import counted
from recsmith.workloads import Table

MOST_SHOWN = 4  # tables named in a line


def dynamic_words(plan: Plan) -> str | None:
    """A plan's tables for unbounded ids, with rows and rule, and what limits their placement; None without such."""
    found = [table for table in plan.workload.tables if table.dynamic is not None]
    if not found:
        return None
    shown = "; ".join(f"'{table.name}', {table_words(table)}" for table in found[:MOST_SHOWN])
    more = f"; {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return f"{counted(len(found), 'table')} of ids without end: {shown}{more}. {_limit(plan, found)}"


def table_words(table: Table) -> str:
    """Number of rows of a dynamic table, which ids are evicted, and when an id gets a row."""
    assert table.dynamic is not None
    admitted = f", a row from the {_th(table.dynamic.admit)} lookup on" if table.dynamic.admit > 1 else ""
    return f"{table.num_embeddings:,} rows, evict {table.dynamic.evict}{admitted}"


def _limit(plan: Plan, found: list[Table]) -> str:
    if plan.cluster.device.kind == "cuda":
        return "On GPUs they are row_wise alone, as TorchRec shards what gives ids their rows"
    kinds = {each.table: each.sharding_type for each in plan.placements}
    types = ", ".join(sorted(Counter(kinds[table.name] for table in found)))
    return f"What gives ids their rows does not depend on the sharding type ({types})"


def _th(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ends.get(number % 10, 'th')}"
