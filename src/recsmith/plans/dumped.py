"""Reads a running TorchRec job's plan, table by table, from a dumped ShardingPlan or from its planner's report.

    json.dump(model.plan._serialize(), open("running.json", "w"))     # model: a DistributedModelParallel

The dump is `{"plan": {module: {table: {sharding_type, compute_kernel, ranks, shards}}}}` (torchrec 1.8,
distributed/types.py). The report's 'Parameter Info' (EmbeddingStats) names sharding and ranks.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from recsmith._types import noun
from recsmith.clusters.cluster import LARGEST_WORLD
from recsmith.errors import CorruptFile, PlanMismatch
from recsmith.files import Raw, decode
from recsmith.workloads.torchrec_report import table_rows

WHOLE_WORLD = ("row_wise", "data_parallel")  # sharding types whose shards cover every rank
_PLACE = re.compile(r"rank:([0-9]{1,9})/")

Rectangle = tuple[int, tuple[int, int], tuple[int, int]]  # rank, rows, columns
ABBREVIATIONS = {
    "TW": "table_wise", "CW": "column_wise", "TWCW": "table_column_wise", "RW": "row_wise", "TWRW": "table_row_wise",
    "GS": "grid_shard", "DP": "data_parallel",
}  # _get_sharding_type_abbr of torchrec 1.8, distributed/planner/stats.py  # fmt: skip
_RANK_ROW = re.compile(r"^#\s+\d+\s+[\d.]+ \(\d+%\)", re.MULTILINE)
MOST_COLUMNS = 2**20  # columns of a table in a report; more are taken for a mistake, before they are cut into pieces
MOST_SHOWN = 80  # most characters of a cell that a message quotes
_COLUMNS = ("Sharding", "Compute Kernel", "Ranks")


class RunningTable(NamedTuple):
    """How a running TorchRec job shards one table.

    ranks: the ranks of its shards, in any order if `rectangles` is empty; () is every rank.
    widths: the widths of its column pieces; () if unknown.
    shape: rows and columns, or None if unknown.
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
    """A running plan, with the number of ranks that it runs on if known."""

    world_size: int | None
    tables: tuple[RunningTable, ...]


def rectangle(table: str, offsets: Sequence[int], sizes: Sequence[int], placement: str, source: str) -> Rectangle:
    """A shard from TorchRec's ShardMetadata; CorruptFile if its placement, such as 'rank:0/cuda:0', names no rank."""
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
    """A table from its shards, in any order; CorruptFile if neither shards nor ranks say where it is."""
    rectangles = tuple(sorted(shards, key=_reading_order))
    places = tuple(rank for rank, _, _ in rectangles) or tuple(ranks or ())
    if not places and sharding_type not in WHOLE_WORLD:
        raise CorruptFile(f"'{source}': table '{table}' ({sharding_type}) has neither shards nor ranks")
    return RunningTable(
        module=module, table=table, sharding_type=sharding_type, compute_kernel=compute_kernel, ranks=places,
        widths=_widths(rectangles), shape=_shape(rectangles), rectangles=rectangles,
    )  # fmt: skip


def plan_of(tables: Sequence[RunningTable]) -> RunningPlan:
    """A plan from its tables; the world size is the number of ranks of types that cover every rank."""
    everywhere = [len(entry.ranks) for entry in tables if entry.sharding_type in WHOLE_WORLD and entry.ranks]
    return RunningPlan(max(everywhere, default=None), tuple(tables))


def _reading_order(rectangle: Rectangle) -> tuple[int, int]:
    """Sort key for shards in TorchRec's order: by column piece, then by block of rows."""
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


@noun
class _Shard:
    shard_offsets: tuple[int, int]
    shard_sizes: tuple[int, int]
    placement: str


@noun
class _Parameter:
    sharding_type: str
    compute_kernel: str
    ranks: tuple[int, ...] | None = None
    shards: tuple[_Shard, ...] | None = None


