"""Reads and writes workloads: built-in names, YAML, JSON, CSV, and logs of jobs that ran TorchRec's planner."""

import csv
import io
from dataclasses import fields, replace
from functools import cache
from importlib import resources
from typing import Any, cast

from recsmith import files
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import Given, Raw, Source, built, decode, did_you_mean, encode
from recsmith.workloads import torchrec_report
from recsmith.workloads.optimizers import find_optimizer
from recsmith.workloads.torchrec_log import find_report, refuse_log
from recsmith.workloads.workload import Table, Workload, wrong_name

SCHEMA = "recsmith/workload/1"
WORKLOAD_FILE = files.starts_with_schema(SCHEMA)  # what `-o` may overwrite: files that begin with this schema
# allowed directly on a table: one feature of the table's name
SHORT_FORM = ("pooling_factor", "num_poolings", "weighted")
CSV_NUMBERS = ("num_embeddings", "embedding_dim", "pooling_factor", "num_poolings")
SHOWN = 200  # most characters of a row that a message quotes
CSV_COLUMNS = ("name", *CSV_NUMBERS, "pooling", "data_type", "collection", "optimizer")


@cache
def _shipped() -> dict[str, str]:
    """Files of the workloads shipped with RecSmith, by name; large ones are JSON, because YAML parses slowly."""
    folder = resources.files("recsmith.workloads") / "builtin"
    found = (entry.name.rpartition(".") for entry in folder.iterdir())
    return {name: f"{name}.{kind}" for name, _, kind in sorted(found) if kind in ("yaml", "json")}


def builtins() -> tuple[str, ...]:
    """Names of the workloads that ship with RecSmith."""
    return tuple(_shipped())


def load_workload(
    source: Workload | Source, *, batch_size: int | None = None, optimizer: str | None = None
) -> Workload:
    """The workload of a built-in name or a file ('-' is stdin), optionally with another batch size or optimizer.

    A CSV file states neither of the two: batch_size must be given, and the optimizer is sgd unless given.

    Args:
        source: a built-in name, a path, or a Workload, which is returned with only these two changed.
        batch_size: samples per device and step that replace those of the source.
        optimizer: name of the sparse optimizer that replaces that of the source.

    Raises:
        UsageError: the name is unknown, or the file cannot be read.
        CorruptFile: the file is not a workload.
    """
    if optimizer is not None:
        find_optimizer(optimizer)
    if isinstance(source, Workload):
        workload = source
    else:
        workload = _load(files.source_text(source, "a Workload"), batch_size, optimizer)
    changes: dict[str, Any] = {"batch_size": batch_size, "optimizer": optimizer}
    changes = {key: value for key, value in changes.items() if value not in (None, getattr(workload, key))}
    return replace(workload, **changes) if changes else workload


def _load(source: str, batch_size: int | None, optimizer: str | None) -> Workload:
    if source in _shipped() and not isinstance(source, Given):
        file = resources.files("recsmith.workloads") / "builtin" / _shipped()[source]
        return built(Workload, _body(files.parse(file.read_text("utf-8"), file.name), file.name))
    try:
        text = files.read_text(source)
    except CorruptFile:
        raise
    except UsageError as error:
        raise UsageError(f"{error}, or a built-in workload{did_you_mean(source, list(builtins()))}") from None
    report = find_report(text, source)
    if report is not None:
        return torchrec_report.read(report, source)
    refuse_log(text, source, "schema")
    if source.lower().endswith(".csv"):
        return workload_from_raw(_csv_to_raw(text, source, batch_size, optimizer), source)
    return workload_from_raw(files.parse(text, source), source)


def workload_from_raw(raw: Raw, source: str) -> Workload:
    """A workload from plain data of schema recsmith/workload/1."""
    return decode(Workload, _body(raw, source), source)


def _body(raw: Raw, source: str) -> Raw:
    """The fields of a workload file, with the short form of tables expanded."""
    body = files.check_schema(raw, SCHEMA, source)
    tables = body.get("tables")
    if isinstance(tables, list):
        body["tables"] = [_expand(table, source) for table in cast(list[object], tables)]
    return body


