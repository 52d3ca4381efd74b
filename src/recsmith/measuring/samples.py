"""Samples: the joint result of several visits of a case, the choice of the next visit, and steady samples as arrays.

The seconds of a sample are those of its fastest visit, forward and backward separately. Other users of a machine slow a
core down for milliseconds to minutes, and nothing makes it faster than it is. So a sample is visited until its two
fastest visits agree. A GPU that is timed by its own events has no such disturbance: there one visit is enough. Samples
of a block take turns, so that seconds pass between two visits of one sample. A sample is set aside if the probe was
slow during all of its visits as well (docs/decisions/0007).

Legend: N samples, P tables of all of them together, 17 bins by reads of a row (workloads/workload.py).
"""

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recsmith._types import Floats, Ints, noun
from recsmith.errors import UsageError
from recsmith.measuring.about import About, load_about
from recsmith.measuring.columns import ADDED, COMPUTE
from recsmith.measuring.folder import read_columns, whole_rows
from recsmith.measuring.parquet_parts import part_files, read_part
from recsmith.workloads.access import NUM_REUSE_BINS

BLOCK_SAMPLES = 20  # samples that take turns. Trade-off: more put visits further apart, and leave more open at the end
MOST_VISITS = 5  # of a sample. With 5, nine samples of ten have two that agree (measured: docs/decisions/0007)
AGREE_WITHIN = 0.05  # largest relative difference of a steady sample's two fastest visits: two samples of a
# case are then 1.6 % apart at the median (docs/decisions/0007)
SLOW_PROBE = 1.5  # times the usual best: a slower probe around all visits sets a sample aside. 1.25 loses samples and
# gains nothing, 2 adds some that do harm (measured on shipped:cpu, docs/decisions/0007)
USUAL_SHARE = 0.02  # share of probes that are faster than the usual best. Trade-off: smaller follows single lucky
# probes, larger takes slow minutes for usual ones; not tuned further

ENOUGH = {
    "cuda": 1
}  # visits of a steady sample, by hardware: of an H200 two were 0.3 % apart at the median, at most 4 %
VISITS = 2  # visits of a steady sample on other hardware

VISIT_COLUMNS = ("sample", "status", "forward_s", "backward_s", "probe_s")  # columns of a row that a schedule needs


class Visit(NamedTuple):
    """Seconds of a visit, and of the probe around it."""

    forward_s: float
    backward_s: float
    probe_s: float


