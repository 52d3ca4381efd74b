"""The store of a benchmark run: a folder from which a run that was ended goes on.

    settings.json            what is run; written first
    journal.jsonl            a line for every planner's attempt at a task, and for every visit of a task

One process writes at a time. A line is whole or not there: a run that is killed loses the attempt, or the visit, that
was under way.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from recsmith._types import noun
from recsmith.bench.families import Family, parse_family_rows
from recsmith.bench.journal_lines import JOURNAL, MeasuredVisit, RawAttempt, RawBound, visit_from_raw, visit_to_raw
from recsmith.bench.plans import Attempt
from recsmith.errors import UsageError
from recsmith.files import decode, dump_json, encode, read_raw, write_text
from recsmith.measuring.folder_lock import lock_folder
from recsmith.measuring.journal import Journal, Row, read_journal

SCHEMA = "recsmith/bench-sharding/1"  # of the settings
SETTINGS_FILE = "settings.json"
FIELDS = ({"task", "attempt"}, {"task", "bound_s"}, {"measured"})  # of the journal's lines


@noun
class BenchSettings:
    """What a run does; two runs of the same settings differ only in the times that are measured.

    rows: of the table, such as 4x32. tasks: of each row. visits: of every task. global_batch: samples of all devices.
    family: of the tasks; a run of learned planners also keeps bounds of some.
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
        twin = next((word for word in self.planners if self.planners.count(word) > 1), None)
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
        """Write what no plan of a task goes below, by the run's cost model; 0 where it proves nothing."""
        self._write({"task": task, "bound_s": bound_s})

    def add_visit(self, measured: MeasuredVisit) -> None:
        """Write what a visit measured."""
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
    """What is wrong with a line of the journal; what its objects hold is checked where they are decoded."""
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
    """What another run has instead, in words."""
    names = [name for name in BenchSettings.__dataclass_fields__ if getattr(found, name) != getattr(wanted, name)]
    return " and ".join(
        f"{name} {_word(getattr(found, name))} instead of {_word(getattr(wanted, name))}" for name in names
    )


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
