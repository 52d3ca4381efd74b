"""What a running TorchRec job says of its plan, table by table, before it is matched with a workload."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from recsmith.errors import CorruptFile

WHOLE_WORLD = ("row_wise", "data_parallel")  # sharding types whose shards cover every rank
_PLACE = re.compile(r"rank:([0-9]{1,9})/")

Rectangle = tuple[int, tuple[int, int], tuple[int, int]]  # rank, rows, columns


class RunningTable(NamedTuple):
    """How a running TorchRec job shards one table.

    ranks: of its shards, in any order if `rectangles` is empty; () is every rank.
    widths: of its column pieces; () where they are not told. shape: rows and columns, where they are told.
    """

    module: str
    table: str
    sharding_type: str
    compute_kernel: str
    ranks: tuple[int, ...]
    widths: tuple[int, ...]
    shape: tuple[int, int] | None
    rectangles: tuple[Rectangle, ...] = ()
    load_factor: float | None = None


class RunningPlan(NamedTuple):
    """A running plan, and the number of ranks it runs on where that can be told."""

    world_size: int | None
    tables: tuple[RunningTable, ...]


def rectangle(table: str, offsets: Sequence[int], sizes: Sequence[int], placement: str, source: str) -> Rectangle:
    """A shard of TorchRec's ShardMetadata; CorruptFile where its placement, such as 'rank:0/cuda:0', names no rank."""
    place = _PLACE.match(placement)
    if place is None:
        raise CorruptFile(f"'{source}': a shard of table '{table}' has placement '{placement}'; wanted 'rank:0/...'")
    (top, left), (height, width) = offsets, sizes
    return int(place[1]), (top, top + height), (left, left + width)


def table_of(
    module: str,
    table: str,
    sharding_type: str,
    compute_kernel: str,
    ranks: Sequence[int] | None,
    shards: Sequence[Rectangle],
    source: str,
) -> RunningTable:
    """A table from its shards, in any order; CorruptFile where neither shards nor ranks say where it is."""
    rectangles = tuple(sorted(shards, key=_reading_order))
    places = tuple(rank for rank, _, _ in rectangles) or tuple(ranks or ())
    if not places and sharding_type not in WHOLE_WORLD:
        raise CorruptFile(f"'{source}': table '{table}' ({sharding_type}) has neither shards nor ranks")
    return RunningTable(
        module=module, table=table, sharding_type=sharding_type, compute_kernel=compute_kernel, ranks=places,
        widths=_widths(rectangles), shape=_shape(rectangles), rectangles=rectangles,
    )  # fmt: skip


def plan_of(tables: Sequence[RunningTable]) -> RunningPlan:
    """The plan of tables; the world size is that of the types that cover every rank."""
    everywhere = [len(entry.ranks) for entry in tables if entry.sharding_type in WHOLE_WORLD and entry.ranks]
    return RunningPlan(max(everywhere, default=None), tuple(tables))


def _reading_order(rectangle: Rectangle) -> tuple[int, int]:
    """Column piece by column piece, block of rows by block, as TorchRec numbers shards."""
    _, rows, columns = rectangle
    return columns[0], rows[0]


def _widths(rectangles: Sequence[Rectangle]) -> tuple[int, ...]:
    """Widths of the column pieces, from left to right."""
    spans = sorted({columns for _, _, columns in rectangles})
    return tuple(right - left for left, right in spans)


def _shape(rectangles: Sequence[Rectangle]) -> tuple[int, int] | None:
    if not rectangles:
        return None
    return max(rows[1] for _, rows, _ in rectangles), max(columns[1] for _, _, columns in rectangles)
