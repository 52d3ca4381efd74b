"""Strict reading and atomic writing: the one door between files and nouns.

A file is text -> plain data (JSON, YAML) -> a noun. Nothing is guessed: duplicate keys, NaN, YAML aliases and tags,
unknown fields and numbers written as text are refused, each with the place and the fix.
"""

import difflib
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast, get_args, get_type_hints

from recsmith.errors import CorruptFile, UsageError

LARGEST_FILE = 256 * 2**20  # bytes; bigger inputs are refused before they are read
STDIN = "-"

Noun = TypeVar("Noun")
Raw = dict[str, Any]


# --- text in, text out --------------------------------------------------------------------------------------------


def read_text(source: str) -> str:
    """The text of a file, or of standard input for '-'; at most 256 MiB of UTF-8."""
    try:
        data = sys.stdin.buffer.read(LARGEST_FILE + 1) if source == STDIN else _read_bytes(Path(source))
    except OSError as error:
        raise UsageError(f"cannot read '{source}': {error.strerror}; give the path of a readable file") from None
    if len(data) > LARGEST_FILE:
        raise CorruptFile(f"'{source}' is larger than 256 MiB; big workloads are JSON or CSV below that size")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorruptFile(f"'{source}' is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def _read_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_FILE + 1)


def write_text(target: str, text: str) -> None:
    """Write a whole file or nothing: a failed or interrupted write leaves an existing file as it was."""
    path = Path(target)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        _refuse_target(target, error)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        _refuse_target(target, error)
    finally:
        temporary.unlink(missing_ok=True)


def check_target(target: str | None) -> None:
    """Refuse an output path that cannot be written, before any work is done for it."""
    if target is None or target == STDIN:
        return
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"cannot write '{target}': it is a folder; give the path of a file")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{target}': folder '{path.parent}' does not exist; create it first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"cannot write '{target}': permission denied; choose a folder you may write to")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refuse_target(target: str, error: OSError) -> NoReturn:
    raise UsageError(f"cannot write '{target}': {error.strerror}; any file that was there is unchanged") from None


# --- text to plain data -------------------------------------------------------------------------------------------


def parse_json(text: str, source: str) -> object:
    """Plain data of strict JSON: no duplicate keys, no NaN or Infinity."""
    try:
        return json.loads(
            text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant, parse_float=_parse_float
        )
    except json.JSONDecodeError as error:
        raise CorruptFile(f"'{source}' is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"'{source}' is not strict JSON: {error or 'nested too deeply'}") from None


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key '{twin}' stands twice in one object; keep one")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; every value must be finite")


def _parse_float(text: str) -> float | int:
    """A number; 1e6 and 2.0 count as whole numbers, so that they may stand where a count is asked for."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range; every value must be finite")
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def parse_yaml(text: str, source: str) -> object:
    """Plain data of strict YAML with the core meanings of YAML 1.2: `no` and `12:30` are text, `1e6` is a number."""
    import yaml

    try:
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            _refuse_yaml_extras(event)
        return yaml.load(text, Loader=_strict_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise CorruptFile(f"'{source}' is not strict YAML: {error.problem}{place}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CorruptFile(f"'{source}' is not strict YAML: {error or 'nested too deeply'}") from None


def _refuse_yaml_extras(event: object) -> None:
    import yaml

    kind = None
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        kind = "anchors and aliases"
    elif getattr(event, "tag", None) is not None:
        kind = "tags"
    if kind:
        mark = cast(Any, event).start_mark
        raise ValueError(f"{kind} are not allowed (line {mark.line + 1}); write the value out")


@cache
def _strict_loader() -> Any:
    import re

    import yaml

    class Loader(yaml.CSafeLoader):
        """PyYAML's C loader with the core schema of YAML 1.2 and without duplicate keys."""

        yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(loader: Any, node: Any) -> Iterator[dict[str, object]]:
        result: dict[str, object] = {}
        yield result
        pairs = [(loader.construct_object(key), loader.construct_object(value, deep=True)) for key, value in node.value]
        for key, _ in pairs:
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text", node.start_mark)
        result.update(_unique_pairs(pairs))

    def construct_int(loader: Any, node: Any) -> int:
        text = loader.construct_scalar(node)
        return int(text, 0) if text.lower().startswith(("0x", "0o")) else int(text)

    def construct_float(loader: Any, node: Any) -> float | int:
        text = loader.construct_scalar(node)
        if text.lower().lstrip("+-") in (".inf", ".nan"):
            _refuse_constant(text)
        return _parse_float(text)

    for tag, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", "~nN"),
        ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
        ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
         "-+0123456789."),
    ):  # fmt: skip
        letters = [*first, ""] if tag == "null" else list(first)
        cast(Any, Loader).add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(rf"^(?:{pattern})$"), letters)
    Loader.add_constructor("tag:yaml.org,2002:map", construct_mapping)
    Loader.add_constructor("tag:yaml.org,2002:int", construct_int)
    Loader.add_constructor("tag:yaml.org,2002:float", construct_float)
    return Loader


