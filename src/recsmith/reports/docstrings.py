"""What docstrings say of fields and settings: `name: meaning`, one after the other."""

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any


def meanings(noun: Any) -> dict[str, str]:
    """What the docstring of a noun says of each field."""
    return said_of(noun.__doc__ or "", [each.name for each in fields(noun)])


def said_of(text: str, names: Sequence[str]) -> dict[str, str]:
    """What a docstring says of each of these names: `name: meaning`, or `name, name: meaning` of several.

    A meaning ends where the next one begins, or with its paragraph.
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
