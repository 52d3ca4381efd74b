"""What changed between two plans."""

from collections.abc import Iterator

from recsmith._types import noun
from recsmith.files import Source
from recsmith.plans.files import load_plan
from recsmith.plans.moves import is_same_table, moved_bytes
from recsmith.plans.plan import Placement, Plan


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
    differing = [new[name] for name in changed if name in new]
    received = moved_bytes(before, differing, after.workload, after.cluster)
    moved = {name: sum(size for _, size in shards) for name, shards in received.items()}
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
    shapes = [name for name in old.keys() & new.keys() if not is_same_table(old[name], new[name])]
    if shapes or old.keys() != new.keys():
        lost, come = len(old.keys() - new.keys()), len(new.keys() - old.keys())
        yield f"tables differ: {lost} only before, {come} only after, {len(shapes)} of another shape"
    if before.cluster != after.cluster:
        was, now = before.cluster.describe(), after.cluster.describe()
        yield f"clusters differ: {was}" + (f", then {now}" if was != now else " of other figures")
    for name in ("batch_size", "optimizer", "comm_dtype", "comm_bytes", "pipeline"):
        was, now = getattr(before.workload, name), getattr(after.workload, name)
        if was != now:
            yield f"{name} differs: {was}, then {now}"
    if before.cost_model != after.cost_model:
        yield f"cost models differ: {before.cost_model}, then {after.cost_model}"
