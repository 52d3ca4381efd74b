"""Reads CSV and JSON files in blocks of 8,192 lines; each split takes its share of every block."""

import csv
import hashlib
import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from recsmith._random import permutation
from recsmith._types import Ints
from recsmith.data.arrow import pyarrow
from recsmith.data.batch import DataSchema
from recsmith.data.columns.arrays import with_threshold
from recsmith.data.columns.features import A_SECOND, ColumnFeature, missing_hint
from recsmith.data.columns.samples import TableReader, columns_of, counted_numbers, lacking_note
from recsmith.data.criteo.lines import other_than_criteo
from recsmith.data.domain import Faults
from recsmith.data.line_files import BLOCK_LINES, LineFile, files_of
from recsmith.data.parquet.arrow import ENDINGS
from recsmith.data.source import SampleBlock
from recsmith.data.text.joining import Joined
from recsmith.data.text.parsing import csv_table, json_table
from recsmith.data.text.spec import SPLITS, TextSpec
from recsmith.errors import CorruptFile
from recsmith.files import AnyPath, did_you_mean, path_of

LOOKED_AT = 2**23  # bytes read at the beginning of a file to show its first rows
JSON = (".jsonl", ".json", ".ndjson")


class TextFile:
    """A CSV or JSON-lines file: its column names, and the number of rows in each block."""

    def __init__(self, path: AnyPath, spec: TextSpec) -> None:
        self.path = path
        ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
        self.is_json = ending in JSON
        self.lines = LineFile(path, quoted=not self.is_json)
        self.delimiter = spec.delimiter or ("\t" if ending == ".tsv" else ",")
        self.has_header = not self.is_json and not spec.names
        self.names = spec.names if not self.has_header else self._header()
        if self.is_json and self.lines.head().lstrip()[:1] == b"[":
            raise CorruptFile(
                f"'{path}' holds one array of JSON; write an object a line (pandas: orient='records', lines=True)"
            )

    def _header(self) -> tuple[str, ...]:
        text = self.lines.head().decode("utf-8-sig", "replace")
        try:
            names = next(csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter), list[str]())
        except csv.Error as error:
            raise CorruptFile(f"'{self.path}' is no CSV: {error}; its first line names the columns") from None
        if not names:
            raise CorruptFile(
                f"'{self.path}' begins with no line that names its columns; write it again, or leave it out"
            )
        if any("\ufffd" in name for name in names):
            raise CorruptFile(f"'{self.path}' names its columns in another encoding than UTF-8; write it in UTF-8")
        return tuple(names)

    @cached_property
    def _index(self) -> tuple[Ints, int]:
        return self.lines.index()

    @property
    def sizes(self) -> Ints:
        """Number of rows in each block; the header line in the first block does not count."""
        begins, lines = self._index
        made = np.diff(np.minimum(np.arange(len(begins)) * BLOCK_LINES, lines)).astype(np.int64)
        made[:1] -= self.has_header
        return made

    def text(self, block: int) -> bytes:
        """The text of a block's rows, without the header line."""
        found = self.lines.text(block, self._index[0])
        if block or not self.has_header:
            return found
        return found[_first_line(found) :]


