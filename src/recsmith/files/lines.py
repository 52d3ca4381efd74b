"""Reads files line by line: JSON lines to which a running program appends, such as a job's log, and text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from recsmith.errors import CorruptFile
from recsmith.files.texts import check_is_file

LONGEST_LINE = 2**24  # most bytes of a line; a longer one is damaged


def json_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each line with its JSON object; None in place of the object if the line is half written or damaged.

    Raises:
        UsageError: there is no such file, or it is a pipe, a folder or a device.
    """
    check_is_file(path)
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                    pass
                yield b"", None
            else:
                yield line, _object(line)


def text_lines(file: IO[str], source: object) -> Iterator[str]:
    """The lines of a text, with their line ends. source: its file, for the error.

    Raises:
        CorruptFile: a line is longer than any line of data; the rest of it is not read.
    """
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE and not line.endswith("\n"):
            raise CorruptFile(
                f"'{source}' line {number:,} has more than {LONGEST_LINE:,} characters, as no line of data has; fetch "
                "the file again"
            )
        yield line


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None