@noun
class KernelSample:
    """A sample, as judged by its visits.

    status: ok (the two fastest visits agree within AGREE_WITHIN); slowed (they do, but all probes were slow); unsteady
        (after MOST_VISITS they still do not agree); open (it will be visited again); or what ended it: out_of_memory,
        failed, interrupted.
    forward_s, backward_s: the fastest; None if no visit has any. apart: second fastest visit / fastest - 1, forward
        and backward together; None with fewer than two. probe_s: the fastest probe of its visits.
    """

    sample: int
    visits: int
    status: str
    forward_s: float | None = None
    backward_s: float | None = None
    apart: float | None = None
    probe_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether the sample needs no further visit."""
        return self.status != "open"


def judge(sample: int, visits: Sequence[Visit], last: str = "ok", enough: int = VISITS) -> KernelSample:
    """The sample as its visits show it. last: status of the last visit, which is in `visits` only if it is ok."""
    totals = sorted(visit.forward_s + visit.backward_s for visit in visits)
    apart = totals[1] / totals[0] - 1 if len(totals) > 1 else None
    if last != "ok":
        status = last
    elif len(totals) >= enough and (apart is None or apart <= AGREE_WITHIN):
        status = "ok"
    else:
        status = "open" if len(totals) < MOST_VISITS else "unsteady"
    return KernelSample(
        sample=sample, visits=len(visits) + (last != "ok"), status=status, apart=apart,
        forward_s=min((visit.forward_s for visit in visits), default=None),
        backward_s=min((visit.backward_s for visit in visits), default=None),
        probe_s=min((visit.probe_s for visit in visits), default=None),
    )  # fmt: skip


class Schedule:
    """All samples of a run so far, and the choice of the next visit.

    Blocks of BLOCK_SAMPLES samples follow each other; within a block, the sample with the fewest visits comes first.
    enough: fewest visits of a steady sample.
    """

    def __init__(self, enough: int = VISITS) -> None:
        self._enough = enough
        self._visits: dict[int, list[Visit]] = {}
        self._samples: dict[int, KernelSample] = {}
        self._agreed: list[float] = []  # probes of samples whose visits agree, the fastest first
        self._probes: list[float] = []  # probes of all visits, the fastest first
        self._block = 0  # first sample of the block whose samples take turns

    def note(self, sample: int, status: str, visit: Visit | None) -> KernelSample:
        """Add a visit; returns the sample as judged by all its visits. visit: None if it failed."""
        visits = self._visits.setdefault(sample, [])
        if visit:
            visits.append(visit)
            insort(self._probes, visit.probe_s)
        judged = self._samples[sample] = judge(sample, visits, status, self._enough)
        if judged.status == "ok" and judged.probe_s is not None:
            insort(self._agreed, judged.probe_s)
        return judged

    @property
    def steady(self) -> int:
        """Number of samples that are ok, judged by the probes up to now."""
        return bisect_right(self._agreed, self._slowest_probe)

    @property
    def _slowest_probe(self) -> float:
        return SLOW_PROBE * self._probes[int(USUAL_SHARE * len(self._probes))] if self._probes else 0.0

    @property
    def next(self) -> tuple[int, int]:
        """The next (sample, visit)."""
        while True:
            block = range(self._block, self._block + BLOCK_SAMPLES)
            waiting = [(self._count(sample), sample) for sample in block if not self._over(sample)]
            if waiting:
                visit, sample = min(waiting)
                return sample, visit
            self._block += BLOCK_SAMPLES

    def __iter__(self) -> Iterator[KernelSample]:
        """Samples in order of their places; those that were only measured in slow minutes have the status slowed."""
        limit = self._slowest_probe
        for _, sample in sorted(self._samples.items()):
            slowed = sample.status == "ok" and (sample.probe_s or 0.0) > limit
            yield replace(sample, status="slowed") if slowed else sample

    def _over(self, sample: int) -> bool:
        return sample in self._samples and self._samples[sample].over

    def _count(self, sample: int) -> int:
        return self._samples[sample].visits if sample in self._samples else 0


def schedule_of(columns: dict[str, list[Any]], hardware: str) -> Schedule:
    """The schedule of a run on some hardware so far, from columns VISIT_COLUMNS of its rows in order of positions."""
    schedule = Schedule(ENOUGH.get(hardware, VISITS))
    for sample, status, *seconds in zip(*(columns[name] for name in VISIT_COLUMNS), strict=True):
        schedule.note(sample, status, visit_of(*seconds))
    return schedule


def visit_of(forward_s: float | None, backward_s: float | None, probe_s: float | None) -> Visit | None:
    """The visit of a row; None if it failed."""
    return None if forward_s is None or backward_s is None else Visit(forward_s, backward_s, probe_s or 0.0)


Words = npt.NDArray[np.str_]
SAMPLE_COLUMNS = ("sample", "number", "optimizer", "data_type", "batch_size", "blocks", "tables")
TABLE_COLUMNS = ("rows", "dim", "pooling_factor", "zipf", "lookups", "unique_rows", "reuse_bins")
READ_COLUMNS = (*SAMPLE_COLUMNS, *TABLE_COLUMNS)
DTYPES = {"int64": np.int64, "float64": np.float64, "string": np.str_}
DTYPE = {column.name: DTYPES[column.type.removeprefix("list<").removesuffix(">")] for column in COMPUTE
         if column.name in READ_COLUMNS}  # fmt: skip


@noun
class Samples:
    """Steady samples in order of their places; tables start[i] to start[i + 1] are those of sample i.

    sample: place in the run (N,). number: of the case (N,); samples of one number are one case, measured twice.
    forward_s, backward_s: as in `KernelSample` (N,). optimizer, data_type: names (N,). batch_size: bags of every table
    (N,). blocks: number of row blocks of the larger tables, of which the tables are one block each; 1 for whole tables
    (N,). start: (N + 1,), from 0 to P. rows, dim, pooling_factor (ids per bag), zipf, lookups (ids), unique_rows: of
    each table (P,). reuse_bins: rows read 1, 2, 3-4, 5-8 ... > 32768 times (P, 17).
    """

    sample: Ints
    number: Ints
    forward_s: Floats
    backward_s: Floats
    optimizer: Words
    data_type: Words
    batch_size: Ints
    blocks: Ints
    start: Ints
    rows: Ints
    dim: Ints
    pooling_factor: Floats
    zipf: Floats
    lookups: Ints
    unique_rows: Ints
    reuse_bins: Ints

    def __len__(self) -> int:
        """Number of samples, N."""
        return len(self.sample)

    @property
    def owner(self) -> Ints:
        """Index of the sample of each table, 0 to N - 1 (P,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))


