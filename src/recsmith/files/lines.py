"""Lines of a file that its values stand in, for errors: the file is read again once something is wrong."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsmith.errors import UsageError
from recsmith.files.given import Given
from recsmith.files.texts import is_regular_file, read_text

LARGEST = 2**20  # bytes of a file in which lines are looked for; larger ones take seconds

Steps = Sequence[str | int]  # keys and positions, from the top


def lines_of(source: str, paths: Sequence[Steps]) -> list[int | None]:
    """The line of each path's value, or of the innermost one around it; None where it cannot be told.

    It cannot be told of standard input, large files, and what is neither YAML nor JSON.
    """
    top = _top(source)
    return [None if top is None else _line(top, path) for path in paths]


def exact_line(source: str, path: Steps) -> int | None:
    """The line of a path's value; None where the file has no such value, or lines cannot be told."""
    node = _top(source)
    for step in path:
        node = None if node is None else _inside(node, step)
    return None if node is None else node.start_mark.line + 1


def _top(source: str) -> Any:
    """The file as YAML's tree of nodes, which know their lines; JSON is YAML too."""
    import yaml

    if not _is_short(source):
        return None
    try:
        top = yaml.compose(read_text(source), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, UsageError, ValueError, RecursionError):  # then the error is told without lines
        return None
    return top if isinstance(top, yaml.MappingNode) else None


def _is_short(source: str) -> bool:
    if isinstance(source, Given):
        return len(source.text) <= LARGEST
    return is_regular_file(Path(source)) and Path(source).stat().st_size <= LARGEST


def _line(node: Any, path: Steps) -> int:
    for step in path:
        inner = _inside(node, step)
        node = node if inner is None else inner
    return node.start_mark.line + 1


def _inside(node: Any, step: str | int) -> Any:
    """The node of a key or a position; None where there is none, as for names of allowed types in a path."""
    import yaml

    if isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        return node.value[step] if step < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    return None
