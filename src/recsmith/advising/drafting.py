"""Writes a draft run file for data: a line for each column, with what was found in its first rows."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsmith.data.columns.looking import LookedColumn, guessed_label, looked_at, shared_ids
from recsmith.data.dataset import load_spec, spec_to_raw
from recsmith.data.parquet.arrow import ColumnFile, column_files
from recsmith.data.parquet.source import says_columns
from recsmith.data.parquet.spec import ParquetSpec
from recsmith.data.text.source import first_rows, text_files
from recsmith.errors import UsageError
from recsmith.files import did_you_mean

PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
ROWS = 65_536  # rows that are read
TOP = """\
# A draft for {data}, made by `recsmith init`{seen}: correct what it got wrong.
# Every key, with its default and meaning: docs/reference/run.md. What it means for this data, untrained:
#   recsmith train {run} --dry-run
schema: recsmith/run/1
output: runs/{name}
"""
BOTTOM = """\
  batch_size: 1024         # samples a rank and step
  epochs: 2
model:
  name: dlrm               # or deepfm, dlrm_dcn; hstu, sasrec, din read histories (docs/sequences.md)
  embedding_dim: 16        # columns of every table
  bottom: [64]             # layers of dense columns
  top: [64, 32]            # layers of all
plan: auto                 # which table lies where; or a file of `recsmith plan`
ranks: 1                   # processes on this machine, where it has no GPUs
optimizers:
  sparse: {name: rowwise_adagrad, learning_rate: 0.02}
  dense: {name: adam, learning_rate: 0.001}
