"""Tables of ids without end in words: how many rows they share, and who gets and loses one."""

from collections import Counter

from recsmith.plans import Plan
from recsmith.units import counted
from recsmith.workloads import Table

MOST_SHOWN = 4  # tables that a line names


def dynamic_words(plan: Plan) -> str | None:
    """Which tables of a plan have ids without end, with rows and rule, and what limits their placements; None: none."""
    found = [table for table in plan.workload.tables if table.dynamic is not None]
    if not found:
        return None
    shown = "; ".join(f"'{table.name}', {table_words(table)}" for table in found[:MOST_SHOWN])
    more = f"; {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
    return f"{counted(len(found), 'table')} of ids without end: {shown}{more}. {_limit(plan, found)}"


def table_words(table: Table) -> str:
    """How the ids of a table get its rows."""
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
