"""Reads the folder of a capture: the execution graph of all ranks, and notes for the reader."""

from collections import Counter
from pathlib import Path
from statistics import median

from recsmith._types import Source, record
from recsmith.errors import CorruptFile, UsageError
from recsmith.files import check_schema, decode, read_json
from recsmith.files.parsing import Raw
from recsmith.prediction.captures import ABOUT_SCHEMA, CaptureAbout, about_name, graph_name, trace_name
from recsmith.prediction.extraction import joined, rank_steps
from recsmith.prediction.graph import Graph
from recsmith.prediction.kineto import Trace, load_trace
from recsmith.units import counted, format_time

AGAIN = "capture it again: recsmith capture -o FOLDER -- COMMAND"
FAR = 200.0  # a trace this many times as long or short as a plain step is in a wrong unit: no profiler adds as much
HEAD = 2**16  # bytes at the start of a file, from which its format is recognised
GZIP, ENDINGS = b"\x1f\x8b", (".trace.json", ".trace.json.gz", ".graph.json", ".about.json")
MARKS = (b'"traceEvents"', b'"ctrl_deps"', b'"schemaVersion"')  # texts of Chrome's traces, and of execution graphs


VARIES = (
    "each step had other numbers of operators, as histories of other lengths do; the step whose shapes were recorded "
    "stands for all, scaled to the time of a step without the profiler"
)


@record
class Captured:
    """A captured step. notes: sentences about what was left out or is not known."""

    graph: Graph
    abouts: tuple[CaptureAbout, ...]
    notes: tuple[str, ...]


def load_capture(folder: Source) -> Captured:
    """The graph of a folder that `recsmith capture` wrote.

    Raises:
        UsageError: it is no such folder, ranks are missing, or ranks did different things.
        CorruptFile: a file is cut short, damaged, or of another version.
    """
    path = Path(folder)
    abouts = _abouts(path)
    ranks = [rank_steps(_trace(path, about), about, path / graph_name(about.rank)) for about in abouts]
    notes = [
        *_unknown_notes(sum((each.unknown for each in ranks), Counter())),
        *(f"{each.dropped} steps of rank {each.rank} did other work than its first one, and are left out"
          for each in ranks if each.dropped),
        *([VARIES] if any(each.varies for each in ranks) else []),
    ]  # fmt: skip
    return Captured(graph=joined(ranks, abouts), abouts=tuple(abouts), notes=tuple(notes))


def _trace(path: Path, about: CaptureAbout) -> Trace:
    """The trace of a rank; CorruptFile if its steps are far from the seconds that the capture reports."""
    trace = load_trace(path / trace_name(about.rank))
    traced = median(each.end - each.begin for each in trace.steps)
    if about.plain_step_s and not 1 / FAR < traced / about.plain_step_s < FAR:
        raise CorruptFile(
            f"'{trace.source}' has steps of {format_time(traced)}, and '{about_name(about.rank)}' says that they took "
            f"{format_time(about.plain_step_s)}; are its times in another unit than microseconds? {AGAIN}"
        )
    return trace


def is_capture(source: Source) -> bool:
    """Whether a path is a folder, and so a capture, complete or not, and no description of a model.

    Raises:
        UsageError: the path is one file of a capture, or another trace or execution graph of PyTorch.
    """
    path = Path(source)
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(HEAD)
        if head.startswith(GZIP) or any(mark in head for mark in MARKS) or path.name.endswith(ENDINGS):
            whole = (path.parent / about_name(0)).is_file()
            hint = f"give the folder that it is in: recsmith predict {path.parent}" if whole else AGAIN
            raise UsageError(
                f"'{path}' is one file of a rank (a trace or an execution graph), and a step is predicted from the "
                f"folder of a capture, which has both of every rank; {hint}"
            )
    return path.is_dir()


def _abouts(path: Path) -> list[CaptureAbout]:
    first = path / about_name(0)
    if not first.is_file():
        found = len(list(path.glob("*.trace.json*"))) if path.is_dir() else 0
        raise UsageError(f"'{path}' holds {found} traces and no whole capture of rank 0; {AGAIN}")
    ranks = _about(first).ranks
    missing = [rank for rank in range(ranks) if not (path / about_name(rank)).is_file()]
    if missing:
        raise UsageError(
            f"'{path}' lacks rank {missing[0]} of {ranks}{' and others' if missing[1:] else ''}; collectives end when "
            f"the last rank has come, so every rank must be there: {AGAIN}"
        )
    abouts = [_about(path / about_name(rank)) for rank in range(ranks)]
    for about in abouts:
        for name in (trace_name(about.rank), graph_name(about.rank)):
            if not (path / name).is_file():
                what = "execution graph, so nobody knows who waits for what" if "graph" in name else "trace"
                raise UsageError(f"'{path}' has no '{name}', its {what}; {AGAIN}")
    versions = sorted({about.torch for about in abouts})
    if len(versions) > 1 or any(about.ranks != ranks for about in abouts):
        raise UsageError(f"'{path}' mixes captures (torch {', '.join(versions)}); give each capture its own folder")
    return abouts


def _about(path: Path) -> CaptureAbout:
    source = str(path)
    raw = read_json(source)
    if not isinstance(raw, dict):
        raise CorruptFile(f"'{source}' holds no object; {AGAIN}")
    about: Raw = raw  # pyright: ignore[reportUnknownVariableType]
    return decode(CaptureAbout, check_schema(about, ABOUT_SCHEMA, source), source)


def _unknown_notes(unknown: Counter[str]) -> list[str]:
    if not unknown:
        return []
    names = ", ".join(f"{name} ({count})" for name, count in unknown.most_common(5))
    many = counted(len(unknown), "kind")
    return [f"{many} of operators not known here, priced by the bytes that they move: {names}"]
