"""Converts plain data into nouns (frozen dataclasses), checking every field, and back."""

import difflib
import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import repeat
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from recsmith.errors import CorruptFile, UsageError, printable_json
from recsmith.files.parsing import Raw, lines_of, parse, parse_json
from recsmith.files.settings import setting_of
from recsmith.files.texts import read_text
from recsmith.files.validators import BROKEN_RULE, adapter, brief_validator, rules_validator

Noun = TypeVar("Noun")
SHOWN_VALUE = 60  # most characters of a wrong value in an error
LONGEST_WORD = 200  # most characters of an unknown word; longer ones are cut, and no similar name is searched
LARGE = 2**16  # characters of JSON above which only the first error of each list is found
MOST_ERRORS = 8  # most wrong fields in one error
SHOWN_NAMES = 40  # most known names in one error
READERS = {  # by schema: the commands that read such a file, for users who pass it to another command
    "recsmith/workload/1": "a list of tables is what `recsmith plan` reads",
    "recsmith/plan/1": "a plan is what `recsmith simulate` and `recsmith explain` read",
    "recsmith/run/1": "a run is what `recsmith train` reads, which plans its tables: with --dry-run it prints the "
    "plan, its memory and the step",
}
BESIDE_TABLES = (
    "that is read beside the tables that it places: --baseline of `recsmith compare`, --running of `recsmith advise`, "
    "or `recsmith import` with --workload"
)
_UNKNOWN_FIELD = ("extra_forbidden", "unexpected_keyword_argument")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def check_schema(raw: Raw, schema: str, source: str, made_by: str = "") -> Raw:
    """The data without its `schema` key; CorruptFile unless that names the expected schema.

    made_by: the command that writes such files, for the error.
    """
    if not isinstance(cast(object, raw), dict):
        raise CorruptFile(f"'{source}' holds no object where one of `schema: {schema}` belongs")
    found = raw.get("schema")
    if found is None:
        if set(raw) == {"plan"}:
            raise CorruptFile(f"'{source}' names no schema, but looks like a ShardingPlan of TorchRec; {BESIDE_TABLES}")
        raise CorruptFile(f"'{source}' names no schema; add `schema: {schema}`")
    if found != schema:
        named = f"'{_short(found)}'" if isinstance(found, str) else "that is not text"
        writer = f", which `{made_by}` writes" if made_by else ""
        reader = f"; {READERS[found]}" if isinstance(found, str) and found in READERS else ""
        raise CorruptFile(f"'{source}' has a schema {named}; expected `{schema}`{writer}{reader}")
    return {key: value for key, value in raw.items() if key != "schema"}


def read_raw(source: str, schema: str) -> Raw:
    """The data of a file of this schema ('-' is stdin), without its `schema` key; CorruptFile for any other file."""
    return check_schema(parse(read_text(source), source), schema, source)


def read_json(source: str) -> object:
    """The data of a JSON file ('-' is stdin), of any schema or none; CorruptFile if it is no strict JSON."""
    return parse_json(read_text(source), source)


def decode(noun: type[Noun], raw: object, source: str, settings: Sequence[str] = ()) -> Noun:
    """A noun made from plain data after checking every field; CorruptFile names all wrong fields and broken rules.

    The rules of a noun are checked once its fields are valid, so the rules of a whole are checked after those of its
    parts. settings: settings of the command line that replaced values of the source; errors name these, not the file.
    """
    return _decoded(noun, raw, source, settings=settings)


def built(noun: type[Noun], raw: Raw) -> Noun:
    """The noun of a file that ships with RecSmith: the result of `decode`, but without checking fields.

    Tests decode all such files. So commands that read no other files need no pydantic, whose import takes as long as
    NumPy's.
    """
    hints = _hints(noun)
    return noun(**{name: _built(hints[name], value) for name, value in raw.items()})


_hints = cache(get_type_hints)
_PLAIN = (str, int, float, bool)  # types of most values, which need no conversion except int to float