checkpoint: {every: 1000, keep: 2}
metrics: {every: 100}
"""


def drafted_run(data: str, run: str, label: str | None = None) -> str:
    """The text of a run file for data at a path: CSV, JSON lines or Parquet, or anything that `load_spec` reads.

    run: the future name of the file, for its comments. label: the column of labels; None guesses it.

    Raises:
        UsageError: nothing is there, or no column seems to be the label.
        CorruptFile: the data cannot be read.
    """
    name = Path(data).name.partition(".")[0] or "first"
    if files := text_files(data):
        table, format_ = first_rows(files[0], ROWS), "text"
    else:
        spec: Any = load_spec(data)
        if not isinstance(spec, ParquetSpec) or _says_its_columns(spec):
            return TOP.format(data=data, seen="", run=run, name=name) + _known(spec)
        table, format_ = _first_part(spec), "parquet"
    columns = looked_at(table)
    body = _of_columns(data, format_, columns, _label(columns, label, data), run)
    seen = f" from its first {table.num_rows:,} rows"
    return TOP.format(data=data, seen=seen, run=run, name=name) + body + BOTTOM


def _first_part(spec: ParquetSpec) -> Any:
    """The first rows of column files; an empty table if no file has rows."""
    files = [ColumnFile(path) for path in column_files(spec.paths)]
    parts = ((file, part) for file in files for part, rows in enumerate(file.sizes) if rows)
    file, part = next(parts, (files[0], None))
    return file.schema.empty_table() if part is None else file.read(part, file.names).slice(0, ROWS)


def _says_its_columns(spec: ParquetSpec) -> bool:
    return bool(spec.features) or says_columns(spec.paths)


def _known(spec: Any) -> str:
    """The data part of a run for a spec, which leaves nothing to guess."""
    raw = {key: value for key, value in spec_to_raw(spec).items() if key != "schema"}
    splits = raw["format"] == "movielens"
    train = json.dumps({**raw, **({"split": "train"} if splits else {})})
    test = "{like: train, split: test}" if splits else "ELSEWHERE         # data that the model is scored on"
    return f"data:\n  train: {train}\n  {'' if splits else '# '}test: {test}\n{BOTTOM}"


def _label(columns: Sequence[LookedColumn], label: str | None, data: str) -> LookedColumn:
    names = [each.name for each in columns]
    chosen = label or guessed_label(columns)
    if chosen is None:
        known = ", ".join(names[:40])
        raise UsageError(f"no column of '{data}' seems to be the label; name one with --label; it has {known}")
    found = next((each for each in columns if each.name == chosen), None)
    if found is None:
        raise UsageError(f"'{data}' has no column '{chosen}'{did_you_mean(chosen, names)}")
    if found.most is None:
        raise UsageError(f"column '{chosen}' holds no numbers, such as {', '.join(found.shown)}; a label is a number")
    return found


def _of_columns(data: str, format_: str, columns: Sequence[LookedColumn], label: LookedColumn, run: str) -> str:
    """The data part of a run, with a line for each column."""
    others = [each for each in columns if each is not label]
    shared = shared_ids(others)
    features = [_feature(each, shared.get(each.name)) for each in others if each.kind not in ("number", "nothing")]
    if not features:
        raise UsageError(f"no column of '{data}' seems to hold ids or text; a model needs one for its tables")
    dense = [each for each in others if each.kind == "number"]
    transforms = [line for each in others for line in _transforms(each)]
    lines = [
        "data:",
        f"  # first `recsmith data vocabulary {run} -o vocabularies`: which row of its table each value has",
        "  train:",
        f"    format: {format_}",
        f"    paths: [{_quoted(data)}]",
        "    features:",
        *(f"      - {each}" for each in features),
        *(f"      # {_quoted(each.name)} is left out: {_why(each)}" for each in others if each.kind == "nothing"),
        *([f"    dense: [{', '.join(_quoted(each.name) for each in dense)}]"] if dense else []),
        f"    labels: [{_quoted(label.name)}]    # {_seen(label)}",
        *_threshold(label),
        *(["    transforms:"] if transforms else []),
        *(f"      - {each}" for each in transforms),
    ]
    if format_ == "text":
        lines += ["    split: train           # 80 % of the rows", "  test: {like: train, split: test}    # 10 %"]
    else:
        lines += ["  # test: {like: train, paths: [ELSEWHERE]}    # files that the model is scored on"]
    return "\n".join(lines) + "\n"


def _threshold(label: LookedColumn) -> list[str]:
    """The threshold from which on labels are 1, if they have values outside 0 to 1."""
    assert label.least is not None
    assert label.most is not None
    if label.least >= 0 and label.most <= 1:
        return []
    return [f"    positive: {(label.least + label.most) / 2:g}    # labels are 1 from here on, and 0 below: a guess"]


def _transforms(column: LookedColumn) -> list[str]:
    """Transforms of a column: weekday and hour of a time, logarithm of a skewed number."""
    name, weekday = _quoted(column.name), _quoted(f"{column.name}_weekday")
    if column.kind == "time":
        return [
            f"{{op: calendar, feature: {name}, part: weekday, into: {weekday}}}",
            f"{{op: calendar, feature: {name}, part: hour}}",
        ]
    return [f"{{op: log, dense: {name}}}    # {_seen(column)}"] if column.kind == "number" and column.skewed else []


def _feature(column: LookedColumn, shared: str | None) -> str:
    """A feature with its comment. shared: the column whose vocabulary it uses."""
    name = _quoted(column.name)
    if column.kind == "time":
        return f"{{name: {name}, ids: {'milliseconds' if column.milliseconds else 'seconds'}}}    # {_seen(column)}"
    of = "" if shared is None else f"; these are values of {shared}, which has the same rows"
    separator = "" if column.separator is None else f', separator: "{column.separator}"'
    file = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in shared or column.name)
    return f"{{name: {name}, vocabulary: vocabularies/{file}.arrow{separator}}}    # {_seen(column)}{of}"


def _seen(column: LookedColumn) -> str:
    span = "" if column.least is None else f", {column.least:,.10g} to {column.most:,.10g}"
    return f"{column.distinct:,} different values{span}, such as {', '.join(column.shown)}"


def _why(column: LookedColumn) -> str:
    if column.why:
        return column.why
    return "it holds nothing that a table could have rows for" if column.distinct < 2 else "each row has another value"


def _quoted(name: str) -> str:
    """A name for YAML: in quotes, unless it is a plain word."""
    return name if PLAIN.fullmatch(name) and name.lower() not in ("true", "false", "null") else json.dumps(name)
