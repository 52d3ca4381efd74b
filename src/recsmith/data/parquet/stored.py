"""How a dataset lies in its files: files, row groups, bytes of each column."""

from collections.abc import Sequence

from recsmith._types import noun
from recsmith.data.parquet.arrow import ColumnFile


@noun
class StoredFigures:
    """Files, row groups (record batches of Arrow files), rows of the smallest and largest, and bytes of all files.

    columns: packed bytes of each column in all files, in the order of the first; Arrow files do not say them.
    """

    files: int
    row_groups: int
    smallest_group: int
    largest_group: int
    bytes: int
    columns: dict[str, int]


def stored_figures(files: Sequence[ColumnFile]) -> StoredFigures:
    """Figures of files, from what they say of themselves; no column is read."""
    columns: dict[str, int] = {}
    for file in files:
        for name, size in file.column_bytes().items():
            columns[name] = columns.get(name, 0) + size
    sizes = [size for file in files for size in file.sizes]
    return StoredFigures(
        files=len(files),
        row_groups=len(sizes),
        smallest_group=min(sizes, default=0),
        largest_group=max(sizes, default=0),
        bytes=sum(file.path.stat().st_size for file in files),
        columns=columns,
    )