def _expand(table: object, source: str) -> object:
    """The table with its short form expanded to one feature."""
    if not isinstance(table, dict):
        return table
    table = cast(Raw, table)
    short = {key: table[key] for key in SHORT_FORM if key in table}
    if not short and "features" in table:
        return table
    name = table.get("name")
    if "features" in table:
        raise CorruptFile(
            f"'{source}': table {name!r} has features and also {next(iter(short))}; put it on the features"
        )
    if "pooling_factor" not in short:
        rule = f"'{source}': table {name!r} has neither features nor a pooling_factor; give one of the two"
        raise CorruptFile(f"{rule}{_misspelt(table)}")
    rest = {key: value for key, value in table.items() if key not in SHORT_FORM}
    named = isinstance(name, str) and not wrong_name(name, "table")  # otherwise the table's own error is reported
    return {**rest, "features": [{"name": name if named else "_", **short}]}


def _misspelt(table: Raw) -> str:
    known = [*SHORT_FORM, *(field.name for field in fields(Table))]
    unknown = next((key for key in table if key not in known), None)
    return f" ('{unknown}' is not a known field{did_you_mean(unknown, known)})" if unknown else ""


def save_workload(workload: Workload, target: Source) -> None:
    """Write a workload file (JSON), completely or not at all; `recsmith plan` and load_workload read it.

    Raises:
        UsageError: the target ends in .csv, which readers would take for CSV, or cannot be written.
    """
    target = files.source_text(target, "an output")
    if target.lower().endswith(".csv"):
        raise UsageError(f"cannot write '{target}': a workload is written as JSON; name the file .json")
    files.write_text(target, files.dump_json(workload_to_raw(workload)))


def workload_to_raw(workload: Workload) -> Raw:
    """Plain data of a workload, as stored in a file; a table with one feature of its own name is in short form."""
    raw: Raw = {"schema": SCHEMA, **encode(workload)}
    raw["tables"] = [_shorten(table) for table in cast(list[Raw], raw["tables"])]
    return raw


def _shorten(table: Raw) -> Raw:
    features = table["features"]
    if len(features) != 1 or features[0]["name"] != table["name"] or "batch_size" in features[0]:
        return table
    short = {key: features[0][key] for key in SHORT_FORM if key in features[0]}
    return {key: value for key, value in table.items() if key != "features"} | short


def workload_schema() -> Raw:
    """JSON Schema of a workload file, including the short form of a table."""
    schema = files.json_schema(Workload)
    schema["properties"] = {"schema": {"const": SCHEMA}, **schema["properties"]}
    schema["required"] = ["schema", *schema["required"]]
    feature, table = schema["$defs"]["Feature"], schema["$defs"]["Table"]
    table["properties"] |= {key: feature["properties"][key] for key in SHORT_FORM}
    table["required"].remove("features")
    table["oneOf"] = [{"required": ["features"]}, {"required": ["pooling_factor"]}]
    return schema


def _csv_to_raw(text: str, source: str, batch_size: int | None, optimizer: str | None) -> Raw:
    if batch_size is None:
        raise UsageError(f"'{source}' is CSV, which has no place for the batch size; add --batch-size")
    reader = csv.reader(io.StringIO(text, newline=None), strict=True)  # lines end in LF, CRLF, or only CR
    try:
        header = next((row for row in reader if row), list[str]())
        _check_header(header, source)
        tables = [_csv_table(header, row, f"'{source}' line {reader.line_num}") for row in reader if row]
    except csv.Error as error:
        raise CorruptFile(f"'{source}' line {reader.line_num} is not CSV: {error}") from None
    return {"schema": SCHEMA, "batch_size": batch_size, "optimizer": optimizer or "sgd", "tables": tables}


def _check_header(header: list[str], source: str) -> None:
    unknown = next((column for column in header if column not in CSV_COLUMNS), None)
    separator = next((each for each in ";\t|" if each in (unknown or "") and len(header) == 1), None)
    if separator is not None:
        raise CorruptFile(f"'{source}' separates columns by {separator!r}; CSV separates them by ',': save it so")
    if unknown is not None:
        raise CorruptFile(f"'{source}': column '{unknown}' is not known{did_you_mean(unknown, list(CSV_COLUMNS))}")
    if len(set(header)) != len(header):
        raise CorruptFile(f"'{source}': a column stands twice in the header; keep one")


def _csv_table(header: list[str], row: list[str], place: str) -> Raw:
    if len(row) != len(header):
        shown = ",".join(row)[:SHOWN] + ("..." if len(",".join(row)) > SHOWN else "")
        raise CorruptFile(f"{place} has {len(row)} fields, the header {len(header)}: {shown!r}")
    table: Raw = {}
    for column, value in zip(header, row, strict=True):
        if not value:
            continue
        try:
            table[column] = files.parse_number(value) if column in CSV_NUMBERS else value
        except ValueError as error:
            raise CorruptFile(f"{place}: {column}: {error}; write for example 12 or 0.5") from None
    return table
