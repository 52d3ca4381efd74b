"""Strict reading and atomic writing: the one door between files and nouns.

A file is text -> plain data (JSON, YAML) -> a noun. Nothing is guessed: duplicate keys, NaN, YAML aliases and tags,
unknown fields and numbers written as text are refused, each with the place and the fix.
"""

import difflib
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast, get_args, get_type_hints

from recsmith.errors import CorruptFile, RecSmithError, UsageError

LARGEST_FILE = 512 * 2**20  # bytes, as a plan of 100,000 tables on 4,096 devices has; more is refused before it is read
DEEPEST_YAML = 64  # nested values; libyaml has no limit of its own and overflows the stack
STDIN = "-"

Noun = TypeVar("Noun")
Raw = dict[str, Any]


# --- text in, text out --------------------------------------------------------------------------------------------


def read_text(source: str) -> str:
    """The text of a file, or of standard input for '-'; at most 512 MiB of UTF-8."""
    try:
        data = _read_stdin() if source == STDIN else _read_bytes(Path(source))
    except (OSError, ValueError) as error:  # ValueError: a path that holds a null byte
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read '{source}': {reason}; give the path of a readable file") from None
    if len(data) > LARGEST_FILE:
        raise CorruptFile(f"'{source}' is larger than 512 MiB; big workloads are JSON or CSV below that size")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CorruptFile(f"'{source}' is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def _read_stdin() -> bytes:
    if cast(Any, sys.stdin) is None:
        raise UsageError("cannot read '-': standard input is closed; give a file instead")
    return sys.stdin.buffer.read(LARGEST_FILE + 1)


def _read_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST_FILE + 1)


