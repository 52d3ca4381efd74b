"""Parts of a folder: parquet files part-<first>-<last>.parquet, each of thousands of rows.

pyarrow (extra `measure`) writes and reads them; it is imported when used.
"""

import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recsmith._install import PARQUET
from recsmith.errors import CorruptFile, MissingExtra, RecSmithError
from recsmith.measuring.columns import COLUMNS, SCHEMA, MeasurementKind
from recsmith.measuring.journal import Row

SCHEMA_KEY = b"recsmith.schema"  # of the metadata of a parquet file
COMPRESSION_LEVEL = 9  # of zstd: files are written once and read often, some of them ship with the package


def has_pyarrow() -> bool:
    """Whether parts can be written and read here."""
    return find_spec("pyarrow") is not None


def _pyarrow() -> Any:
    if not has_pyarrow():
        raise MissingExtra(f"parquet files need pyarrow: {PARQUET}; the journal keeps all samples")
    import_module("pyarrow.parquet")
    return import_module("pyarrow")


def arrow_schema(kind: MeasurementKind) -> Any:
    """The schema of a part; each column carries its unit and meaning."""
    arrow = _pyarrow()
    simple = {"int64": arrow.int64(), "float64": arrow.float64(), "string": arrow.string(), "bool": arrow.bool_()}
    types = simple | {f"list<{name}>": arrow.list_(type_) for name, type_ in simple.items()}
    fields = [
        arrow.field(column.name, types[column.type], metadata={"unit": column.unit, "meaning": column.meaning})
        for column in COLUMNS[kind]
    ]
    return arrow.schema(fields, metadata={SCHEMA_KEY: SCHEMA.encode(), b"recsmith.kind": kind.encode()})


def part_files(path: Path) -> list[Path]:
    """The parts of a folder, in order of positions."""
    return sorted(path.glob("part-*.parquet"))


def last_folded(path: Path) -> int:
    """Position of the last row in a part, as file names say; -1 if there is none.

    Raises:
        CorruptFile: a part has another name than parts have.
    """
    last = -1
    for part in part_files(path):
        number = part.stem.rpartition("-")[2]
        if not number.isdigit():
            raise CorruptFile(f"'{part}' is not named part-<first>-<last>.parquet; move it away")
        last = max(last, int(number))
    return last


def write_part(target: Path, kind: MeasurementKind, rows: list[Row]) -> None:
    """Write rows as a new file: beside it, on the disk, then renamed.

    Raises:
        MissingExtra: pyarrow is missing.
        RecSmithError: the file cannot be written.
    """
    arrow = _pyarrow()
    temporary = target.with_name(f".{target.name}")
    try:
        table = arrow.Table.from_pylist(rows, schema=arrow_schema(kind))
        # Visits repeat what their case is; without dictionaries zstd sees that, and files are a quarter smaller.
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


def read_part(part: Path, kind: MeasurementKind, names: Sequence[str]) -> Any:
    """Columns of a part as pyarrow's table.

    Raises:
        CorruptFile: the part is damaged, or of another schema.
        MissingExtra: pyarrow is missing.
    """
    arrow = _pyarrow()
    try:
        schema = arrow.parquet.read_schema(part)
        metadata: dict[bytes, bytes] = schema.metadata or {}
        found = metadata.get(SCHEMA_KEY, b"none").decode()
        if found == SCHEMA:
            _check_columns(part, schema, kind)
            return arrow.parquet.read_table(part, columns=list(names))
    except (arrow.ArrowException, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise CorruptFile(f"'{part}' cannot be read ({reason}); move it away, the other parts are whole") from None
    raise CorruptFile(f"'{part}' has the schema '{found}'; this version reads `{SCHEMA}`: move it away")


def _check_columns(part: Path, schema: Any, kind: MeasurementKind) -> None:
    missing = [column.name for column in COLUMNS[kind] if column.name not in schema.names]
    if missing:
        raise CorruptFile(f"'{part}' has no column '{missing[0]}' of `{SCHEMA}`, {kind}; move it away")