@noun
class _Dump:
    plan: dict[str, dict[str, _Parameter]]


def is_dump(raw: Raw) -> bool:
    """Whether plain data is a dumped ShardingPlan."""
    return set(raw) == {"plan"}


def read_dump(raw: Raw, source: str) -> RunningPlan:
    """The plan of a dumped ShardingPlan; CorruptFile if the data is none."""
    modules = decode(_Dump, raw, source).plan
    return plan_of(
        [
            _table(module, name, parameter, source)
            for module, parameters in modules.items()
            for name, parameter in parameters.items()
        ]
    )


def _table(module: str, name: str, parameter: _Parameter, source: str) -> RunningTable:
    shards = [
        rectangle(name, shard.shard_offsets, shard.shard_sizes, shard.placement, source)
        for shard in parameter.shards or ()
    ]
    return table_of(module, name, parameter.sharding_type, parameter.compute_kernel, parameter.ranks, shards, source)


# --- planner reports -------------------------------------------------------------------------------------------------


def read_report(text: str, source: str) -> RunningPlan:
    """The plan in a planner report; CorruptFile if a cell cannot be read, PlanMismatch for an unknown sharding."""
    rows = table_rows(text, source)
    if not rows:
        raise CorruptFile(
            f"'{source}' is a planner report without tables; keep its 'Parameter Info', which debug=True logs"
        )
    missing = [column for column in _COLUMNS if column not in rows[0]]
    if missing:
        raise CorruptFile(f"'{source}' is a planner report without the column '{missing[0]}', which a plan needs")
    return RunningPlan(len(_RANK_ROW.findall(text)) or None, tuple(_row(row, source) for row in rows))


def _row(row: dict[str, str], source: str) -> RunningTable:
    module, _, name = row["FQN"].rpartition(".")
    kind = ABBREVIATIONS.get(row["Sharding"])
    if kind is None:
        raise PlanMismatch(
            f"'{source}': table '{name}' has sharding '{row['Sharding']}'; known: {', '.join(ABBREVIATIONS)}"
        )
    cached = row.get("Cache Load Factor", "None")
    try:
        dim, *pieces = (int(each) for each in re.findall(r"\d+", row["Emb Dim (CW Dim)"]))
        return RunningTable(
            module=module, table=name, sharding_type=kind, compute_kernel=row["Compute Kernel"],
            ranks=_ranks(row["Ranks"]), widths=_equal_widths(dim, pieces[0]) if pieces else (dim,),
            shape=(int(row["Hash Size"]), dim), load_factor=None if cached == "None" else float(cached),
        )  # fmt: skip
    except (ValueError, ZeroDivisionError) as error:
        used = ("Ranks", "Emb Dim (CW Dim)", "Hash Size", "Cache Load Factor")
        cells = ", ".join(f"{column} {row[column][:MOST_SHOWN]!r}" for column in used if column in row)
        raise CorruptFile(f"'{source}': the row of '{row['FQN']}' cannot be read: {error} ({cells})") from None


def _ranks(cell: str) -> tuple[int, ...]:
    """The ranks in a cell such as '3', '0-95' or '2,2,5'."""
    ends = [part.partition("-") for part in cell.split(",")]
    spans = [range(int(first), int(last or first) + 1) for first, _, last in ends]
    if not all(spans):
        raise ValueError(f"ranks {cell[:MOST_SHOWN]!r} run backwards")
    if any(span.stop > LARGEST_WORLD for span in spans) or sum(map(len, spans)) > MOST_COLUMNS:
        raise ValueError(f"ranks are more than those of the largest cluster, {LARGEST_WORLD:,} devices")
    return tuple(rank for span in spans for rank in span)


def _equal_widths(dim: int, width: int) -> tuple[int, ...]:
    if not 0 < width <= dim < MOST_COLUMNS or dim % width:
        raise ValueError(f"{dim} columns are no multiple of the pieces' {width}")
    return (width,) * (dim // width)