class TextSource:
    """The samples in the CSV and JSON files of a spec."""

    settings = TextSpec

    def __init__(self, spec: TextSpec) -> None:
        self.spec, self.max_corrupt = spec, spec.max_corrupt
        self._tables, self._reader = _Tables(spec, columns_of(spec)), TableReader(spec)
        self.note = lacking_note(spec.missing_columns, [file.names for file in self._tables.files if not file.is_json])
        self.part = "" if spec.split == "all" else f"split {spec.split} of the rows; `split: all` in a spec reads all"
        self.schema: DataSchema = self._reader.schema()

    @staticmethod
    def tables(spec: TextSpec, columns: list[str]) -> Iterator[tuple[Any, str]]:
        """(pyarrow table of these columns, where it is from) for each block, without rows that cannot be parsed."""
        tables = _Tables(spec, columns)
        for block in range(len(tables.blocks)):
            table, faults, place = tables.read(block)
            rows = _split_rows(spec, block, table.num_rows)
            wrong = np.logical_or.reduce([np.zeros(table.num_rows, np.bool_), *(mask for mask, _ in faults.values())])
            yield table.take(pyarrow().array(rows[~wrong[rows]])), place

    @property
    def num_samples(self) -> int:
        """Number of rows in the split."""
        return int(self.sizes().sum())

    @property
    def files(self) -> tuple[tuple[int, int], ...]:
        """The range of blocks of each .gz file, which can only be read in sequence."""
        return self._tables.packed

    @property
    def digest(self) -> str:
        """Digest of the spec's settings, vocabularies, joined files and data files."""
        return self._digest_of(len(self._tables.files))

    def earlier(self) -> dict[str, int]:
        """The number of blocks by the digest of the first file alone, of the first two files, and so on."""
        edges = np.cumsum([len(file.sizes) for file in self._tables.files]).tolist()
        return {self._digest_of(count): edges[count - 1] for count in range(1, len(edges))}

    def _digest_of(self, files: int) -> str:
        described = self._reader.described(replace(self.spec, paths=("",), joins=()))
        joined = [LineFile(path_of(each.path)).digest() for each in self.spec.joins]
        held = [described, *joined, *(file.lines.digest() for file in self._tables.files[:files])]
        return hashlib.sha256("\n".join(held).encode()).hexdigest()[:16]

    def sizes(self) -> Ints:
        """Number of rows of each block that are in the split."""
        counts = [_share(self.spec, rows) for rows in self._tables.sizes.tolist()]
        return np.array([last - first for first, last in counts], np.int64)

    def read(self, block: int) -> SampleBlock:
        """The samples of a block that are in the split."""
        table, faults, place = self._tables.read(block)
        found = self._reader.samples(table, counted_numbers(self._tables.sizes, block), place, f"of {place}", faults)
        rows = _split_rows(self.spec, block, table.num_rows)
        return found if len(rows) == table.num_rows else found.take(rows)


class _Tables:
    """The blocks of a spec's files as pyarrow tables of the given columns."""

    def __init__(self, spec: TextSpec, columns: list[str]) -> None:
        self.spec, self.columns = spec, columns
        self.files = [TextFile(path, spec) for path in files_of(spec.paths)]
        self.joins = [Joined(each, spec.nulls) for each in spec.joins]
        self._lock = threading.Lock()  # a file has one read position, and two iterators may read from it
        joined = {name for each in self.joins for name in each.names}
        own = [name for name in columns if name not in joined]
        self._own = list(dict.fromkeys([*own, *(each.on for each in self.joins)]))
        for file in self.files:
            twin = next((name for name in self._own if file.names.count(name) > 1), None)
            if twin is not None:
                raise CorruptFile(f"'{file.path}' has the column '{twin}' twice; write it with one of them")
            missing = next((name for name in self._own if name not in (*file.names, *spec.missing_columns)), None)
            if missing is not None and not file.is_json:
                near = did_you_mean(missing, [*file.names, *joined])
                raise CorruptFile(f"'{file.path}' has no column '{missing}'{near}{missing_hint(spec, missing)}")

    @cached_property
    def blocks(self) -> list[tuple[TextFile, int, int]]:
        """(file, block within the file, rows before it in the file) of each block."""
        made: list[tuple[TextFile, int, int]] = []
        for file in self.files:
            before = np.cumsum(file.sizes) - file.sizes
            made += [(file, at, int(first)) for at, first in enumerate(before)]
        return made

    @cached_property
    def sizes(self) -> Ints:
        """Number of rows in each block, of all splits together."""
        return np.concatenate([np.zeros(0, np.int64), *(file.sizes for file in self.files)])

    @property
    def packed(self) -> tuple[tuple[int, int], ...]:
        """The range of blocks of each .gz file."""
        edges = np.cumsum([0, *(len(file.sizes) for file in self.files)]).tolist()
        return tuple(
            (edges[at], edges[at + 1]) for at, file in enumerate(self.files) if file.lines.is_gzip and len(file.sizes)
        )

    def read(self, block: int) -> tuple[Any, Faults, str]:
        """(pyarrow table with joined columns, faults of its rows, where it is from) of a block."""
        file, inside, before = self.blocks[block]
        rows, place = int(self.sizes[block]), f"'{file.path}'" + (f" behind row {before:,}" if before else "")
        with self._lock:
            text = file.text(inside)
        types = {name: self._kind(name, file.is_json) for name in self._own if file.is_json or name in file.names}
        if file.is_json:
            table, faults = json_table(text, rows, types, place)
        else:
            table, faults = csv_table(
                text, rows, file.names, types, delimiter=file.delimiter, nulls=self.spec.nulls, place=place
            )
        for name in [name for name in self._own if name not in types]:
            table = table.append_column(name, pyarrow().nulls(table.num_rows))
        for each in self.joins:
            table = each.add(table, self.columns)
        return with_threshold(table, self.spec), faults, place

    def _kind(self, column: str, is_json: bool) -> Any:
        """The pyarrow type of a column; None if it is to be inferred from JSON values."""
        arrow = pyarrow()
        if column in (*self.spec.dense, *self.spec.labels, self.spec.weight):
            return arrow.float64()
        of = [each for each in self.spec.features if (each.column or each.name) == column]
        numbers = bool(of) and all(each.vocabulary is None and each.separator is None for each in of)
        if is_json:
            return None
        return arrow.int64() if numbers and all(each.ids not in A_SECOND for each in of) else arrow.string()


