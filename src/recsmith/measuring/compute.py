"""Runs that measure kernels into a folder, and the rows that they write."""

import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from recsmith._types import noun
from recsmith.hardware import Case, CaseScale, Hardware, Measurement
from recsmith.measuring.about import About
from recsmith.measuring.cases import case_of
from recsmith.measuring.columns import origin_columns
from recsmith.measuring.folder import NOTHING, Folder, Limit, open_folder, read_columns
from recsmith.measuring.journal import Row
from recsmith.measuring.samples import BLOCK_SAMPLES, MOST_VISITS, VISIT_COLUMNS, schedule_of, visit_of
from recsmith.workloads.data_types import DataType
from recsmith.workloads.optimizers import OptimizerName


class CaseSource(Protocol):
    """Cases by number: random ones (cases.py), or groups of planned tasks (planned_cases.py)."""

    @property
    def seed(self) -> int:
        """The seed of the cases."""
        ...

    @property
    def scale(self) -> CaseScale:
        """The scale that limits the size of the cases."""
        ...

    @property
    def optimizers(self) -> tuple[OptimizerName, ...]:
        """Optimizers, of which each case has one."""
        ...

    @property
    def data_types(self) -> tuple[DataType, ...]:
        """Data types, of which each case has one."""
        ...

    @property
    def planned(self) -> str:
        """The cost model under which the cases were planned; empty for random ones."""
        ...

    def case(self, number: int) -> Case:
        """The case with this number."""
        ...


@noun
class MeasuringProgress:
    """Progress of a run.

    visits: of this run. samples: those that this run finished, steady or not. steady: steady samples of the folder.
    left_s: seconds until the end; None if they cannot be estimated.
    """

    visits: int
    samples: int
    steady: int
    elapsed_s: float
    left_s: float | None

    @property
    def per_hour(self) -> float:
        """Samples per hour."""
        return self.samples / self.elapsed_s * 3600 if self.elapsed_s else 0.0


def measure_compute(
    hardware: Hardware,
    cases: CaseSource,
    path: Path,
    limit: Limit,
    on_progress: Callable[[MeasuringProgress], None] | None = None,
) -> MeasuringProgress:
    """Measure sample after sample into a folder; a second run continues where the first one ended.

    Ctrl-C ends the run as its limit does.

    Raises:
        UsageError: the hardware does not support an optimizer or data type, or the folder holds something else.
        RecSmithError: the disk is full; the samples before are kept.
        MissingExtra: the folder has parquet parts and there is no pyarrow.
    """
    hardware.refuse(cases.optimizers, cases.data_types)
    about = About(
        kind="compute", hardware=hardware.name, seed=cases.seed, scale=cases.scale.name,
        optimizers=cases.optimizers, data_types=cases.data_types, planned=cases.planned,
    )  # fmt: skip
    with open_folder(path, about) as folder:
        run = _MeasuringRun(folder, limit, hardware.name)
        try:
            while not run.over:
                run.note(_visit(folder, hardware, cases, *run.schedule.next))
                if on_progress:
                    on_progress(run.progress)
        except KeyboardInterrupt:
            folder.begin(NOTHING)
        folder.fold_if_possible()
        return run.progress


class _MeasuringRun:
    """The schedule of a folder's samples, and its progress towards a limit."""

    def __init__(self, folder: Folder, limit: Limit, hardware: str) -> None:
        self._limit, self._begun, self._visits, self._samples = limit, time.monotonic(), 0, 0
        self.schedule = schedule_of(read_columns(folder.path, VISIT_COLUMNS), hardware)
        self._steady_before = self.schedule.steady

    def note(self, row: Row) -> None:
        """Count the visit of a row."""
        visit = visit_of(row["forward_s"], row["backward_s"], row["probe_s"])
        self._visits += 1
        self._samples += self.schedule.note(row["sample"], row["status"], visit).over

    @property
    def over(self) -> bool:
        """Whether the limit is reached."""
        return self._limit.reached(self.schedule.steady, self._elapsed_s)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    @property
    def progress(self) -> MeasuringProgress:
        """The progress so far, with an estimate of the remaining time."""
        elapsed = self._elapsed_s
        left = [] if self._limit.budget_s is None else [max(0.0, self._limit.budget_s - elapsed)]
        steady = self.schedule.steady
        if self._limit.samples is not None and steady > self._steady_before:
            left.append((self._limit.samples - steady) * elapsed / (steady - self._steady_before))
        return MeasuringProgress(
            visits=self._visits, samples=self._samples, steady=steady, elapsed_s=elapsed, left_s=min(left, default=None)
        )


@lru_cache(2 * BLOCK_SAMPLES)  # samples of a block take turns, so their cases are needed again
def _drawn(cases: CaseSource, number: int) -> Case:
    return cases.case(number)


def _visit(folder: Folder, hardware: Hardware, cases: CaseSource, sample: int, visit: int) -> Row:
    """Measure a visit of a sample and store its row."""
    begun, position = time.monotonic(), folder.position
    number, before = case_of(sample)
    case = _drawn(cases, number)
    if folder.interrupted:
        measured = Measurement(status="interrupted", message="the run ended while this case was measured")
    else:
        folder.begin(position)
        measured = hardware.measure(case, before * MOST_VISITS + visit)
    row = {"position": position, "sample": sample, "visit": visit}
    row |= case_columns(case, cases.scale.name) | _measured_columns(measured)
    row |= origin_columns(time.monotonic() - begun, hardware.name, hardware.device, hardware.versions)
    folder.add(row)
    folder.fold_if_full()
    return row


def case_columns(case: Case, scale: str) -> Row:
    """The columns that describe a case."""
    tables = case.tables
    return {
        "seed": case.seed,
        "number": case.number,
        "scale": scale,
        "optimizer": case.workload.optimizer,
        "data_type": case.data_type,
        "batch_size": case.workload.batch_size,
        "blocks": case.blocks,
        "tables": len(tables),
        "ids": sum(case.lookups),
        "rows": [table.num_embeddings for table in tables],
        "dim": [table.embedding_dim for table in tables],
        "pooling_factor": [table.features[0].pooling_factor for table in tables],
        "zipf": [(table.access.zipf if table.access else None) or 0.0 for table in tables],
        "lookups": list(case.lookups),
    }


def _measured_columns(measured: Measurement) -> Row:
    """The columns with the measured values."""
    fields: Row = {name: getattr(measured, name) for name in Measurement.__dataclass_fields__ if name != "lookups"}
    return fields | {name: list(fields[name]) for name in ("unique_rows", "reuse_bins")}