def write_text(target: str, text: str) -> None:
    """Write a whole file or nothing: a failed or interrupted write leaves an existing file as it was.

    A link stays a link: the file it leads to is replaced. Devices and pipes (/dev/null, >(gzip)) are written to.
    """
    if _is_stream(target):
        return _write_stream(target, text)
    path = _real_path(target)
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
        raise _write_failure(target, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def _write_stream(target: str, text: str) -> None:
    try:
        with Path(target).open("w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise _write_failure(target, error) from None


def check_target(target: str | None) -> None:
    """Refuse an output path that cannot be written, before any work is done for it."""
    if target is None or target == STDIN:
        return
    if _is_stream(target):
        return
    path = _real_path(target)
    if path.is_dir():
        raise UsageError(f"cannot write '{target}': it is a folder; give the path of a file")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write '{target}': folder '{path.parent}' does not exist; create it first")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"cannot write '{target}': permission denied; choose a folder you may write to")


def _is_stream(target: str) -> bool:
    """Whether the target exists and is neither a file nor a folder: a device, a pipe."""
    path = Path(target)
    return path.exists() and not path.is_file() and not path.is_dir()


def _real_path(target: str) -> Path:
    return Path(os.path.realpath(target))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refuse_target(target: str, error: OSError) -> NoReturn:
    raise UsageError(f"cannot write '{target}': {error.strerror}; choose a folder you may write to") from None


def _write_failure(target: str, error: OSError) -> RecSmithError:
    return RecSmithError(f"cannot write '{target}': {error.strerror}; any file that was there is unchanged")


# --- text to plain data -------------------------------------------------------------------------------------------


def parse_json(text: str, source: str) -> object:
    """Plain data of strict JSON: no duplicate keys, no NaN or Infinity."""
    try:
        return json.loads(
            text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant, parse_float=_parse_float
        )
    except json.JSONDecodeError as error:
        raise CorruptFile(f"'{source}' is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except ValueError as error:
        raise CorruptFile(f"'{source}' is not strict JSON: {error}") from None
    except RecursionError:
        raise CorruptFile(f"'{source}' is not strict JSON: it is nested too deeply") from None


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key '{twin}' stands twice in one object; keep one")
    return result


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; every value must be finite")


def parse_number(text: str) -> float | int:
    """The number of a text by the rules of YAML; ValueError where it is none."""
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return _parse_float(text)
    raise ValueError(f"'{text}' is not a number")


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
        _refuse_yaml_extras(yaml.parse(text, Loader=yaml.CSafeLoader))
        return yaml.load(text, Loader=_strict_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise CorruptFile(f"'{source}' is not strict YAML: {error.problem}{place}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise CorruptFile(f"'{source}' is not strict YAML: {str(error).splitlines()[0]}") from None


def _refuse_yaml_extras(events: Iterator[Any]) -> None:
    """Refuse anchors, aliases, tags, and nesting that would overflow the stack."""
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1
        if depth > DEEPEST_YAML:
            raise ValueError(f"values are nested more than {DEEPEST_YAML} deep (line {line})")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise ValueError(f"anchors and aliases are not allowed (line {line}); write the value out")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"tags are not allowed (line {line}); write the value out")


_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@cache
def _strict_loader() -> Any:
    import yaml

    class Loader(yaml.CSafeLoader):
        """PyYAML's C loader with the core schema of YAML 1.2 and without duplicate keys."""

        yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(loader: Any, node: Any) -> Iterator[dict[str, object]]:
        result: dict[str, object] = {}
        yield result
        for name, value in node.value:
            key = loader.construct_object(name)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text", name.start_mark)
            if key in result:
                rule = f"key '{key}' stands twice in one object; keep one"
                raise yaml.constructor.ConstructorError(None, None, rule, name.start_mark)
            result[key] = loader.construct_object(value, deep=True)

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
        ("int", rf"{_INT.pattern}|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
        ("float", rf"{_FLOAT.pattern}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+0123456789."),
    ):
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
    if not isinstance(cast(object, raw), dict):
        raise CorruptFile(f"'{source}' holds no object where one of `schema: {schema}` belongs")
    found = raw.get("schema")
    if found is None:
        raise CorruptFile(f"'{source}' names no schema; add `schema: {schema}`")
    if found != schema:
        words = f"'{found}'" if isinstance(found, str) else "that is not text"
        raise CorruptFile(f"'{source}' has a schema {words}; expected `{schema}`")
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
    except RecursionError:
        raise CorruptFile(f"'{source}' is nested too deeply") from None


def encode(noun: object) -> Any:
    """Plain data of a noun, without the fields that have their default value."""
    return _adapter(type(noun)).dump_python(noun, mode="json", exclude_defaults=True)


def json_schema(noun: Any) -> Raw:
    """JSON Schema of a noun as it stands in a file."""
    return _adapter(noun).json_schema()


_UNKNOWN_FIELD = ("extra_forbidden", "unexpected_keyword_argument")


def _describe(noun: Any, raw: object, error: Any) -> str:
    errors = error.errors(include_url=False)
    first = next((each for each in errors if each["type"] in _UNKNOWN_FIELD), errors[0])
    place, value = _place(raw, first["loc"])
    others = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] in _UNKNOWN_FIELD:
        hint = did_you_mean(str(first["loc"][-1]), _names_at(noun, first["loc"]))
        return f"{place} is not a known field{hint}{others}"
    if first["type"] in ("missing", "missing_argument"):
        return f"{place} is missing{others}"
    return f"{place} is {json.dumps(value)[:60]}: {first['msg'][0].lower()}{first['msg'][1:]}{others}"


def _place(raw: object, path: tuple[str | int, ...]) -> tuple[str, object]:
    """Where an error is, in words, and the value there (None where there is none)."""
    text, here = "", raw
    for step in path:
        if isinstance(step, str) and not isinstance(here, dict | None):
            continue  # not a key but the name of one of several allowed types
        here = _inside(here, step)
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
        name = _inside(here, "name") or _inside(here, "table") if isinstance(step, int) else None
        text += f" ({name!r})" if name else ""
    return text or "the file", here


def _inside(value: Any, step: str | int) -> object:
    try:
        return value[step]
    except (LookupError, TypeError):
        return None


def _names_at(noun: Any, path: tuple[str | int, ...]) -> list[str]:
    """Names of the fields that a path's last step could mean: of the noun that it leads into and of nouns inside."""
    nouns, word = _nouns(noun), path[-1]
    for step in path[:-1]:
        if isinstance(step, str):
            nouns = [inner for outer in nouns for inner in _nouns(get_type_hints(outer).get(step))]
    return sorted({name for each in nouns for name in _field_names(each) if name != word})


def _nouns(hint: Any) -> list[Any]:
    """The nouns that a type speaks of: X of `X | None` and of `tuple[X, ...]`."""
    return [hint] if is_dataclass(hint) else [noun for part in get_args(hint) for noun in _nouns(part)]


def _field_names(noun: Any) -> set[str]:
    """Names of all fields of a noun and of the nouns inside it."""
    hints = get_type_hints(noun)
    return set(hints).union(*(_field_names(inner) for hint in hints.values() for inner in _nouns(hint)))


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
