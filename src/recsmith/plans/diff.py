"""The difference between two plans, and what a job must move: bytes of weights that a device does not hold yet.

Ranks keep their numbers: rank r of the new job holds what rank r of the old job held. A rank beyond the old world size
holds nothing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import cast

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.files import Source
from recsmith.plans.files import load_plan
from recsmith.plans.plan import Placement, Plan, shards_of
from recsmith.units import counted
from recsmith.workloads import Table, Workload

INPUTS = [each.name for each in fields(Workload) if each.name not in ("tables", "name", "source")]  # of the cost

Piece = tuple[tuple[int, ...], int]  # the ranks of a column piece, and its width
Rectangle = tuple[tuple[int, int], tuple[int, int]]  # rows [a, b) and columns [a, b)


@noun
class Change:
    """One table that two plans place differently; before or after is None if a plan lacks the table.

    moved_bytes: weights that devices must receive because they did not hold them before.
    """

    table: str
    before: Placement | None
    after: Placement | None
    moved_bytes: int


@noun
class PlanDiff:
    """The difference between two plans: changed tables, weights to move, and step cost.

    other_problem: sentences on how the problems of the plans differ, which makes costs hard to compare; empty for the
        same problem.
    """

    changes: tuple[Change, ...]
    unchanged: int
    moved_bytes: int
    before_s: float
    after_s: float
    other_problem: tuple[str, ...] = ()

    @property
    def largest_first(self) -> tuple[Change, ...]:
        """Changed tables by falling moved bytes, then by name: the order in which people see them."""
        return tuple(sorted(self.changes, key=lambda change: (-change.moved_bytes, change.table)))


def diff(before: Plan | Source, after: Plan | Source) -> PlanDiff:
    """Compare two plans, or plan files: which tables move, how many bytes, and what the step costs.

    Raises:
        UsageError: a file cannot be read; CorruptFile or PlanMismatch if it contains no plan.
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
        before_s=before.cost.step_s,
        after_s=after.cost.step_s,
        other_problem=tuple(_other_problem(before, after)),
    )


def _other_problem(before: Plan, after: Plan) -> Iterator[str]:
    """Sentences on how the problems of two plans differ: tables and their loads, clusters, other inputs of the cost."""
    old, new = ({table.name: table for table in plan.workload.tables} for plan in (before, after))
    shapes = [name for name in old.keys() & new.keys() if not is_same_table(old[name], new[name])]
    if shapes or old.keys() != new.keys():
        lost, come = len(old.keys() - new.keys()), len(new.keys() - old.keys())
        yield f"tables differ: {lost} only before, {come} only after, {len(shapes)} of another shape"
    alike = [name for name in old.keys() & new.keys() if name not in shapes and old[name] != new[name]]
    if alike:
        has = "has" if len(alike) == 1 else "have"
        yield f"{counted(len(alike), 'table')} of the same shape {has} other features, access or settings"
    if before.cluster != after.cluster:
        was, now = before.cluster.describe(), after.cluster.describe()
        yield f"clusters differ: {was}" + (f", then {now}" if was != now else " of other figures")
    for name in INPUTS:
        was, now = getattr(before.workload, name), getattr(after.workload, name)
        if was != now:
            yield f"{name} differs: {was}, then {now}"
    if before.cost_model != after.cost_model:
        yield f"cost models differ: {before.cost_model}, then {after.cost_model}"


# --- what must move --------------------------------------------------------------------------------------------------


def moved_bytes(
    before: Plan, after: Sequence[Placement], workload: Workload, cluster: Cluster
) -> dict[str, list[tuple[int, int]]]:
    """For each changed shard, by table: (rank, bytes of weights that the rank must receive); every table has an entry.

    workload, cluster: those of the placements `after`. A rank keeps what it held of a table. Tables that `before`
        lacks, or has in another shape, are received completely.
    """
    tables = {table.name: table for table in workload.tables}
    same = {
        table.name
        for table in before.workload.tables
        if table.name in tables and is_same_table(table, tables[table.name])
    }
    stay = _placed_as_before(before, after, cluster) & same
    changed = [placement for placement in after if placement.table not in stay]
    wanted = {placement.table for placement in changed} & same
    held: defaultdict[tuple[str, int], list[Rectangle]] = defaultdict(list)
    for shard in shards_of(
        [each for each in before.placements if each.table in wanted], before.workload, before.cluster
    ):
        held[shard.table, shard.rank].append((shard.rows, shard.columns))
    moved: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for shard in shards_of(changed, workload, cluster):
        area = _length(shard.rows) * _length(shard.columns)
        kept = sum(
            _overlap(rows, shard.rows) * _overlap(columns, shard.columns)
            for rows, columns in held.get((shard.table, shard.rank), ())
        )
        moved[shard.table].append((shard.rank, (area - kept) * tables[shard.table].element_bytes))
    return {placement.table: moved[placement.table] for placement in after}


