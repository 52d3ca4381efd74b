"""Turns text into plain data: strict JSON, and an unambiguous subset of YAML; and finds the lines of values."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, cast

from recsmith.errors import CorruptFile, UsageError
from recsmith.files.texts import HERE, Given, is_regular_file, read_text

DEEPEST_YAML = 64  # most levels of nesting; libyaml has no limit and overflows the stack
LARGEST_YAML = 16 * 2**20  # most characters; YAML takes about a second per million
MOST_KEYS = 10_000  # most keys of one object; each unknown key costs memory until all are refused
MOST_VALUES = 100_000  # most values of a YAML file with anchors, with aliases expanded
MOST_DIGITS = 64  # most digits of a whole number; longer numbers are above 2^63 or padded with zeros
EXACT_INTEGERS = 2**53  # every whole number below it is exact as a floating-point number

Raw = dict[str, Any]
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
LARGEST = 2**20  # most bytes of a file in which lines of values are searched; larger files take seconds
EXTENDS = "extends"  # key that names another file, whose values are used if this file has none
Steps = Sequence[str | int]  # keys and positions, from the top


def parse_json(text: str, source: str) -> object:
    """Plain data of strict JSON: no duplicate keys, no NaN or Infinity, no lone surrogates; else CorruptFile."""
    if not text.strip():
        raise CorruptFile(f"'{source}' is empty")
    try:
        found = json.loads(
            text,
            object_pairs_hook=_unique_pairs,
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
        if "\\ud" in text or "\\uD" in text:
            _refuse_halves(found)
        return found
    except MemoryError:
        raise CorruptFile(f"'{source}' does not fit into memory: {len(text):,} characters") from None
    except json.JSONDecodeError as error:
        raise CorruptFile(f"'{source}' is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except ValueError as error:
        raise CorruptFile(f"'{source}' is not strict JSON: {error}") from None
    except RecursionError:
        raise CorruptFile(f"'{source}' is not strict JSON: it is nested too deeply") from None


def _refuse_halves(found: object) -> None:
    """Refuse a lone surrogate: one of the two escapes that an emoji needs in JSON, which UTF-8 cannot represent."""
    try:
        json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"{half} is half of a character; write the character itself, or both of its escapes") from None


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    _check_keys(len(pairs))
    if len(result) != len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key '{twin}' stands twice in one object; keep one")
    return result


def _check_keys(count: int) -> None:
    if count > MOST_KEYS:
        raise ValueError(f"an object has {count:,} keys; none has more than {MOST_KEYS:,}, many things stand in a list")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number; every value must be finite")


def parse_number(text: str) -> float | int:
    """The number that a text represents by the rules of YAML; ValueError if it is none."""
    if _INT.fullmatch(text):
        return _parse_int(text)
    if _FLOAT.fullmatch(text):
        return _parse_float(text)
    raise ValueError(f"'{text}' is not a number")


def _parse_int(text: str, base: int = 10) -> int:
    """A whole number; too many digits are refused first, since Python does not convert several thousand."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:12]}... has {len(text):,} digits; whole numbers are below 2^63")
    return int(text, base)


