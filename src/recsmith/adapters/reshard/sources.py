"""The sources of a new checkpoint's chunks: copies, gathered parts, row-wise state, and fill values.

This module only computes ranges of rows and columns; writing.py reads and writes the bytes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal

from recsmith._types import record
from recsmith.adapters.checkpoints import Chunk, Entry
from recsmith.adapters.reshard.layout import Range, StoredLayout, TableBlock
from recsmith.errors import PlanMismatch

Change = Literal["exact", "replicated", "averaged", "reset", "new"]


@record
class Copy:
    """An old chunk that is copied byte by byte."""

    chunk: Chunk


@record
class ChunkPart:
    """A rectangle of an old chunk (rows, columns), and the corner (row, column) of its place in the new chunk.

    share: the part's weight in a mean of row-wise state; 1 if the part is copied.
    """

    chunk: Chunk
    rows: Range
    columns: Range
    corner: tuple[int, int]
    share: float = 1.0


@record
class Gathered:
    """The parts that make up a new chunk; if `mean`, several parts cover each row and are averaged."""

    parts: tuple[ChunkPart, ...]
    mean: bool = False


@record
class Filled:
    """A chunk of a new table: zeros, or uniform in [-limit, limit), fixed by seed, table, row and column."""

    block: TableBlock
    dim: int
    limit: float = 0.0
    seed: int = 0
    table: str = ""


Made = Copy | Gathered | Filled


@record
class Item:
    """A chunk to write into the file of the rank that will hold it."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    rank: int
    made: Made


@record
class Held:
    """A stored chunk and the rows and columns of the table that it covers; row-wise state has one number per row."""

    chunk: Chunk
    rows: Range
    columns: Range