def _share(spec: TextSpec, rows: int) -> tuple[int, int]:
    """The range of a block's shuffled rows that belong to the split, as (first, last + 1)."""
    low, high = SPLITS[spec.split]
    return round(low * rows), round(high * rows)


def _split_rows(spec: TextSpec, block: int, rows: int) -> Ints:
    """The rows of a block that are in the split, in stored order."""
    if spec.split == "all":
        return np.arange(rows)
    first, last = _share(spec, rows)
    return np.sort(permutation(spec.split_seed, block, "split of rows", rows)[first:last])


def _first_line(text: bytes) -> int:
    """Length of the first line in bytes; line ends within quotes are part of the text."""
    at = text.find(b"\n")
    while at >= 0 and text[:at].count(b'"') % 2:
        at = text.find(b"\n", at + 1)
    return len(text) if at < 0 else at + 1


def text_files(data: str) -> list[AnyPath]:
    """The CSV and JSON-lines files at a path, which name their columns; empty if the data is of another format."""
    path = path_of(data)
    if path.is_dir() and ((path / "ratings.csv").exists() or any(each.suffix in ENDINGS for each in path.rglob("*"))):
        return []
    found = files_of((data,)) if path.is_dir() else [path] if path.is_file() else []
    return found if found and all(map(_is_text, found)) else []


def _is_text(path: AnyPath) -> bool:
    ending = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if ending == ".tsv":
        return other_than_criteo(LineFile(path).head()) is not None
    return ending in (".csv", ".jsonl", ".ndjson")


def _skip(row: object) -> str:
    """Skip rows with another number of columns, when first rows are shown."""
    del row
    return "skip"


def _wide(table: Any) -> list[str]:
    """Columns read as floats because they hold whole numbers beyond 63 bits, which are probably ids."""
    arrow = pyarrow()
    floats = [name for name in table.column_names if arrow.types.is_float64(table[name].type)]
    return [name for name in floats if (arrow.compute.max(arrow.compute.abs(table[name])).as_py() or 0) >= 2**63]


def first_rows(path: AnyPath, rows: int) -> Any:
    """The first rows of a CSV or JSON-lines file as a pyarrow table, with types inferred from the values.

    Raises:
        CorruptFile: the rows cannot be read.
    """
    arrow, spec = pyarrow(), TextSpec(paths=("",), features=(ColumnFeature(name="any"),), labels=("any",))
    file = TextFile(path, spec)
    text = file.lines.head(LOOKED_AT)
    whole = text if len(text) < LOOKED_AT else text[: text.rfind(b"\n") + 1]
    twin = next((name for name in file.names if file.names.count(name) > 1), None)
    if twin is not None:
        raise CorruptFile(f"'{path}' has the column '{twin}' twice; write it with one of them")
    try:
        if file.is_json:
            table = arrow.json.read_json(io.BytesIO(whole), arrow.json.ReadOptions(block_size=len(whole) + 1))
        else:
            parsing = arrow.csv.ParseOptions(
                delimiter=file.delimiter, newlines_in_values=True, invalid_row_handler=_skip
            )
            reading = arrow.csv.ReadOptions(use_threads=False, block_size=len(whole) + 1)
            converting = arrow.csv.ConvertOptions(strings_can_be_null=True)
            table = arrow.csv.read_csv(io.BytesIO(whole), reading, parsing, converting)
            if wide := _wide(table):
                converting.column_types = dict.fromkeys(wide, arrow.string())
                table = arrow.csv.read_csv(io.BytesIO(whole), reading, parsing, converting)
    except arrow.ArrowInvalid as error:
        raise CorruptFile(f"'{path}' cannot be read: {str(error).splitlines()[0]}; mend it") from None
    return table.slice(0, rows)
