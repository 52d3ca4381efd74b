"""Files of a folder in the order in which they were numbered."""

import re
from collections.abc import Iterable
from pathlib import Path

_NUMBER = re.compile(r"([0-9]+)")


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Paths in the order of their names, in which numbers count as numbers: part-2 before part-10, day_2 before day_10.

    Every reader of a folder takes its files so: what was numbered as it came is read as it came.
    """
    return sorted(paths, key=_order)


def _order(path: Path) -> tuple[list[list[tuple[int, str]]], str]:
    """Text and numbers of each part of a path by turns; (0, text), or (number, '') behind a text."""
    words = [enumerate(_NUMBER.split(part)) for part in path.parts]
    return [[(int(word), "") if at % 2 else (0, word) for at, word in each] for each in words], str(path)
