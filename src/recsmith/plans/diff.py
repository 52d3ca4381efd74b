"""What changed between two plans."""

from collections.abc import Iterator

from recsmith._types import noun
from recsmith.files import Source
from recsmith.plans.files import load_plan
from recsmith.plans.plan import Placement, Plan
from recsmith.workloads import Table


@noun
class Change:
    """One table that the plans place differently; before or after is None where a plan lacks the table.

    moved_bytes: weights that a device must receive that it did not hold before.
    """

    table: str
    before: Placement | None
    after: Placement | None
    moved_bytes: int


@noun
class PlanDiff:
    """What changed from one plan to another: tables, weights to move, and the step's cost.

    other_problem: how the plans solve different problems, in sentences; costs then tell little. Empty for one problem.
    """

    changes: tuple[Change, ...]
    unchanged: int
    moved_bytes: int
    before_s: float
    after_s: float
    other_problem: tuple[str, ...] = ()


def diff(before: Plan | Source, after: Plan | Source) -> PlanDiff:
    """What changed between two plans, or files of plans: which tables move, how many bytes, and what the step costs.

    Raises:
        UsageError: a file cannot be read; CorruptFile or PlanMismatch where it holds no plan.
    """
    before, after = load_plan(before), load_plan(after)
    old = {placement.table: placement for placement in before.placements}
    new = {placement.table: placement for placement in after.placements}
    names = sorted(old.keys() | new.keys())
    changed = [name for name in names if old.get(name) != new.get(name)]
    moved = _moved_bytes(before, after, set(changed))
    changes = tuple(
        Change(table=name, before=old.get(name), after=new.get(name), moved_bytes=moved.get(name, 0))
        for name in changed
    )
    return PlanDiff(
        changes=changes,
        unchanged=len(names) - len(changed),
        moved_bytes=sum(change.moved_bytes for change in changes),
        before_s=before.cost.total_s,
        after_s=after.cost.total_s,
        other_problem=tuple(_other_problem(before, after)),
    )


def _other_problem(before: Plan, after: Plan) -> Iterator[str]:
    """How the problems of two plans differ: tables, clusters, and what the costs depend on besides."""
    old, new = ({table.name: table for table in plan.workload.tables} for plan in (before, after))
    shapes = [name for name in old.keys() & new.keys() if _shape(old[name]) != _shape(new[name])]
    if shapes or old.keys() != new.keys():
        lost, come = len(old.keys() - new.keys()), len(new.keys() - old.keys())
        yield f"tables differ: {lost} only before, {come} only after, {len(shapes)} of another shape"
    if before.cluster != after.cluster:
        was, now = before.cluster.describe(), after.cluster.describe()
        yield f"clusters differ: {was}" + (f", then {now}" if was != now else " of other figures")
    for name in ("batch_size", "optimizer", "comm_dtype", "pipeline"):
        was, now = getattr(before.workload, name), getattr(after.workload, name)
        if was != now:
            yield f"{name} differs: {was}, then {now}"
    if before.cost_model != after.cost_model:
        yield f"cost models differ: {before.cost_model}, then {after.cost_model}"


def _shape(table: Table) -> tuple[int, int, str]:
    return table.num_embeddings, table.embedding_dim, table.data_type


def _moved_bytes(before: Plan, after: Plan, names: set[str]) -> dict[str, int]:
    """Bytes of each table's new shards that their rank does not hold in the old plan."""
    held: dict[tuple[str, int], list[tuple[tuple[int, int], tuple[int, int]]]] = {}
    for shard in before.shards():
        if shard.table in names:
            held.setdefault((shard.table, shard.rank), []).append((shard.rows, shard.columns))
    element = {table.name: table.element_bytes for table in after.workload.tables}
    moved: dict[str, int] = {}
    for shard in after.shards():
        if shard.table in names:
            size = _length(shard.rows) * _length(shard.columns)
            kept = sum(
                _overlap(rows, shard.rows) * _overlap(columns, shard.columns)
                for rows, columns in held.get((shard.table, shard.rank), ())
            )
            moved[shard.table] = moved.get(shard.table, 0) + (size - kept) * element[shard.table]
    return moved


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> int:
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))