def place(block: TableBlock, layout: StoredLayout, shape: str, dense: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offsets and sizes of a block within its entry, for element-wise entries (such as weights) and row-wise state."""
    height, width = block.rows[1] - block.rows[0], block.columns[1] - block.columns[0]
    if shape == "element-wise":
        return (block.rows[0], block.columns[0]), (height, width)
    if dense:
        return (0, 0), (height, 1)
    return (block.piece * layout.table.num_embeddings + block.rows[0],), (height,)


def sizes_of(layout: StoredLayout, shape: str, dense: bool) -> tuple[int, ...]:
    """Sizes of a table's whole entry of a given shape."""
    rows, columns = layout.table.num_embeddings, layout.table.embedding_dim
    if shape == "element-wise":
        return rows, columns
    return (rows, 1) if dense else (rows * len(layout.pieces),)


def held(entry: Entry, layout: StoredLayout, shape: str) -> list[Held]:
    """The chunks of an entry, in order of the layout's blocks; PlanMismatch unless they are exactly these shards."""
    rest = {(chunk.offsets, chunk.sizes): chunk for chunk in entry.chunks}
    found: list[Held] = []
    for block in layout.blocks:
        offsets, sizes = place(block, layout, shape, layout.dense)
        chunk = rest.pop((offsets, sizes), None)
        if chunk is None:
            raise _wrong_layout(entry, layout, f"no shard of {list(sizes)} at {list(offsets)}")
        found.append(Held(chunk=chunk, rows=block.rows, columns=block.columns))
    if rest:
        offsets, sizes = min(rest)
        raise _wrong_layout(entry, layout, f"a shard of {list(sizes)} at {list(offsets)}, which the plan has not")
    return found


def _wrong_layout(entry: Entry, layout: StoredLayout, found: str) -> PlanMismatch:
    return PlanMismatch(
        f"the checkpoint was not written under the old plan: of table '{layout.table.name}' "
        f"({layout.placement.sharding_type}) it holds {found}, in '{entry.key}'; give the plan that the job ran"
    )


class _Overlaps:
    """Finds the stored chunks that overlap a block; the row blocks of one column piece do not overlap each other."""

    def __init__(self, olds: Sequence[Held]) -> None:
        self.pieces: dict[Range, list[Held]] = {}
        for old in sorted(olds, key=lambda old: old.rows):
            self.pieces.setdefault(old.columns, []).append(old)
        self.tops = {columns: [old.rows[0] for old in rows] for columns, rows in self.pieces.items()}

    def of(self, block: TableBlock) -> Iterator[tuple[Held, Range, Range]]:
        """Each overlapping chunk with the rows and columns that it shares with the block."""
        for piece, chunks in self.pieces.items():
            columns = _common(piece, block.columns)
            if columns is None:
                continue
            for old in chunks[max(0, bisect_right(self.tops[piece], block.rows[0]) - 1) :]:
                rows = _common(old.rows, block.rows)
                if rows is None:
                    break
                yield old, rows, columns


def moved(olds: Sequence[Held], layout: StoredLayout) -> list[Item]:
    """The new chunks of weights or element-wise state, made from the old ones."""
    same = {(old.rows, old.columns): old.chunk for old in olds}
    overlaps = _Overlaps(olds)
    items: list[Item] = []
    for block in layout.blocks:
        offsets, sizes = place(block, layout, "element-wise", layout.dense)
        chunk = same.get((block.rows, block.columns))
        made = Copy(chunk=chunk) if chunk else Gathered(parts=_parts(overlaps, block))
        items.append(Item(offsets=offsets, sizes=sizes, rank=block.rank, made=made))
    return items


def _parts(overlaps: _Overlaps, block: TableBlock) -> tuple[ChunkPart, ...]:
    return tuple(
        ChunkPart(
            chunk=old.chunk, rows=_shifted(rows, old.rows[0]), columns=_shifted(columns, old.columns[0]),
            corner=(rows[0] - block.rows[0], columns[0] - block.columns[0]),
        )
        for old, rows, columns in overlaps.of(block)
    )  # fmt: skip


def moved_rows(olds: Sequence[Held], layout: StoredLayout, dense: bool) -> tuple[list[Item], Change]:
    """The new chunks of row-wise state, and its change: 'exact', or 'replicated' or 'averaged' if column cuts moved."""
    items: list[Item] = []
    overlaps = _Overlaps(olds)
    change: Change = "exact"
    for block in layout.blocks:
        offsets, sizes = place(block, layout, "row-wise", dense)
        parts = _row_parts(overlaps, block)
        sources = [piece for piece in overlaps.pieces if _common(piece, block.columns)]
        if len(sources) > 1:
            change = "averaged"
        elif sources != [block.columns] and change == "exact":
            change = "replicated"
        same = len(parts) == 1 and parts[0].chunk.sizes == sizes
        made = Copy(chunk=parts[0].chunk) if same else Gathered(parts=parts, mean=len(sources) > 1)
        items.append(Item(offsets=offsets, sizes=sizes, rank=block.rank, made=made))
    return items, change


def _row_parts(overlaps: _Overlaps, block: TableBlock) -> tuple[ChunkPart, ...]:
    """Rows of all old pieces that share columns with the block, weighted by their share of the block's columns."""
    width = block.columns[1] - block.columns[0]
    return tuple(
        ChunkPart(
            chunk=old.chunk, rows=_shifted(rows, old.rows[0]), columns=(0, 1),
            corner=(rows[0] - block.rows[0], 0), share=(columns[1] - columns[0]) / width,
        )
        for old, rows, columns in overlaps.of(block)
    )  # fmt: skip


def filled(layout: StoredLayout, shape: str, dense: bool, *, limit: float = 0.0, seed: int = 0) -> list[Item]:
    """The chunks of a new table's weights, or of state that begins at zero."""
    items: list[Item] = []
    for block in layout.blocks:
        offsets, sizes = place(block, layout, shape, dense)
        made = Filled(block=block, dim=layout.table.embedding_dim, limit=limit, seed=seed, table=layout.table.name)
        items.append(Item(offsets=offsets, sizes=sizes, rank=block.rank, made=made))
    return items


def _common(one: Range, other: Range) -> Range | None:
    begin, end = max(one[0], other[0]), min(one[1], other[1])
    return (begin, end) if begin < end else None


def _shifted(given: Range, by: int) -> Range:
    return given[0] - by, given[1] - by
