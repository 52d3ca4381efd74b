"""Reads `name: meaning` entries, which describe fields and settings, from docstrings."""

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any


def meanings(noun: Any) -> dict[str, str]:
    """Field name -> its meaning, from the docstring of a noun (a frozen dataclass)."""
    return said_of(noun.__doc__ or "", [each.name for each in fields(noun)])


def said_of(text: str, names: Sequence[str]) -> dict[str, str]:
    """Name -> its meaning in a docstring, for the given names: `name: meaning`, or `name, name: meaning` for several.

    A meaning ends where the next entry begins, or at the end of its paragraph.
    """
    if not names:
        return {}
    every = "|".join(map(re.escape, names))
    found: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        parts = re.split(rf"(?:^|(?<=[.)] ))((?:(?:{every})(?:, )?)+): ", line)
        for keys, meaning in zip(parts[1::2], parts[2::2], strict=True):
            found |= {key: meaning.strip() for key in keys.split(", ") if key not in found}
    return found
