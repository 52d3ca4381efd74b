"""Parts: rows as parquet files, which pyarrow writes and reads (extra `measure`)."""

import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recsmith.errors import CorruptFile, MissingExtra, RecSmithError
from recsmith.measuring.columns import COLUMNS, SCHEMA, Kind
from recsmith.measuring.folder import load_about, parts, unfolded
from recsmith.measuring.journal import Row

SCHEMA_KEY = b"recsmith.schema"


def has_pyarrow() -> bool:
    """Whether parts can be written and read here."""
    return find_spec("pyarrow") is not None


def _pyarrow() -> Any:
    if not has_pyarrow():
        raise MissingExtra("parquet files need pyarrow: pip install 'recsmith[measure]'; the journal keeps all samples")
    import_module("pyarrow.parquet")
    return import_module("pyarrow")


def arrow_schema(kind: Kind) -> Any:
    """The schema of a part; each column carries its unit and meaning."""
    arrow = _pyarrow()
    simple = {"int64": arrow.int64(), "float64": arrow.float64(), "string": arrow.string(), "bool": arrow.bool_()}
    types = simple | {f"list<{name}>": arrow.list_(type_) for name, type_ in simple.items()}
    fields = [
        arrow.field(column.name, types[column.type], metadata={"unit": column.unit, "meaning": column.meaning})
        for column in COLUMNS[kind]
    ]
    return arrow.schema(fields, metadata={SCHEMA_KEY: SCHEMA.encode(), b"recsmith.kind": kind.encode()})


def write_part(target: Path, kind: Kind, rows: list[Row]) -> None:
    """Write rows as a new file: beside it, on the disk, then renamed."""
    arrow = _pyarrow()
    temporary = target.with_name(f".{target.name}")
    try:
        table = arrow.Table.from_pylist(rows, schema=arrow_schema(kind))
        # Visits repeat what their case is; without dictionaries zstd sees that, and files are a quarter smaller.
        arrow.parquet.write_table(table, temporary, compression="zstd", compression_level=9, use_dictionary=False)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.rename(target)
    except OSError as error:
        raise RecSmithError(
            f"cannot write '{target}': {error.strerror or error}; the journal keeps its samples"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[Any]]:
    """Columns of all rows of a folder, parts and journal, in order of positions.

    Raises:
        CorruptFile: a part is damaged, or of another schema.
        MissingExtra: there are parts and no pyarrow.
    """
    kind = load_about(path).kind
    found: dict[str, list[Any]] = {name: [] for name in names}
    for part in parts(path):
        table = read_part(part, kind, names)
        for name in names:
            found[name] += table[name].to_pylist()
    for row in unfolded(path):
        for name in names:
            found[name].append(row.get(name))
    return found


def read_part(part: Path, kind: Kind, names: Sequence[str]) -> Any:
    """Columns of a part as pyarrow's table; errors as of `read_columns`."""
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


def _check_columns(part: Path, schema: Any, kind: Kind) -> None:
    missing = [column.name for column in COLUMNS[kind] if column.name not in schema.names]
    if missing:
        raise CorruptFile(f"'{part}' has no column '{missing[0]}' of `{SCHEMA}`, {kind}; move it away")
