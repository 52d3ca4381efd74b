"""Reads PyTorch's files of a rank: when each thread did what, and which operator first uses a collective's result.

The trace is torch.profiler's (Kineto's Chrome JSON, also gzipped), the execution graph ExecutionTraceObserver's.
"""

import gzip
import json
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from recsmith._types import record
from recsmith.errors import CorruptFile
from recsmith.files import LARGEST_FILE, read_bytes, read_json

MICRO = 1e-6  # seconds of a unit of Chrome's times
STEP = "ProfilerStep#"
KNOWN_SCHEMA = 1  # Kineto's schemaVersion
LATEST, LONGEST = 1e18, 1e12  # microseconds of a time and of a duration: beyond those of any machine
ODD = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What reading raises where a field is missing, or of another type than PyTorch writes."""


class TraceSpan(NamedTuple):
    """A stretch of a thread: an operator, an annotation, or a collective of gloo. begin, end: seconds.

    record: number of the operator in the execution graph. dims, strides, types, values: those of the operator's inputs.
    """

    name: str
    begin: float
    end: float
    thread: str
    record: int
    dims: list[Any]
    strides: list[Any]
    types: list[str]
    values: list[str]


@record
class Trace:
    """The trace of a rank. steps: steps of the profiler. operators: of all threads, by start time, outer ones first.

    annotations: stretches that optimizers and other code name. collectives: runs of gloo on its own threads. device:
    events of a GPU and of its runtime, as they are in the file.
    """

    source: str
    rank: int
    ranks: int
    steps: tuple[TraceSpan, ...]
    operators: tuple[TraceSpan, ...]
    annotations: tuple[TraceSpan, ...]
    collectives: tuple[TraceSpan, ...]
    device: tuple[dict[str, Any], ...]


def load_trace(path: Path) -> Trace:
    """The trace in a file.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: it is cut short or damaged, no trace of torch.profiler, holds no whole step, or steps overlap.
    """
    raw = _parsed(path)
    events = raw.get("traceEvents")
    if not isinstance(events, list) or raw.get("schemaVersion") != KNOWN_SCHEMA:
        raise CorruptFile(
            f"'{path}' is no trace that is known here (schemaVersion {raw.get('schemaVersion')}, known is "
            f"{KNOWN_SCHEMA}); capture it with torch 2.x: recsmith capture -o FOLDER -- COMMAND"
        )
    whole = [cast(dict[str, Any], each) for each in cast(list[Any], events)
             if isinstance(each, dict) and cast(dict[str, Any], each).get("ph") == "X"]  # fmt: skip
    try:
        return _trace(str(path), raw, whole)
    except ODD as error:
        raise CorruptFile(f"'{path}' is damaged: {damage_of('an event', error)}; capture it again") from None


def _trace(source: str, raw: dict[str, Any], events: list[dict[str, Any]]) -> Trace:
    spans = {each: [span_of(event) for event in events if event.get("cat") == each]
             for each in ("cpu_op", "user_annotation")}  # fmt: skip
    operators = sorted(spans["cpu_op"], key=lambda span: (span.begin, -span.end))
    steps = sorted((span for span in spans["user_annotation"] if span.name.startswith(STEP)), key=lambda s: s.begin)
    if not steps or not operators:
        raise CorruptFile(
            f"'{source}' holds {len(steps)} steps and {len(operators)} operators; capture whole steps: call the "
            "profiler's step(), or use recsmith capture"
        )
    overlap = next((later for earlier, later in pairwise(steps) if later.begin < earlier.end - MICRO), None)
    if overlap:
        raise CorruptFile(
            f"'{source}' is damaged: {overlap.name} begins before the step before it has ended; capture it again"
        )
    named = tuple(span for span in spans["user_annotation"] if not span.name.startswith(("gloo:", STEP)))
    gloo = sorted((span for span in spans["user_annotation"] if span.name.startswith("gloo:")), key=lambda s: s.begin)
    info = raw.get("distributedInfo") or {}
    device = [event for event in events
              if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver")]  # fmt: skip
    return Trace(source=source, rank=int(info.get("rank", 0)), ranks=int(info.get("world_size", 1)), steps=tuple(steps),
                 operators=tuple(operators), annotations=named, collectives=tuple(gloo),
                 device=tuple(device))  # fmt: skip


def damage_of(what: str, error: Exception) -> str:
    """What is wrong with an event or a node, from the error that reading it raised (one of ODD)."""
    return f"{what} has no {error}" if isinstance(error, KeyError) else f"a field of {what} is wrong ({error})"


def span_of(event: dict[str, Any]) -> TraceSpan:
    """An event as a stretch of its thread; raises one of ODD if a field is missing or wrong."""
    begin, arguments = seconds_of(event, "ts", -LATEST, LATEST), event.get("args") or {}
    end = begin + seconds_of(event, "dur")
    dims, strides = (_extents(arguments.get(name) or [], name) for name in ("Input Dims", "Input Strides"))
    return TraceSpan(
        str(event["name"]), begin, end, str(event["tid"]), int(arguments.get("Record function id", -1)), dims, strides,
        [str(each) for each in _listed(arguments, "Input type")],
        [str(each) for each in _listed(arguments, "Concrete Inputs")],
    )  # fmt: skip


def seconds_of(event: dict[str, Any], name: str, least: float = 0.0, most: float = LONGEST) -> float:
    """A time of an event in seconds; the event has it in microseconds."""
    value = event[name]
    if isinstance(value, str):
        raise ValueError(f"{name} is the text {value[:40]!r}, and it must be a number of microseconds")
    if not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} is {str(value)[:40]!r}, and it is microseconds from {least:g} to {most:g}")
    return value * MICRO


def _listed(arguments: dict[str, Any], name: str) -> list[Any]:
    value = arguments.get(name) or []
    if not isinstance(value, list):
        raise ValueError(f"{name} is {str(value)[:40]!r} and no list")
    return cast(list[Any], value)


def _extents(value: Any, name: str) -> list[Any]:
    """Dims or strides of inputs: nested lists of whole numbers; those of a list of tensors are one level deeper."""
    if not isinstance(value, list):
        raise ValueError(f"{name} holds {str(value)[:40]!r}, and it is lists of whole numbers")
    for each in cast(list[Any], value):
        if not isinstance(each, int) or each < 0:
            _extents(each, name)
    return cast(list[Any], value)


def _parsed(path: Path) -> dict[str, Any]:
    data = bytes(read_bytes(path))
    try:
        if data[:2] == b"\x1f\x8b":
            stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
            data = stream.decompress(data, LARGEST_FILE)
            if not stream.eof:
                raise EOFError
        raw: object = json.loads(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise CorruptFile(f"'{path}' is cut short, or larger than 512 MiB; capture fewer steps, to their end") from None
    except (ValueError, RecursionError) as error:
        raise CorruptFile(f"'{path}' is cut short or no JSON ({str(error)[:80]}); capture it again") from None
    if not isinstance(raw, dict):
        raise CorruptFile(f"'{path}' is no trace of torch.profiler; capture one with recsmith capture")
    return cast(dict[str, Any], raw)


KNOWN = "1.1."  # versions of the schema, before '-chakra...': those of torch 2.5 and later
ISSUING = "c10d::"  # prefix of the operators that start a collective; their first input is the tensor that it writes
LANE = "gloo:"


def first_uses(path: Path) -> dict[int, int]:
    """For each operator that starts a collective, the operator that first uses its result: both by record.

    A record is the number that the trace calls 'Record function id'. Collectives whose result no operator uses are left
    out.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: it is cut short or damaged, or of another version of PyTorch.
    """
    source = str(path)
    raw: Any = read_json(source)
    schema, nodes = (raw.get("schema"), raw.get("nodes")) if isinstance(raw, dict) else (None, None)
    if not isinstance(schema, str) or not schema.startswith(KNOWN) or not isinstance(nodes, list):
        raise CorruptFile(
            f"'{path}' is no execution graph that is known here (schema {schema!r}, known is {KNOWN}x); "
            "capture it again with torch 2.5 or later"
        )
    try:
        return _uses(cast(list[dict[str, Any]], nodes))
    except ODD as error:
        raise CorruptFile(f"'{path}' is damaged: {damage_of('a node', error)}; capture it again") from None


def _uses(nodes: list[dict[str, Any]]) -> dict[int, int]:
    ordered = sorted((node for node in nodes if _record(node) > 0), key=_record)
    under = {node["id"]: node["ctrl_deps"] for node in nodes}
    open_: dict[int, tuple[int, int]] = {}  # storage: (record, id) of the operator that started its collective
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
    seen: set[int] = set()
    while node in under and node not in seen:
        seen.add(node)
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
