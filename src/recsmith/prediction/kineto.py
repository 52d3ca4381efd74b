"""Reads a trace of torch.profiler (Kineto's Chrome JSON, also gzipped): what each thread of a rank did, and when."""

import gzip
import json
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

from recsmith._types import record
from recsmith.errors import CorruptFile
from recsmith.files import LARGEST_FILE, read_bytes

MICRO = 1e-6  # seconds of Chrome's unit
STEP = "ProfilerStep#"
KNOWN_SCHEMA = 1  # Kineto's schemaVersion


class Span(NamedTuple):
    """A stretch of a thread: of an operator, an annotation, or a collective of gloo. begin, end: seconds.

    record: number of the operator in the execution graph. dims, strides, types, values: of its inputs.
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
    """What a rank did. steps: of the profiler. operators: of all threads, by their begin, outer ones first.

    annotations: stretches that optimizers and others name. collectives: runs of gloo on its own threads. device:
    events of a GPU and of its runtime, as they are in the file.
    """

    source: str
    rank: int
    ranks: int
    steps: tuple[Span, ...]
    operators: tuple[Span, ...]
    annotations: tuple[Span, ...]
    collectives: tuple[Span, ...]
    device: tuple[dict[str, Any], ...]


def load_trace(path: Path) -> Trace:
    """The trace of a file.

    Raises:
        UsageError: the file cannot be read.
        CorruptFile: it is cut short, no trace of torch.profiler, or holds no whole step, or steps that overlap.
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
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise CorruptFile(f"'{path}' is damaged: an event has no {error}; capture it again") from None


def _trace(source: str, raw: dict[str, Any], events: list[dict[str, Any]]) -> Trace:
    spans = {each: [_span(event) for event in events if event.get("cat") == each]
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
    told = raw.get("distributedInfo") or {}
    device = [event for event in events
              if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver")]  # fmt: skip
    return Trace(source=source, rank=int(told.get("rank", 0)), ranks=int(told.get("world_size", 1)), steps=tuple(steps),
                 operators=tuple(operators), annotations=named, collectives=tuple(gloo),
                 device=tuple(device))  # fmt: skip


def _span(event: dict[str, Any]) -> Span:
    begin, words = float(event["ts"]) * MICRO, event.get("args") or {}
    return Span(
        str(event["name"]), begin, begin + float(event.get("dur", 0)) * MICRO, str(event["tid"]),
        int(words.get("Record function id", -1)), words.get("Input Dims") or [], words.get("Input Strides") or [],
        words.get("Input type") or [], [str(value) for value in words.get("Concrete Inputs") or []],
    )  # fmt: skip


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
