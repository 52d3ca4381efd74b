"""Runs that measure: until when, and what is written down."""

import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.hardware import Case, Hardware, Measurement
from recsmith.measuring.cases import Cases
from recsmith.measuring.folder import NOTHING, PART, About, Folder, open_folder
from recsmith.measuring.journal import Row
from recsmith.measuring.parts import has_pyarrow, read_columns
from recsmith.measuring.samples import BLOCK, OF_VISIT, VISITS, schedule_of, visit_of, which


@noun
class Limit:
    """When a run ends: after budget_s, or once the folder holds so many steady samples; whichever comes first."""

    budget_s: float | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        """Check that there is one, and that something can be done within it."""
        if self.budget_s is None and self.samples is None:
            raise UsageError("nothing says when to stop; give a --budget such as 20m, or a number of --samples")
        if self.budget_s is not None and self.budget_s <= 0:
            raise UsageError(
                f"the budget is {self.budget_s:g} s, in which nothing can be measured; give for example 20m"
            )
        if self.samples is not None and self.samples < 1:
            raise UsageError(f"{self.samples} samples are none; ask for at least 1")


@noun
class MeasuringProgress:
    """How far a run is.

    visits: of this run. samples: that this run saw to their end, steady or not. steady: samples of the folder that are.
    left_s: until the end, where it can be told.
    """

    visits: int
    samples: int
    steady: int
    elapsed_s: float
    left_s: float | None

    @property
    def per_hour(self) -> float:
        """Samples an hour."""
        return self.samples / self.elapsed_s * 3600 if self.elapsed_s else 0.0


def measure_compute(
    hardware: Hardware,
    cases: Cases,
    path: Path,
    limit: Limit,
    on_progress: Callable[[MeasuringProgress], None] | None = None,
) -> MeasuringProgress:
    """Visit sample after sample into a folder; a second run goes on where the first one ended.

    Ctrl-C ends the run as its limit would.

    Raises:
        UsageError: the hardware trains no such optimizer or data type, or the folder holds something else.
        RecSmithError: the disk is full; the samples before are kept.
        MissingExtra: the folder has parquet parts and there is no pyarrow.
    """
    hardware.refuse(cases.optimizers, cases.data_types)
    about = About(
        kind="compute", hardware=hardware.name, seed=cases.seed, scale=cases.scale.name,
        optimizers=cases.optimizers, data_types=cases.data_types,
    )  # fmt: skip
    with open_folder(path, about) as folder:
        run = _MeasuringRun(folder, limit)
        try:
            while not run.over:
                run.note(_visit(folder, hardware, cases, *run.schedule.next))
                if on_progress:
                    on_progress(run.progress)
        except KeyboardInterrupt:
            folder.begin(NOTHING)
        if has_pyarrow():
            folder.fold()
        return run.progress


class _MeasuringRun:
    """What a folder holds, counted against a limit."""

    def __init__(self, folder: Folder, limit: Limit) -> None:
        self._limit, self._begun, self._visits, self._samples = limit, time.monotonic(), 0, 0
        self.schedule = schedule_of(read_columns(folder.path, OF_VISIT))
        self._before = self.schedule.steady

    def note(self, row: Row) -> None:
        """A visit is done."""
        visit = visit_of(row["forward_s"], row["backward_s"], row["probe_s"])
        self._visits += 1
        self._samples += self.schedule.note(row["sample"], row["status"], visit).over

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        enough = self._limit.samples is not None and self.schedule.steady >= self._limit.samples
        return enough or (self._limit.budget_s is not None and self.progress.elapsed_s >= self._limit.budget_s)

    @property
    def progress(self) -> MeasuringProgress:
        """How far it is, and how long it still takes."""
        elapsed = time.monotonic() - self._begun
        left = [] if self._limit.budget_s is None else [max(0.0, self._limit.budget_s - elapsed)]
        steady = self.schedule.steady
        if self._limit.samples is not None and steady > self._before:
            left.append((self._limit.samples - steady) * elapsed / (steady - self._before))
        return MeasuringProgress(
            visits=self._visits, samples=self._samples, steady=steady, elapsed_s=elapsed, left_s=min(left, default=None)
        )


_drawn = lru_cache(2 * BLOCK)(Cases.case)  # samples of a block take turns, so their cases come again


def _visit(folder: Folder, hardware: Hardware, cases: Cases, sample: int, visit: int) -> Row:
    """Visit a sample and keep the row."""
    begun, position = time.monotonic(), folder.position
    number, before = which(sample)
    case = _drawn(cases, number)
    if folder.interrupted:
        measured = Measurement(status="interrupted", message="the run ended while this case was measured")
    else:
        folder.begin(position)
        measured = hardware.measure(case, before * VISITS + visit)
    row = {"position": position, "sample": sample, "visit": visit}
    row |= _asked(case, cases.scale.name) | _answered(measured)
    row |= origin(time.monotonic() - begun, hardware.name, hardware.device, hardware.versions)
    folder.add(row)
    if folder.pending >= PART and has_pyarrow():
        folder.fold()
    return row


def _asked(case: Case, scale: str) -> Row:
    """The columns that say what the case is."""
    tables = case.tables
    return {
        "seed": case.seed,
        "number": case.number,
        "scale": scale,
        "optimizer": case.workload.optimizer,
        "data_type": case.data_type,
        "batch_size": case.workload.batch_size,
        "tables": len(tables),
        "ids": sum(case.lookups),
        "rows": [table.num_embeddings for table in tables],
        "dim": [table.embedding_dim for table in tables],
        "pooling_factor": [table.features[0].pooling_factor for table in tables],
        "zipf": [(table.access.zipf if table.access else None) or 0.0 for table in tables],
        "lookups": list(case.lookups),
    }


def _answered(measured: Measurement) -> Row:
    """The columns that say what the hardware answered."""
    fields: Row = {name: getattr(measured, name) for name in Measurement.__dataclass_fields__ if name != "lookups"}
    return fields | {name: list(fields[name]) for name in ("unique_rows", "reuse_bins")}


def origin(elapsed_s: float, hardware: str, device: str, versions: str) -> Row:
    """The columns that say where a row comes from."""
    return {
        "elapsed_s": elapsed_s,
        "hardware": hardware,
        "device": device,
        "versions": f"{versions}, Python {platform.python_version()}",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
