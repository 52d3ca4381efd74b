"""Reads parts and columns of Parquet and Arrow files with pyarrow, and reports the sizes of files."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from recsmith._types import noun
from recsmith.data.arrow import pyarrow
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import AnyPath, check_is_file, check_once, files_inside, path_of

ARROW_ENDINGS = (".arrow", ".feather")
ENDINGS = (".parquet", *ARROW_ENDINGS)
UNFINISHED = (
    "_unfinished.json"  # marks a folder that is still being written; Parquet readers ignore names that begin with _
)
LARGEST_READ = 2**25  # largest merged read in bytes, pyarrow's default
AT_ONCE = 16  # files in an object store opened at the same time, since each request takes tens of milliseconds


class ColumnFile:
    """A Parquet or Arrow file: its schema, and the number of rows in each part (row group or record batch)."""

    def __init__(self, path: AnyPath) -> None:
        self.path, self.is_arrow = path, path.suffix in ARROW_ENDINGS
        arrow = pyarrow()
        try:
            if self.is_arrow:
                self.schema, self.sizes = self._with_file(_arrow_parts)
            else:
                self._metadata = self._with_file(arrow.parquet.read_metadata)
                self.schema = self._metadata.schema.to_arrow_schema()
                groups = range(self._metadata.num_row_groups)
                self.sizes = [self._metadata.row_group(part).num_rows for part in groups]
            self.names: list[str] = self.schema.names  # fails if a name is not UTF-8
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise self._damaged(error) from None

    def is_whole(self, column: str) -> bool:
        """Whether the metadata shows that a column holds a whole number in each row; False for Arrow files."""
        if self.is_arrow or self.names.count(column) != 1:
            return False
        if not pyarrow().types.is_integer(self.schema.field(column).type):
            return False
        groups = [self._metadata.row_group(part) for part in range(len(self.sizes))]
        found = [group.column(at) for group in groups for at in range(group.num_columns)]
        counts = [each.statistics for each in found if each.path_in_schema == column]
        return all(each is not None and each.has_null_count and each.null_count == 0 for each in counts)

    def column_bytes(self) -> dict[str, int]:
        """Packed bytes of each column of a Parquet file; empty for an Arrow file, which does not record them."""
        found: dict[str, int] = {}
        for part in range(0 if self.is_arrow else len(self.sizes)):
            group = self._metadata.row_group(part)
            for at in range(group.num_columns):
                chunk = group.column(at)
                name = chunk.path_in_schema.split(".")[0]
                found[name] = found.get(name, 0) + chunk.total_compressed_size
        return found

    def read(self, part: int, columns: Sequence[str], gap: int = 0) -> Any:
        """Columns of a part as a pyarrow table; columns that the file lacks are null.

        gap: largest distance in bytes between two wanted columns that are still read in one request.
        """
        twin = next((name for name, count in Counter(self.names).items() if count > 1 and name in columns), None)
        if twin is not None:
            raise CorruptFile(f"'{self.path}' has the column '{twin}' twice; write it with one of them")
        table = self._read(part, [name for name in columns if name in self.names], gap)
        if table.num_columns == len(columns):
            return table
        nothing = pyarrow().nulls(self.sizes[part])
        return pyarrow().table({name: table[name] if name in self.names else nothing for name in columns})

    def _read(self, part: int, columns: Sequence[str], gap: int) -> Any:
        arrow = pyarrow()
        try:
            return self._with_file(lambda file: self._part(file, part, list(columns), gap))
        except (arrow.ArrowException, OSError, ValueError, LookupError, OverflowError) as error:
            raise self._damaged(error) from None

    def _with_file(self, read: Callable[[Any], Any]) -> Any:
        """Call `read` with the path of a local Parquet file, or with an open Arrow file or file in an object store."""
        if not isinstance(self.path, Path):
            return self.path.reading(read)
        if not self.is_arrow:
            return read(self.path)
        with pyarrow().memory_map(str(self.path)) as file:
            return read(file)

    def _part(self, file: Any, part: int, columns: list[str], gap: int) -> Any:
        """Columns of a part of a file, which is given as a path or open."""
        arrow = pyarrow()
        if self.is_arrow:
            table = arrow.Table.from_batches([arrow.ipc.open_file(file).get_batch(part)]).select(columns)
            table.validate(full=True)  # pyarrow would follow offsets that point outside their buffers
            return table
        if gap:
            fragment = coalescing(file, gap).subset(row_group_ids=[part])
            return fragment.to_table(columns=columns, use_threads=False)
        at_once = not isinstance(file, Path)  # in a store, where a request takes long, fetch all ranges together
        with arrow.parquet.ParquetFile(file, metadata=self._metadata, pre_buffer=at_once) as opened:
            return opened.read_row_group(part, columns=columns, use_threads=False)

    def _damaged(self, error: Exception) -> CorruptFile:
        kind = "an Arrow file" if self.is_arrow else "a Parquet file"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return CorruptFile(
            f"'{self.path}' cannot be read as {kind} ({reason}); it is cut off or damaged, write it again"
        )


def _arrow_parts(file: Any) -> tuple[Any, list[int]]:
    """(schema, number of rows in each part) of an open Arrow file."""
    reader = pyarrow().ipc.open_file(file)
    return reader.schema, [reader.get_batch(part).num_rows for part in range(reader.num_record_batches)]


def opened_files(paths: Iterable[AnyPath]) -> list[ColumnFile]:
    """The files at these paths, opened; files in an object store are opened in parallel."""
    given = list(paths)
    if all(isinstance(path, Path) for path in given):
        return [ColumnFile(path) for path in given]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(ColumnFile, given))


def coalescing(file: Any, gap: int) -> Any:
    """A Parquet file, given as a path or open, as a pyarrow fragment that merges reads across up to `gap` bytes."""
    arrow = pyarrow()
    system = {"filesystem": arrow.fs.LocalFileSystem()} if isinstance(file, Path) else {}
    cache = arrow.CacheOptions(hole_size_limit=gap, range_size_limit=max(LARGEST_READ, gap + 1))
    scan = arrow.dataset.ParquetFragmentScanOptions(pre_buffer=True, cache_options=cache)
    return arrow.dataset.ParquetFileFormat(default_fragment_scan_options=scan).make_fragment(
        str(file) if isinstance(file, Path) else file, **system
    )


def column_files(paths: Sequence[str]) -> list[AnyPath]:
    """The Parquet and Arrow files at these paths; files in folders and subfolders are ordered by names and numbers.

    Raises:
        UsageError: a path does not exist, a folder holds no such file or is unfinished, or a file is named twice.
    """
    found: list[AnyPath] = []
    for path in map(path_of, paths):
        if path.is_dir():
            if (path / UNFINISHED).exists():
                raise UsageError(f"'{path}' is not finished; give the command that writes it once more, and it goes on")
            inside = [each for each in files_inside(path) if each.suffix in ENDINGS]
            if not inside:
                raise UsageError(
                    f"'{path}' holds no file that ends in {', '.join(ENDINGS)}; give the folder of the data"
                )
            found += inside
        else:
            found.append(path)
    for path in found:
        check_is_file(path)
    check_once(found)
    return found


@noun
class StoredFigures:
    """Numbers of files and row groups (record batches of Arrow files), rows of the smallest and largest group, bytes.

    columns: packed bytes of each column in all files, in the order of the first file; Arrow files do not record them.
    """

    files: int
    row_groups: int
    smallest_group: int
    largest_group: int
    bytes: int
    columns: dict[str, int]


def stored_figures(files: Sequence[ColumnFile]) -> StoredFigures:
    """Sizes of files, taken from their metadata; no column is read."""
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
