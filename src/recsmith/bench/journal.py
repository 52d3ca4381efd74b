"""The folder of a benchmark run, from which an interrupted run continues.

    settings.json            the settings of the run; written first
    journal.jsonl            a checked line for every planner's attempt at a task, every bound, and every visit

One process writes at a time. A line is complete or absent: a killed run loses only the attempt, or the visit, that was
under way.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from recsmith._types import Floats, noun
from recsmith.bench.plans import Attempt
from recsmith.bench.tasks import Family, parse_family_rows
from recsmith.errors import UsageError
from recsmith.files import Raw, decode, dump_json, encode, read_raw, write_text
from recsmith.measuring.folder import lock_folder
from recsmith.measuring.journal import Journal, Row, read_journal

JOURNAL = "the journal"  # its name in errors
MOST_S = 1e9  # seconds of anything that is measured: thirty years
MOST_VISITS = 2**31


@noun
class MeasuredVisit:
    """Seconds of a task's plans in one visit, by planner. kernels: of each rank (W, 2), forward and backward.

    comm: of each rank's collectives (W, 2), forward and backward. probe_s: the hardware's probe, the median of the
    visit. elapsed_s: of measuring, wall clock.
    """

    task: str
    visit: int
    kernels: dict[str, Floats]
    comm: dict[str, Floats]
    probe_s: float
    device: str
    versions: str
    date: str
    elapsed_s: float


@noun
class RawAttempt:
    """A planner's attempt at a task, as a line of the journal."""

    task: str
    attempt: Attempt

    def __post_init__(self) -> None:
        """Check seconds."""
        _check_seconds([self.attempt.plan_s], "plan_s")


@noun
class RawBound:
    """A bound of a task, as a line of the journal."""

    task: str
    bound_s: float

    def __post_init__(self) -> None:
        """Check seconds."""
        _check_seconds([self.bound_s], "bound_s")


def _check_seconds(seconds: Iterable[float], what: str) -> None:
    odd = next((each for each in seconds if not 0 <= each < MOST_S), None)
    if odd is not None:
        raise UsageError(f"{what} is {odd:g}; seconds are at least 0 and below {MOST_S:g}")


@noun
class _RawVisit:
    """A MeasuredVisit, as a line of the journal."""

    task: str
    visit: int
    kernels: dict[str, list[tuple[float, float]]]
    comm: dict[str, list[tuple[float, float]]]
    probe_s: float
    device: str
    versions: str
    date: str
    elapsed_s: float

    def __post_init__(self) -> None:
        """Check seconds, that there is a rank, the planners, and the number of the visit."""
        for name in ("kernels", "comm"):
            for planner, ranks in getattr(self, name).items():
                _check_seconds(chain.from_iterable(ranks), f"{name} of '{planner}'")
                if not ranks:
                    raise UsageError(f"{name} of '{planner}' has no rank; it must have one or more")
        _check_seconds((self.probe_s, self.elapsed_s), "probe_s or elapsed_s")
        if self.kernels.keys() != self.comm.keys() or not 0 <= self.visit < MOST_VISITS:
            raise UsageError(
                f"visit is {self.visit}, and kernels and comm name planners; the same ones, from visit 0 on"
            )


def visit_to_raw(measured: MeasuredVisit) -> Raw:
    """A visit as a line of the journal."""
    raw: Raw = {name: getattr(measured, name) for name in MeasuredVisit.__dataclass_fields__}
    for name in ("kernels", "comm"):
        raw[name] = {planner: seconds.tolist() for planner, seconds in raw[name].items()}
    return raw


def visit_from_raw(raw: object) -> MeasuredVisit:
    """The visit of a line; CorruptFile if a field is wrong."""
    line = decode(_RawVisit, raw, JOURNAL)
    fields = {name: getattr(line, name) for name in MeasuredVisit.__dataclass_fields__}
    for name in ("kernels", "comm"):
        fields[name] = {planner: np.array(seconds) for planner, seconds in fields[name].items()}
    return MeasuredVisit(**fields)


SCHEMA = "recsmith/bench-sharding/1"  # schema of the settings
SETTINGS_FILE = "settings.json"
FIELDS = ({"task", "attempt"}, {"task", "bound_s"}, {"measured"})  # keys of the journal's lines


