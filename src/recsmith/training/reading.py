"""Runs to and from YAML or JSON, and `--set key=value`."""

from typing import Any

from recsmith.errors import UsageError
from recsmith.files import (
    Raw,
    Source,
    check_schema,
    decode,
    dump_json,
    encode,
    parse,
    parse_yaml,
    read_text,
    source_text,
    write_text,
)
from recsmith.training.run import SCHEMA, Run


def load_run(source: Run | Source, settings: tuple[str, ...] = ()) -> Run:
    """The run of a YAML or JSON file ('-' is stdin), with some of its values replaced. A Run is taken as it is.

    settings: 'key=value', keys with dots ('data.batch_size=512'), values as YAML.

    Raises:
        UsageError: the file cannot be read, or a setting is not key=value.
        CorruptFile: it is not a run; every wrong field is named, unknown ones with the nearest known one.
    """
    if isinstance(source, Run) and not settings:
        return source
    raw = run_to_raw(source) if isinstance(source, Run) else _raw_of(source)
    for setting in settings:
        _put(raw, setting)
    return run_from_raw(raw, "the run" if isinstance(source, Run) else source_text(source, "a Run"))


def _raw_of(source: Source) -> Raw:
    name = source_text(source, "a Run")
    return parse(read_text(name), name)


def run_from_raw(raw: Raw, source: str) -> Run:
    """A run from plain data of schema recsmith/run/1."""
    return decode(Run, check_schema(raw, SCHEMA, source), source)


def run_to_raw(run: Run) -> Raw:
    """Plain data of a run, as a file holds it."""
    return {"schema": SCHEMA, **encode(run)}


def save_run(run: Run, target: Source) -> None:
    """Write the run's file, whole or not at all."""
    write_text(source_text(target, "an output"), dump_json(run_to_raw(run)))


def _put(raw: Raw, setting: str) -> None:
    """Write one setting into the data of a run."""
    key, equals, text = setting.partition("=")
    if not equals or not key:
        raise UsageError(f"'{setting}' is not key=value; write for example --set data.batch_size=512")
    *path, last = key.strip().split(".")
    here: Any = raw
    for step in path:
        inner = here.get(step)
        here[step] = dict(inner) if isinstance(inner, dict) else {}
        here = here[step]
    value = parse_yaml(f"value: {text}", f"--set {key}")
    here[last] = value["value"] if isinstance(value, dict) else value
