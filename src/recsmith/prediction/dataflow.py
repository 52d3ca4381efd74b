"""Reads an execution graph of PyTorch's ExecutionTraceObserver: which operator first uses what a collective made."""

from pathlib import Path
from typing import Any, cast

from recsmith.errors import CorruptFile
from recsmith.files import read_text
from recsmith.files.parsing import parse_json

KNOWN = "1.1."  # versions of the schema, before '-chakra...': of torch 2.5 and later
ISSUING = "c10d::"  # begins the operators that start a collective; their first input is what it writes
LANE = "gloo:"


def first_uses(path: Path) -> dict[int, int]:
    """For each operator that starts a collective, the operator that first uses what it writes: records of both.

    A record is the number that the trace calls 'Record function id'. Collectives whose result no operator uses are
    left out.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: it is cut short, or of another version of PyTorch.
    """
    source = str(path)
    raw: Any = parse_json(read_text(source), source)
    schema, nodes = (raw.get("schema"), raw.get("nodes")) if isinstance(raw, dict) else (None, None)
    if not isinstance(schema, str) or not schema.startswith(KNOWN) or not isinstance(nodes, list):
        raise CorruptFile(
            f"'{path}' is no execution graph that is known here (schema {schema!r}, known is {KNOWN}x); "
            "capture it again with torch 2.5 or later"
        )
    try:
        return _uses(cast(list[dict[str, Any]], nodes))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise CorruptFile(f"'{path}' is damaged: a node has no {error}; capture it again") from None


def _uses(nodes: list[dict[str, Any]]) -> dict[int, int]:
    ordered = sorted((node for node in nodes if _record(node) > 0), key=_record)
    under = {node["id"]: node["ctrl_deps"] for node in nodes}
    open_: dict[int, tuple[int, int]] = {}  # storage: (record, id) of the operator that started what writes it
    uses: dict[int, int] = {}
    for node in ordered:
        name, values = node["name"], node["inputs"]["values"]
        if open_ and not name.startswith(LANE):
            for storage in _storages(values):
                if storage in open_ and not _within(node["id"], open_[storage][1], under):
                    uses.setdefault(open_.pop(storage)[0], _record(node))
        if name.startswith(ISSUING) and values:
            open_ |= {storage: (_record(node), node["id"]) for storage in _storages(values[:1])}
    return uses


def _within(node: int, outer: int, under: dict[int, int]) -> bool:
    """Whether a node runs inside another one."""
    while node in under and under[node] != node:
        node = under[node]
        if node == outer:
            return True
    return False


def _record(node: dict[str, Any]) -> int:
    return next((int(each["value"]) for each in node["attrs"] if each["name"] == "rf_id"), -1)


def _storages(values: Any) -> list[int]:
    """Storages of all tensors of nested inputs; a tensor is [tensor, storage, offset, elements, bytes, device]."""
    if not isinstance(values, list):
        return []
    items = cast(list[Any], values)
    if len(items) == 6 and isinstance(items[5], str) and all(isinstance(each, int) for each in items[:5]):
        return [int(items[1])]
    return [storage for each in items for storage in _storages(each)]