def _parse_float(text: str) -> float | int:
    """A finite number; 1e6 and 2.0 become int, so that they can be given as counts."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range; every value must be finite")
    return int(value) if value.is_integer() and abs(value) < EXACT_INTEGERS else value


def parse_yaml(text: str, source: str) -> object:
    """Plain data of strict YAML by the core schema of YAML 1.2: `no` and `12:30` are text, `1e6` is a number."""
    import yaml

    if len(text) > LARGEST_YAML:
        raise CorruptFile(
            f"'{source}' is YAML of {len(text):,} characters, above {LARGEST_YAML:,}; big workloads are JSON or CSV"
        )
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
    """Refuse tags, nesting that would overflow the stack, and aliases that expand too much or contain themselves."""
    import yaml

    depth, aliases = 0, _Aliases()
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1
        if depth > DEEPEST_YAML:
            raise ValueError(f"values are nested more than {DEEPEST_YAML} deep (line {line})")
        if getattr(event, "tag", None) is not None:
            raise ValueError(f"tags are not allowed (line {line}); write the value out")
        aliases.count(event, line)


class _Aliases:
    """Counts the values of a file with aliases expanded: a few lines could expand to billions."""

    def __init__(self) -> None:
        self.values = 0
        self.open: list[tuple[str | None, int]] = []  # anchors of open collections, and the count before each
        self.sizes: dict[str, int] = {}  # number of values by anchor

    def count(self, event: Any, line: int) -> None:
        """Count the values of the next event; ValueError for too many, or for an alias without a complete anchor."""
        import yaml

        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.sizes:
                raise ValueError(f"alias '{event.anchor}' (line {line}) names no value that is complete before it")
            self.values += self.sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            self.open.append((event.anchor, self.values))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self.open.pop()
            self.sizes |= {anchor: self.values - before} if anchor else {}
        elif isinstance(event, yaml.ScalarEvent):
            self.values += 1
            self.sizes |= {event.anchor: 1} if event.anchor else {}
        if self.sizes and self.values > MOST_VALUES:
            raise ValueError(f"aliases make more than {MOST_VALUES:,} values (line {line}); write fewer of them")


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
            if key == "<<":
                rule = "merge keys (<<) are not allowed; write the fields out"
                raise yaml.constructor.ConstructorError(None, None, rule, name.start_mark)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is not text", name.start_mark)
            if key in result:
                rule = f"key '{key}' stands twice in one object; keep one"
                raise yaml.constructor.ConstructorError(None, None, rule, name.start_mark)
            result[key] = loader.construct_object(value, deep=True)
        _check_keys(len(result))

    def construct_int(loader: Any, node: Any) -> int:
        text = loader.construct_scalar(node)
        return _parse_int(text, 0 if text.lower().startswith(("0x", "0o")) else 10)

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
    """Plain data of a JSON or YAML file: JSON if it starts with '{' or '[' or is named .json, YAML otherwise."""
    is_json = source.endswith(".json") or text.lstrip()[:1] in ("{", "[")
    raw = parse_json(text, source) if is_json else parse_yaml(text, source)
    if not isinstance(raw, dict):
        raise CorruptFile(f"'{source}' holds no mapping at its top; a file starts with `schema: recsmith/...`")
    return cast(Raw, raw)


def lines_of(source: str, paths: Sequence[Steps]) -> list[int | None]:
    """The line of each path's value, or of the innermost value around it; None if it cannot be found.

    It cannot be found in standard input, in large files and in text that is neither YAML nor JSON. In a file that
    extends another one, only the file's own values have lines.
    """
    top = _top(source)
    if top is not None and _inside(top, EXTENDS) is not None:
        return [exact_line(source, path) for path in paths]
    return [None if top is None else _line(top, path) for path in paths]


def exact_line(source: str, path: Steps) -> int | None:
    """The line of a path's value; None if the file has no such value, or its lines cannot be found."""
    node = _top(source)
    for step in path:
        node = None if node is None else _inside(node, step)
    return None if node is None else node.start_mark.line + 1


def _top(source: str) -> Any:
    """The file as YAML's tree of nodes, which have lines (JSON is YAML, too); None if it cannot be read as such."""
    import yaml

    if not _is_short(source):
        return None
    try:
        top = yaml.compose(read_text(source), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UsageError, ValueError, RecursionError):  # the error is then reported without lines
        return None
    return top if isinstance(top, yaml.MappingNode) else None


def _is_short(source: str) -> bool:
    if isinstance(source, Given):
        return len(source.text) <= LARGEST
    path = Path(source.removeprefix(HERE))
    return is_regular_file(path) and path.stat().st_size <= LARGEST


def _line(node: Any, path: Steps) -> int:
    for step in path:
        inner = _inside(node, step)
        node = node if inner is None else inner
    return node.start_mark.line + 1


def _inside(node: Any, step: str | int) -> Any:
    """The node of a key or a position; None if there is none, such as for names of allowed types in a path."""
    import yaml

    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    return None
