"""Docstrings of RecSmith as reStructuredText, for the reference that Sphinx generates.

A docstring names parameters and fields where it speaks of them, `name: what it is`, also in the middle of a line. Here
each becomes an item of a list. `Raises:` is left to sphinx.ext.napoleon.
"""

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from itertools import takewhile
from typing import Any

SECTIONS = ("Raises:", "Returns:", "Yields:")
OUTSIDE_CODE = re.compile(r"(`[^`]*`)")


def as_rst(lines: list[str], item: Any) -> list[str]:
    """The docstring of an item as reStructuredText."""
    head = list(takewhile(lambda line: line.strip() not in SECTIONS, lines))
    told = [line for paragraph in _paragraphs(head) for line in _told(paragraph, names_of(item))]
    return told + [_escaped(line) for line in lines[len(head) :]]


def names_of(item: Any) -> set[str]:
    """Names of the fields of a class, or of the parameters of a function."""
    if is_dataclass(item):
        return {field.name for field in fields(item)}
    try:
        return set(inspect.signature(item).parameters)
    except (TypeError, ValueError):
        return set()


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    text = "\n".join(lines)
    yield from (" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip())


def _told(paragraph: str, names: set[str]) -> list[str]:
    """A paragraph, or a list of the names that it tells of."""
    starts = [
        found
        for found in re.finditer(r"(?:^|(?<=[.;] ))(\w+(?:, \w+)*): ", paragraph)
        if set(found[1].split(", ")) <= names
    ]
    if not starts:
        return [_escaped(paragraph), ""]
    before = paragraph[: starts[0].start()].strip()
    ends = [found.start() for found in starts[1:]] + [len(paragraph)]
    listed = [
        f"* ``{found[1].replace(', ', '``, ``')}``: {_escaped(paragraph[found.end() : end].strip())}"
        for found, end in zip(starts, ends, strict=True)
    ]
    return [_escaped(before), "", *listed, ""]


def _escaped(text: str) -> str:
    """Signs that would be markup, outside of code, where a pattern such as user_* means itself."""
    parts = OUTSIDE_CODE.split(text)
    return "".join(part if part.startswith("`") else re.sub(r"(?<!\\)([*|]|_\b)", r"\\\1", part) for part in parts)
