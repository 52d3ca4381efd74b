"""Parts of a folder: parquet files part-<first>-<last>.parquet, each of thousands of rows.

pyarrow (extra `measure`) writes and reads them; it is imported when used.
"""

import os
import re
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._install import PARQUET
from recsmith.errors import CorruptFile, MissingExtra, RecSmithError
from recsmith.files import is_regular_file
from recsmith.measuring.about import About
from recsmith.measuring.checks import (
    MOST_BYTES,
    empty_trouble,
    needed_columns,
    schema_trouble,
    size_trouble,
    values_trouble,
)
from recsmith.measuring.columns import ADDED, COLUMNS, SCHEMA, MeasurementKind
from recsmith.measuring.journal import Row

SCHEMA_KEY = b"recsmith.schema"  # key in the metadata of a parquet file
_NAME = re.compile(r"part-([0-9]{9,15})-([0-9]{9,15})\.parquet")
COMPRESSION_LEVEL = 9  # zstd's: files are written once and read often, and some are in the repository


def has_pyarrow() -> bool:
    """Whether parts can be written and read here."""
    return find_spec("pyarrow") is not None


def _pyarrow() -> Any:
    if not has_pyarrow():
        raise MissingExtra(f"parquet files need pyarrow: {PARQUET}; the journal keeps all samples")
    import_module("pyarrow.parquet")
    return import_module("pyarrow")


def arrow_schema(kind: MeasurementKind) -> Any:
    """The schema of a part; each column has its unit and meaning in its metadata."""
    arrow = _pyarrow()
    simple = {"int64": arrow.int64(), "float64": arrow.float64(), "string": arrow.string(), "bool": arrow.bool_()}
    types = simple | {f"list<{name}>": arrow.list_(type_) for name, type_ in simple.items()}
    fields = [
        arrow.field(column.name, types[column.type], metadata={"unit": column.unit, "meaning": column.meaning})
        for column in COLUMNS[kind]
    ]
    return arrow.schema(fields, metadata={SCHEMA_KEY: SCHEMA.encode(), b"recsmith.kind": kind.encode()})


def part_files(path: Path) -> list[Path]:
    """The parts of a folder, in order of positions.

    Raises:
        CorruptFile: the name of a part is invalid, a part is no file, or two parts have the same positions.
    """
    parts = sorted(path.glob("part-*.parquet"), key=positions_of)
    for part in parts:
        if not is_regular_file(part):
            raise CorruptFile(f"'{part}' is no file; move it away")
    for part, following in pairwise(parts):
        if positions_of(following)[0] <= positions_of(part)[1]:
            raise CorruptFile(f"'{following}' has positions that '{part.name}' has, too; move one of them away")
    return parts


def positions_of(part: Path) -> tuple[int, int]:
    """Positions of a part's first and last row, from its name; CorruptFile if it is not the name of a part."""
    match = _NAME.fullmatch(part.name)
    if match is None or int(match[1]) > int(match[2]):
        raise CorruptFile(f"'{part}' is not named part-<first>-<last>.parquet; move it away")
    return int(match[1]), int(match[2])


def last_folded(path: Path) -> int:
    """Position of the last row in a part, from file names; -1 if there is none. Raises as part_files does."""
    return max((positions_of(part)[1] for part in part_files(path)), default=-1)


def added(kind: MeasurementKind) -> Row:
    """Values of the columns that were added later, for rows that were written before."""
    return {column.name: ADDED[column.name] for column in COLUMNS[kind] if column.name in ADDED}


def write_part(target: Path, kind: MeasurementKind, rows: list[Row]) -> None:
    """Write rows as a new file: under a temporary name, forced to the disk, then renamed.

    Raises:
        MissingExtra: pyarrow is missing.
        RecSmithError: the file cannot be written.
    """
    arrow = _pyarrow()
    if target.exists():
        raise RecSmithError(f"cannot write '{target}': it is there already; the journal keeps its samples")
    temporary = target.with_name(f".{target.name}")
    try:
        table = arrow.Table.from_pylist([added(kind) | row for row in rows], schema=arrow_schema(kind))
        # Visits repeat the columns of their case; without dictionaries zstd uses that, and files are a quarter smaller.
        arrow.parquet.write_table(
            table, temporary, compression="zstd", compression_level=COMPRESSION_LEVEL, use_dictionary=False
        )
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.rename(target)
    except OSError as error:
        raise RecSmithError(
            f"cannot write '{target}': {error.strerror or error}; the journal keeps its samples"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def read_part(part: Path, about: About, names: Sequence[str]) -> Any:
    """Columns of a part as pyarrow's table, after checks of its size, its schema and its values.

    Raises:
        CorruptFile: the part is damaged, too large, or of another schema.
        MissingExtra: pyarrow is missing.
    """
    arrow = _pyarrow()
    try:
        trouble, table = _checked_table(arrow, part, about, needed_columns(about.kind, names))
    except (arrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CorruptFile(f"'{part}' cannot be read ({reason}); move it away, the other parts are whole") from None
    if trouble:
        raise CorruptFile(f"'{part}' is damaged: {trouble}; move it away, the other parts are whole")
    return table.select(list(names))


def _checked_table(arrow: Any, part: Path, about: About, names: list[str]) -> tuple[str, Any]:
    """(what is wrong with a part, '' if nothing is; its columns). The metadata is read before the data."""
    first, last = positions_of(part)
    metadata = arrow.parquet.read_metadata(part)
    schema = metadata.schema.to_arrow_schema()
    keys: dict[bytes, bytes] = schema.metadata or {}
    found = keys.get(SCHEMA_KEY, b"none").decode(errors="replace")
    if found != SCHEMA:
        return f"it has the schema '{found[:80]}', this version reads `{SCHEMA}`", None
    trouble = schema_trouble(schema, arrow_schema(about.kind)) or size_trouble(metadata, names, last - first + 1)
    if trouble:
        return trouble, None
    table = _read_table(arrow, part, names, about.kind)
    return empty_trouble(table, about.kind) or values_trouble(table, about, first, last), table


def _read_table(arrow: Any, part: Path, names: list[str], kind: MeasurementKind) -> Any:
    """The columns; each different text is stored once until the total size of all text is known.

    Columns that were added after the part was written have the value that held then.

    Raises:
        ValueError: there is too much text.
    """
    texts = [column.name for column in COLUMNS[kind] if column.items == "string" and column.name in names]
    lacking = [name for name in names if name in ADDED and name not in arrow.parquet.read_schema(part).names]
    present = [name for name in names if name not in lacking]
    table = arrow.parquet.read_table(part, columns=present, read_dictionary=texts)
    for name in lacking:
        table = table.append_column(name, arrow.array([ADDED[name]] * len(table), arrow.int64()))
    for name in texts:
        column = table[name]
        written_out = sum(map(_characters, column.chunks))
        if written_out > MOST_BYTES:
            raise ValueError(f"{name} holds {written_out:,} characters of text")
        table = table.set_column(table.column_names.index(name), name, column.cast(arrow.string()))
    return table


def _characters(texts: Any) -> int:
    """Number of characters of all values of a dictionary array."""
    lengths = np.array([len(text or "") for text in texts.dictionary.to_pylist()], dtype=np.int64)
    return int(lengths[texts.indices.drop_null().to_numpy()].sum())