@noun
class BenchSettings:
    """Settings of a run; two runs of the same settings differ only in their measured times.

    rows: of the table, such as 4x32. tasks: of each row. visits: of every task. global_batch: samples of all devices.
    family: of the tasks; a run of learned planners also stores bounds of some.
    """

    hardware: str
    cost_model: str
    rows: tuple[str, ...]
    tasks: int
    planners: tuple[str, ...]
    visits: int
    seed: int
    global_batch: int
    family: Family = "sharding"

    def __post_init__(self) -> None:
        """Check counts and names; put rows in order."""
        for what in ("tasks", "visits", "global_batch"):
            if getattr(self, what) < 1:
                raise UsageError(f"{what} is {getattr(self, what)}; a run needs at least 1")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed is {self.seed}; it must be at least 0 and below 2^63")
        twin = next((planner for planner in self.planners if self.planners.count(planner) > 1), None)
        if twin is not None or not self.planners:
            raise UsageError(f"planners name '{twin or 'nobody'}'; name one or more, each once")
        object.__setattr__(self, "rows", tuple(map(str, parse_family_rows(self.family, self.rows))))


class RunStore:
    """An open folder: attempts by (task, planner), bounds in seconds by task, measured visits by (task, visit)."""

    def __init__(self, path: Path) -> None:
        rows = read_journal(path, _line_trouble)
        self._journal = Journal(path)
        self.attempts: dict[tuple[str, str], Attempt] = {}
        self.measured: dict[tuple[str, int], MeasuredVisit] = {}
        self.bounds: dict[str, float] = {}
        for row in rows:
            self._take(row)

    def add_attempt(self, task: str, attempt: Attempt) -> None:
        """Write a planner's attempt at a task."""
        self._write({"task": task, "attempt": encode(attempt)})

    def add_bound(self, task: str, bound_s: float) -> None:
        """Write the lower bound on a task's plans under the run's cost model; 0 if the model proves none."""
        self._write({"task": task, "bound_s": bound_s})

    def add_visit(self, measured: MeasuredVisit) -> None:
        """Write the measurements of a visit."""
        self._write({"measured": visit_to_raw(measured)})

    def _write(self, row: Row) -> None:
        self._journal.write(row)
        self._take(row)

    def _take(self, row: Row) -> None:
        if "attempt" in row:
            line = decode(RawAttempt, row, JOURNAL)
            self.attempts[line.task, line.attempt.planner] = line.attempt
        elif "bound_s" in row:
            bound = decode(RawBound, row, JOURNAL)
            self.bounds[bound.task] = bound.bound_s
        else:
            measured = visit_from_raw(row["measured"])
            self.measured[measured.task, measured.visit] = measured


def _line_trouble(line: Row) -> str:
    """What is wrong with the keys of a journal's line; '' if nothing is. Its objects are checked when decoded."""
    return "" if set(line) in FIELDS else "it is no attempt, no bound and no visit"


@contextmanager
def open_run_store(path: Path, settings: BenchSettings) -> Generator[RunStore]:
    """Open a folder for writing; it is made if need be.

    Raises:
        UsageError: it is of other settings, or another process writes to it.
        CorruptFile: its journal is damaged.
    """
    with lock_folder(path):
        _check_settings(path, settings)
        yield RunStore(path)


def _check_settings(path: Path, settings: BenchSettings) -> None:
    """Write the settings into an empty folder, or check that they are the same; more visits may be added."""
    file = path / SETTINGS_FILE
    if file.exists():
        found = load_settings(path)
        if settings.visits < found.visits or replace(found, visits=settings.visits) != settings:
            raise UsageError(f"'{path}' holds a run with {_differences(found, settings)}; give another folder")
    else:
        foreign = sorted(entry.name for entry in path.iterdir())
        if foreign:
            raise UsageError(f"'{path}' holds '{foreign[0]}' and no {SETTINGS_FILE}; give a new or an empty folder")
    write_text(str(file), dump_json({"schema": SCHEMA, **encode(settings)}))


def load_settings(path: Path) -> BenchSettings:
    """The settings of a folder."""
    source = str(path / SETTINGS_FILE)
    return decode(BenchSettings, read_raw(source, SCHEMA), source)


def _differences(found: BenchSettings, wanted: BenchSettings) -> str:
    """Differences of another run's settings, in words."""
    names = [name for name in BenchSettings.__dataclass_fields__ if getattr(found, name) != getattr(wanted, name)]
    return " and ".join(
        f"{name} {_shown(getattr(found, name))} instead of {_shown(getattr(wanted, name))}" for name in names
    )


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
