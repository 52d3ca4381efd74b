"""pyarrow, which is imported when Parquet or Arrow files are used, and the parts of files that it reads."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recsmith._install import PARQUET
from recsmith.errors import CorruptFile, MissingExtra

ARROW_ENDINGS = (".arrow", ".feather")


def pyarrow() -> Any:
    """The package, with its Parquet, IPC and compute parts."""
    if find_spec("pyarrow") is None:
        raise MissingExtra(f"Parquet and Arrow data need pyarrow: {PARQUET}")
    for part in ("parquet", "ipc", "compute"):
        import_module(f"pyarrow.{part}")
    return import_module("pyarrow")


class ColumnFile:
    """A file of columns in parts (row groups, record batches): its schema, and the rows of each part."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_arrow = path, path.suffix in ARROW_ENDINGS
        arrow = pyarrow()
        try:
            if self.is_arrow:
                with arrow.memory_map(str(path)) as file:
                    reader = arrow.ipc.open_file(file)
                    self.schema = reader.schema
                    self.sizes = [reader.get_batch(part).num_rows for part in range(reader.num_record_batches)]
            else:
                self._metadata = arrow.parquet.read_metadata(path)
                self.schema = self._metadata.schema.to_arrow_schema()
                groups = range(self._metadata.num_row_groups)
                self.sizes = [self._metadata.row_group(part).num_rows for part in groups]
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise self._damaged(error) from None

    def read(self, part: int, columns: Sequence[str]) -> Any:
        """Columns of a part, as pyarrow's table."""
        arrow = pyarrow()
        try:
            if self.is_arrow:
                with arrow.memory_map(str(self.path)) as file:
                    batch = arrow.ipc.open_file(file).get_batch(part)
                    return arrow.Table.from_batches([batch]).select(list(columns))
            with arrow.parquet.ParquetFile(self.path, metadata=self._metadata) as file:
                return file.read_row_group(part, columns=list(columns), use_threads=False)
        except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> CorruptFile:
        kind = "an Arrow file" if self.is_arrow else "a Parquet file"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return CorruptFile(
            f"'{self.path}' cannot be read as {kind} ({reason}); it is cut off or damaged, write it again"
        )