def parse(text: str, source: str) -> Raw:
    """Plain data of a JSON or YAML file: JSON if it starts with '{' or is named .json, YAML otherwise."""
    is_json = source.endswith(".json") or text.lstrip()[:1] in ("{", "[")
    raw = parse_json(text, source) if is_json else parse_yaml(text, source)
    if not isinstance(raw, dict):
        raise CorruptFile(f"'{source}' holds no mapping at its top; a file starts with `schema: recsmith/...`")
    return cast(Raw, raw)


# --- plain data to nouns ------------------------------------------------------------------------------------------


def check_schema(raw: Raw, schema: str, source: str) -> Raw:
    """The data without its `schema` line, which must name the expected schema."""
    found = raw.get("schema")
    if found is None:
        raise CorruptFile(f"'{source}' names no schema; add `schema: {schema}`")
    if found != schema:
        raise CorruptFile(f"'{source}' has schema {found!r}; expected `{schema}`")
    return {key: value for key, value in raw.items() if key != "schema"}


@cache
def _adapter(noun: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(noun)


def decode(noun: type[Noun], raw: object, source: str) -> Noun:
    """A noun from plain data, every field checked; CorruptFile names the first wrong place."""
    from pydantic import ValidationError

    try:
        return _adapter(noun).validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        raise CorruptFile(f"'{source}': {_describe(noun, raw, error)}") from None
    except UsageError as error:
        raise CorruptFile(f"'{source}': {error}") from None


def encode(noun: object) -> Any:
    """Plain data of a noun, without the fields that have their default value."""
    return _adapter(type(noun)).dump_python(noun, mode="json", exclude_defaults=True)


def json_schema(noun: Any) -> Raw:
    """JSON Schema of a noun as it stands in a file."""
    return _adapter(noun).json_schema()


def _describe(noun: Any, raw: object, error: Any) -> str:
    first = error.errors(include_url=False)[0]
    place, value = _place(raw, first["loc"])
    others = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        hint = did_you_mean(str(first["loc"][-1]), sorted(_field_names(noun)))
        return f"{place} is not a known field{hint}{others}"
    if first["type"] in ("missing", "missing_argument"):
        return f"{place} is missing{others}"
    return f"{place} is {json.dumps(value)[:60]}: {first['msg'][0].lower()}{first['msg'][1:]}{others}"


def _place(raw: object, path: tuple[str | int, ...]) -> tuple[str, object]:
    """Where an error is, in words, and the value there (None where there is none)."""
    text, here = "", raw
    for step in path:
        here = _inside(here, step)
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        name = _inside(here, "name") if isinstance(step, int) else None
        text += f" ({name!r})" if name is not None else ""
    return text or "the file", here


def _inside(value: Any, step: str | int) -> object:
    try:
        return value[step]
    except (LookupError, TypeError):
        return None


def _field_names(noun: Any) -> set[str]:
    """Names of all fields of a noun and of the nouns inside it."""
    names: set[str] = set()
    if is_dataclass(noun):
        hints = get_type_hints(noun)
        for field in fields(cast(Any, noun)):
            names |= {field.name} | _field_names(hints[field.name])
    for part in get_args(noun):
        names |= _field_names(part)
    return names


def did_you_mean(word: str, known: list[str]) -> str:
    """The end of an error about an unknown word: the nearest known word, or all of them."""
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(known[:40])}" if known else ""


# --- one line per item --------------------------------------------------------------------------------------------


def dump_json(raw: Raw) -> str:
    """JSON that a person can read and diff: one line per top-level field and per item of a top-level list."""
    lines: list[str] = []
    for key, value in raw.items():
        if isinstance(value, list) and value:
            items = ",\n  ".join(map(_compact, cast(list[object], value)))
            lines.append(f"{json.dumps(key)}: [\n  {items}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {_compact(cast(object, value))}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


@contextmanager
def reading(source: str) -> Generator[None]:
    """Name the source in the errors of nouns that are built by hand from a file."""
    try:
        yield
    except CorruptFile:
        raise
    except UsageError as error:
        raise CorruptFile(f"'{source}': {error}") from None


Reader = Callable[[str, str], Noun]