def read_samples(path: Path) -> Samples:
    """The steady samples of a folder, parts and journal; empty if the folder holds none.

    Raises:
        UsageError: the folder holds no compute measurements.
        CorruptFile: a part or the journal is damaged, or of another schema.
        MissingExtra: there are parts and no pyarrow.
    """
    about = load_about(path)
    if about.kind != "compute":
        raise UsageError(f"'{path}' holds {about}; samples are of `recsmith measure compute`")
    schedule = schedule_of(read_columns(path, VISIT_COLUMNS), about.hardware)
    steady = {each.sample: each for each in schedule if each.status == "ok"}
    pieces = list(_pieces(path, about, np.array(list(steady), dtype=np.int64)))
    found = {name: np.concatenate([piece[name] for piece in pieces]) for name in READ_COLUMNS}
    seconds = [(steady[sample].forward_s, steady[sample].backward_s) for sample in found["sample"].tolist()]
    forward, backward = np.array(seconds, dtype=np.float64).reshape(-1, 2).T
    start = np.concatenate([[0], np.cumsum(found.pop("tables"))])
    bins = found.pop("reuse_bins").reshape(-1, NUM_REUSE_BINS)
    return Samples(forward_s=forward, backward_s=backward, start=start, reuse_bins=bins, **found)


def _pieces(path: Path, about: About, steady: Ints) -> Iterator[dict[str, Any]]:
    """READ_COLUMNS of the first visit of each steady sample, table by table: of each part, then of the journal."""
    for part in part_files(path):
        table = read_part(part, about, [*READ_COLUMNS, "visit"])
        first_visits = table.filter((table["visit"].to_numpy() == 0) & np.isin(table["sample"].to_numpy(), steady))
        flat = {name: first_visits[name].combine_chunks() for name in READ_COLUMNS}
        yield _arrays(flat | {name: flat[name].flatten() for name in TABLE_COLUMNS})
    known = set(steady.tolist())
    rows = [row for row in whole_rows(path, [*READ_COLUMNS, "visit"]) if row["visit"] == 0 and row["sample"] in known]
    columns = {name: [row.get(name, ADDED.get(name)) for row in rows] for name in READ_COLUMNS}
    yield _arrays(columns | {name: [value for values in columns[name] for value in values] for name in TABLE_COLUMNS})


def _arrays(columns: dict[str, Any]) -> dict[str, Any]:
    """NumPy arrays of columns, each of its column's type."""
    return {name: np.array(values, dtype=DTYPE[name]) for name, values in columns.items()}