def _built(hint: Any, value: Any) -> Any:
    """A value of a JSON or YAML file, converted to the type of its field."""
    if hint in _PLAIN:
        return float(value) if hint is float else value
    parts, origin = get_args(hint), get_origin(hint)
    if origin in (Union, UnionType):
        return _built(next((part for part in parts if _holds(part, value)), None), value)
    if is_dataclass(hint) and isinstance(value, dict):
        return built(cast(type[Any], hint), cast(Raw, value))
    if origin is dict:
        return {key: _built(parts[1], each) for key, each in value.items()}
    if origin is tuple:
        each = repeat(parts[0]) if parts[-1] is Ellipsis else parts
        return tuple(_built(part, item) for part, item in zip(each, value, strict=False))
    return value


def _holds(hint: Any, value: Any) -> bool:
    """Whether a value of a file matches a type, as far as needed to choose the part of a union."""
    if isinstance(value, list):
        return get_origin(hint) is tuple
    if isinstance(value, dict):
        return is_dataclass(hint) or get_origin(hint) is dict
    return hint is type(value) or (hint is float and type(value) is int)


def decode_part(noun: type[Noun], raw: object, field: str) -> Noun:
    """A noun that is the value of another noun's field, whose name precedes each wrong field in errors.

    The reader of the whole file adds its name and the line.
    """
    return _decoded(noun, raw, "", field)


def _decoded(noun: type[Noun], raw: object, source: str, field: str = "", settings: Sequence[str] = ()) -> Noun:
    from pydantic import ValidationError

    try:
        return _validated(noun, json.dumps(raw))
    except MemoryError:
        raise CorruptFile(f"'{source}' does not fit into memory") from None
    except ValidationError as error:
        raise CorruptFile(_describe(noun, raw, error, source, field, settings)) from None
    except RecursionError:
        raise CorruptFile(f"'{source}' is nested too deeply") from None


def _validated(noun: type[Noun], text: str) -> Noun:
    """The noun of a JSON text. A broken rule stops pydantic at once, so a second validation collects all errors."""
    try:
        return (brief_validator if len(text) > LARGE else adapter)(noun).validate_json(text, strict=True)
    except UsageError:
        return rules_validator(noun, brief=len(text) > LARGE).validate_json(text, strict=True)


def encode(noun: object) -> Any:
    """A noun as plain data, without fields that have their default value."""
    if "pydantic" not in sys.modules:  # importing it would take longer
        return _plain(noun)
    return adapter(type(noun)).dump_python(noun, mode="json", exclude_defaults=True)


