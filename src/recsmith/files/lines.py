"""Files that are read line by line: JSON lines that a program adds to while it runs, such as a job's log, and text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from recsmith.errors import CorruptFile
from recsmith.files.texts import check_is_file

LONGEST_LINE = 2**24  # bytes; a longer line is damage


def json_lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Each line with the object that it holds; None where it was half written, or is damaged.

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
    """The lines of a text, with their ends. source: its file, for the error.

    Raises:
        CorruptFile: one is longer than any line of data; no more of it is read.
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