def _placed_as_before(before: Plan, after: Sequence[Placement], cluster: Cluster) -> set[str]:
    """Tables with the same shards as in the plan `before`; data_parallel tables alone may have thousands of shards."""
    was, now = before.cluster, cluster
    if (was.world_size, was.local_world_size) != (now.world_size, now.local_world_size):
        return set()
    old = {placement.table: placement for placement in before.placements}
    return {placement.table for placement in after if old.get(placement.table) == placement}


def as_now(plan: Plan, places: Mapping[int, int]) -> Plan:
    """The plan with its ranks renumbered. places: the new number of each rank that still exists."""
    last = max(places.values(), default=-1) + 1 + plan.cluster.world_size
    ranks = [places.get(rank, last + rank) for rank in range(plan.cluster.world_size)]
    return replace(plan, placements=tuple(
        replace(each, ranks=tuple(ranks[rank] for rank in each.ranks)) for each in plan.placements
    ))  # fmt: skip


def is_same_table(before: Table, after: Table) -> bool:
    """Whether one table can take over the weights of the other: rows, columns and element type are equal."""
    return (before.num_embeddings, before.embedding_dim, before.data_type) == (
        after.num_embeddings, after.embedding_dim, after.data_type,
    )  # fmt: skip


def with_columns_kept(new: Placement, old: Placement, dim: int) -> Placement:
    """The same pieces on the same ranks, with columns reordered so that most of them stay where they were.

    Searches decide only how many columns a rank holds, not which ones.
    """
    if len(new.widths) < 2:
        return new
    mine, before = _pieces(new, dim), _pieces(old, dim)
    alike = sorted(width for _, width in mine) == sorted(width for _, width in before)
    ordered = _in_old_places(mine, before) if alike else _in_old_order(mine, before)
    ranks, widths = tuple(rank for each, _ in ordered for rank in each), tuple(width for _, width in ordered)
    return replace(new, ranks=ranks, widths=widths)


def _pieces(placement: Placement, dim: int) -> list[Piece]:
    """The ranks and the width of each column piece, starting at the first column."""
    widths = placement.widths_of(dim)
    size = len(placement.ranks) // len(widths)
    return [(placement.ranks[i * size : (i + 1) * size], width) for i, width in enumerate(widths)]


def _in_old_places(mine: list[Piece], before: list[Piece]) -> list[Piece]:
    """Pieces with the old widths: pieces that existed before keep their place, and the others fill the gaps."""
    left, made = list(mine), list[Piece | None]()
    for place in before:
        made.append(place if place in left else None)
        if place in left:
            left.remove(place)
    for i, (_, width) in enumerate(before):
        if made[i] is None:
            made[i] = next(piece for piece in left if piece[1] == width)
            left.remove(cast(Piece, made[i]))
    return cast(list[Piece], made)


def _in_old_order(mine: list[Piece], before: list[Piece]) -> list[Piece]:
    """Pieces with other widths, chosen column by column: each time the piece that keeps most of its rank's columns."""
    held: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    column = 0
    for ranks, width in before:
        held[ranks[0]].append((column, column + width))
        column += width
    left, made, column = list(mine), list[Piece](), 0
    while left:
        best = max(left, key=lambda piece: (*_keeps(piece, held[piece[0][0]], column), piece[1], -piece[0][0]))
        left.remove(best)
        made.append(best)
        column += best[1]
    return made


def _keeps(piece: Piece, held: list[tuple[int, int]], column: int) -> tuple[int, int]:
    """Score of a column for a piece: first that its rank could not keep more elsewhere, then how much it keeps here."""
    here = max((_overlap(span, (column, column + piece[1])) for span in held), default=0)
    return here - max((min(_length(span), piece[1]) for span in held), default=0), here


def _length(span: tuple[int, int]) -> int:
    return span[1] - span[0]


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> int:
    return max(0, min(a[1], b[1]) - max(a[0], b[0]))