def _plain(value: Any) -> Any:
    """The plain data that `encode` returns for a noun or a value in it, made without pydantic."""
    if isinstance(value, tuple | list):
        return [_plain(each) for each in cast(list[Any], value)]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in cast(Raw, value).items()}
    if not is_dataclass(value):
        return value
    plain: Raw = {}
    for field in fields(value):
        found = getattr(value, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if not (found is default or found == default):
            plain[field.name] = _plain(found)
    return plain


def spell_out(noun: object) -> Any:
    """A noun as plain data with all of its fields, so that later changes of defaults do not change its meaning."""
    return adapter(type(noun)).dump_python(noun, mode="json")


def json_schema(noun: Any) -> Raw:
    """The JSON Schema of a noun in files."""
    return adapter(noun).json_schema()


def _describe(noun: Any, raw: object, error: Any, source: str, field: str, settings: Sequence[str]) -> str:
    """Text of all wrong fields and broken rules, unknown fields first, each with its setting or (if found) its line."""
    found = _one_a_value(raw, _of_its_kind(raw, error.errors(include_url=False, include_input=False)))
    errors = sorted(found, key=lambda each: each["type"] not in _UNKNOWN_FIELD)
    shown = errors[:MOST_ERRORS]
    lines = lines_of(source, [each["loc"] for each in shown])
    wrong = [_wrong_field(noun, raw, each, field) for each in shown]
    given = [setting_of(settings, _place(raw, each["loc"])[0], said) for each, said in zip(shown, wrong, strict=True)]
    if len(errors) == 1 and given[0]:
        return f"{given[0]}: {wrong[0]}"
    places = [setting or (f"line {line}" if line else "") for setting, line in zip(given, lines, strict=True)]
    said = [f"{each} ({place})" if place else each for each, place in zip(wrong, places, strict=True)]
    more = len(errors) - len(said)
    text = "; ".join(said) + (f"; and {more} more" if more else "")
    counted = text if len(errors) == 1 else f"{len(errors)} {_wrong(errors)}: {text}"
    return counted if field else f"'{source}': {counted}"


def _of_its_kind(raw: object, errors: list[Any]) -> list[Any]:
    """The errors without "not one of these words" for a mapping, if the field also allows a mapping."""
    kept = [
        each
        for each in errors
        if each["type"] != "literal_error"
        or not str(each["loc"][-1]).startswith("literal[")
        or not isinstance(_place(raw, each["loc"])[1], dict)
    ]
    return kept or errors


def _one_a_value(raw: object, errors: list[Any]) -> list[Any]:
    """The errors, with those of one value merged: a value that matches none of several types has an error for each."""
    firsts: dict[str, Any] = {}
    for each in errors:
        first = firsts.setdefault(str(id(each)) if _is_name_of_field(each) else _place(raw, each["loc"])[0], each)
        if first is not each:
            first["msg"] += f", or {each['msg'][0].lower()}{each['msg'][1:]}".replace("input should be ", "")
    return list(firsts.values())


def _is_name_of_field(error: Any) -> bool:
    """Whether an error concerns a rule or the name of a field, not its value."""
    return error["type"] in (BROKEN_RULE, *_UNKNOWN_FIELD, "missing", "missing_argument")


def _wrong(errors: list[Any]) -> str:
    rules = {each["type"] == BROKEN_RULE for each in errors}
    return "things are wrong" if len(rules) > 1 else "rules are broken" if True in rules else "fields are wrong"


def _wrong_field(noun: Any, raw: object, error: Any, field: str = "") -> str:
    if error["type"] == BROKEN_RULE:
        return _broken_rule(raw, error)
    place, value = _place(raw, error["loc"])
    place = f"{field}.{place}" if field else place
    if error["type"] in _UNKNOWN_FIELD:
        inner = _field_inside(noun, error["loc"])
        if inner and isinstance(value, str | int | float | bool):
            return f"{place} is not a known field; write {inner}: {{{error['loc'][-1]}: {_beginning(value)}}}"
        names, near = _names_at(noun, error["loc"])
        return f"{place} is not a known field{did_you_mean(str(error['loc'][-1]), names, near)}"
    if error["type"] in ("missing", "missing_argument"):
        return f"{place} is missing"
    said = f"{error['msg'][0].lower()}{error['msg'][1:]}".replace("a valid array", "a list")
    return f"{place} is {_beginning(value)}: {said}"


def _broken_rule(raw: object, error: Any) -> str:
    """The text of a broken rule, preceded by its place if it concerns an item of a list that the text does not name."""
    path, said = error["loc"][:-1], error["msg"]
    items = [at for at, step in enumerate(path) if isinstance(step, int)]
    if not items:
        return said
    item = _place(raw, path[: items[-1] + 1])[1]
    names = [_inside(item, key) for key in ("name", "table", "tables")]
    is_named = any(isinstance(name, str) and f"{name!r}" in said for name in names)
    return said if is_named else f"{_place(raw, path)[0]}: {said}"


def _beginning(value: object) -> str:
    """The first characters of a value as JSON; fast for large values, too."""
    text = ""
    for piece in json.JSONEncoder().iterencode(value):
        text += piece[:SHOWN_VALUE]
        if len(text) >= SHOWN_VALUE:
            break
    return text[:SHOWN_VALUE]


def _short(word: str) -> str:
    return word if len(word) <= LONGEST_WORD else f"{word[:SHOWN_VALUE]}…"


def _place(raw: object, path: tuple[str | int, ...]) -> tuple[str, object]:
    """The place of an error, in words, and the value there (None if there is none)."""
    text, here = "", raw
    for at, step in enumerate(path):
        missing = at + 1 < len(path) and _lacks(here, step)
        if isinstance(step, str) and (missing or step.startswith("literal[") or not isinstance(here, dict | None)):
            continue  # not a key but the name of one of several allowed types
        here = _inside(here, step)
        word = step if isinstance(step, int) else _short(step)
        text += f"[{word}]" if isinstance(word, int) else f".{word}" if text else word
        name = _inside(here, "name") or _inside(here, "table") if isinstance(step, int) else None
        text += f" ({_short(repr(name))})" if name else ""
    return text or "the file", here


def _lacks(value: Any, step: str | int) -> bool:
    """Whether a value is a mapping without a key."""
    return isinstance(value, dict) and step not in value


def _inside(value: Any, step: str | int) -> object:
    try:
        return value[step]
    except (LookupError, TypeError):
        return None


def _names_at(noun: Any, path: tuple[str | int, ...]) -> tuple[list[str], list[str]]:
    """Field names that a path's last step could mean: those of the noun it is in, and also those of nouns inside."""
    nouns, word = _nouns_at(noun, path), path[-1]
    own = {name for each in nouns for name in get_type_hints(each)}
    return sorted(own - {word}), sorted({name for each in nouns for name in _field_names(each)} - {word})


def _nouns_at(noun: Any, path: tuple[str | int, ...]) -> list[Any]:
    """The nouns that a path leads to without its last step."""
    nouns = _nouns(noun)
    for step in path[:-1]:
        if isinstance(step, str) and step not in {outer.__name__ for outer in nouns}:
            nouns = [inner for outer in nouns for inner in _nouns(get_type_hints(outer).get(step))]
    return nouns


def _field_inside(noun: Any, path: tuple[str | int, ...]) -> str:
    """The only field of the path's noun that holds a noun with a field of the path's last word; '' if there is none."""
    nouns, word = _nouns_at(noun, path), path[-1]
    fields = [
        name
        for each in nouns
        for name, hint in get_type_hints(each).items()
        if any(word in get_type_hints(inner) for inner in _nouns(hint)) and not _is_list(hint)
    ]
    return fields[0] if len(fields) == 1 else ""


def _is_list(hint: Any) -> bool:
    return any(get_origin(part) is tuple for part in (hint, *get_args(hint)))


def _nouns(hint: Any) -> list[Any]:
    """The nouns in a type: X of `X | None` and of `tuple[X, ...]`."""
    return [hint] if is_dataclass(hint) else [noun for part in get_args(hint) for noun in _nouns(part)]


def _field_names(noun: Any) -> set[str]:
    """Names of all fields of a noun and of the nouns inside it."""
    hints = get_type_hints(noun)
    return set(hints).union(*(_field_names(inner) for hint in hints.values() for inner in _nouns(hint)))


def did_you_mean(word: str, known: list[str], more: list[str] | None = None) -> str:
    """The end of an error about an unknown word: the most similar known word, or the list of known words.

    more: further words among which a similar one is searched, in place of `known`.
    """
    near = difflib.get_close_matches(word, more or known, n=1) if len(word) <= LONGEST_WORD else []
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(known[:SHOWN_NAMES])}" if known else ""


def dump_json(raw: Raw) -> str:
    """JSON that is easy to read and diff: one line per top-level field, and per item of a top-level list."""
    lines: list[str] = []
    for key, value in raw.items():
        if isinstance(value, list) and value:
            items = ",\n  ".join(map(_compact, cast(list[object], value)))
            lines.append(f"{json.dumps(key)}: [\n  {items}\n]")
        else:
            lines.append(f"{json.dumps(key)}: {_compact(cast(object, value))}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: object) -> str:
    return printable_json(_encode(value))


@contextmanager
def reading(source: str) -> Generator[None]:
    """A context in which UsageError of nouns built from a file becomes CorruptFile with the file's name."""
    try:
        yield
    except CorruptFile:
        raise
    except UsageError as error:
        raise CorruptFile(f"'{source}': {error}") from None
