# pyright: basic
"""Times fused tables: repetitions between two probes, by the clock of a subclass (imports torch and FBGEMM)."""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from recsmith.errors import RecSmithError, UsageError
from recsmith.hardware.case import ALIGNED_ELEMENTS, REPETITIONS, Case, CaseScale, Measurement, starts_of
from recsmith.hardware.fused_tables import DATA_TYPES, FusedTables, Memory
from recsmith.hardware.lookups import Lookups, draw_lookups, uniform_pool
from recsmith.units import format_size
from recsmith.workloads import AccessProfile, Feature, Table, Workload
from recsmith.workloads.optimizers import CPU_OPTIMIZERS, OptimizerName

MOST_REPETITIONS = 100  # timed repetitions; cases with more end before LEAST_S
MOST_PROBES = 1000  # repetitions of a probe
LEAST_S = 0.03  # least seconds of the repetitions of a case; disturbances start and end within 10 to 100 ms
PROBE_S = 0.004  # least seconds of the repetitions of a probe: short, for a probe follows every case
COPIES = 20  # the fastest of them gives the seconds of a copy
KEPT_IDS = 2**26  # ids of cases that stay in memory for other visits (half a GB): drawing takes longer than reading
KEPT_ITERATIONS = 4  # iterations of the scale's most ids that are kept instead, if that is more
PROBE_ROWS, PROBE_DIM, PROBE_POOLING, PROBE_ZIPF = 4_000, 64, 8, 0.5  # of its four tables: 1 MB each, which caches hold
PROBE_WORK = 5000  # the batch of the probe is the most work of the scale over this: a small part of a case's time


class Times(NamedTuple):
    """Seconds of a repetition: of the device and of the wall clock, forward and backward."""

    forward_s: float
    backward_s: float
    forward_wall_s: float
    backward_wall_s: float

    @property
    def total_s(self) -> float:
        """Device seconds, forward and backward."""
        return self.forward_s + self.backward_s


class FusedGroup(NamedTuple):
    """A fusion group as it is measured: tables and ids, and the gradient of its outputs."""

    tables: FusedTables
    lookups: Lookups
    gradient: Tensor


class FusedHardware:
    """Base of hardware cpu and cuda; they differ in the clock (`_timed`). Memory for the scale is allocated once."""

    name = ""
    device = ""
    optimizers: tuple[OptimizerName, ...] = CPU_OPTIMIZERS
    least_s = LEAST_S
    probed_every_s = 0.0  # a probe follows every case

    def __init__(self, scale: CaseScale, versions: str, place: torch.device) -> None:
        self.scale = scale
        self.versions = versions
        try:
            self._memory = Memory.of(scale, place)
            self._pool = uniform_pool(scale.lookups, place)
        except (RuntimeError, MemoryError):
            raise UsageError(
                f"{self.name} has no room for the {format_size(scale.size)} that scale {scale.name} takes; take a "
                "smaller one"
            ) from None
        self._probe_cases = (probe_case(scale),)
        self._probe_lookups = [draw_lookups(case, self._pool) for case in self._probe_cases]
        self._probed_s: float | None = None
        self._probed_at = 0.0
        self._drawn: dict[Case, Lookups] = {}

    def refuse(self, optimizers: tuple[str, ...], data_types: tuple[str, ...]) -> None:
        """Raise UsageError for an optimizer or data type that FBGEMM does not train here."""
        unknown = [name for name in optimizers if name not in self.optimizers]
        unknown += [name for name in data_types if name not in DATA_TYPES]
        if unknown:
            raise UsageError(
                f"hardware {self.name} trains {' and '.join(DATA_TYPES)} tables with {', '.join(self.optimizers)}; "
                f"'{unknown[0]}' is not among them"
            )

    def measure(self, case: Case, visit: int = 0) -> Measurement:
        """Time a case between two probes; a failure of the case is a status, not an error."""
        return self.measure_groups((case,), visit)

    def measure_groups(self, cases: tuple[Case, ...], visit: int = 0, least: int = REPETITIONS) -> Measurement:
        """Time a step of several cases between two probes."""
        self.scale.check(cases)
        self.refuse(tuple(case.workload.optimizer for case in cases), tuple(case.data_type for case in cases))
        before = self._probed_s or self._probe()
        try:
            lookups = [self._lookups(case) for case in cases]
            times = self._repeat(cases, lookups, least, self.least_s)
        except (RuntimeError, MemoryError, AssertionError) as error:  # FBGEMM asserts that it has kernels
            return self._failure(error)
        self._probed_s = after = self._probe()
        return _measurement(cases, lookups, times, before, after)

    def copy_seconds(self, size: int) -> float:
        """Seconds of a copy of `size` bytes within the device's memory, the fastest of COPIES.

        Raises:
            UsageError: the scale's memory has no room for them twice.
        """
        half = self._memory.weights.numel() // 2
        count = size // self._memory.weights.element_size()
        if not 0 < count <= half:
            raise UsageError(
                f"{format_size(size)} cannot be copied: scale {self.scale.name} has room for {format_size(2 * half)}"
            )
        source, target = self._memory.weights[:count], self._memory.weights[half : half + count]
        return min(self._timed(lambda: target.copy_(source))[1] for _ in range(COPIES))

    def _lookups(self, case: Case) -> Lookups:
        """The ids of a case; those of the last cases are kept in memory, for other visits."""
        if case not in self._drawn:
            if sum(len(drawn.ids) for drawn in self._drawn.values()) > max(
                KEPT_IDS, KEPT_ITERATIONS * self.scale.lookups
            ):
                self._drawn.clear()
            self._drawn[case] = draw_lookups(case, self._pool)
        return self._drawn[case]

    def _failure(self, error: Exception) -> Measurement:
        self._probed_s = None
        self._drawn.clear()
        text = str(error)
        memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text
        return Measurement(status="out_of_memory" if memory else "failed", message=text.splitlines()[0] if text else "")

    def _probe(self) -> float:
        """Seconds of the fastest repetition of the probe; those of the last probe if it was recent."""
        if self._probed_s and time.monotonic() < self._probed_at + self.probed_every_s:
            return self._probed_s
        try:
            times = self._repeat(self._probe_cases, self._probe_lookups, REPETITIONS, PROBE_S, MOST_PROBES)
        except RuntimeError as error:
            raise RecSmithError(f"{self.name} no longer answers: {str(error).splitlines()[0]}; start again") from None
        self._probed_at = time.monotonic()
        return min(each.total_s for each in times)

    def _repeat(
        self, cases: tuple[Case, ...], lookups: list[Lookups], least: int, least_s: float, most: int = MOST_REPETITIONS
    ) -> list[Times]:
        """Times of repetitions without the first: at least `least`, until they took least_s seconds or are `most`."""
        groups = self._groups(cases, lookups)
        times, begun = [self._once(groups)], time.perf_counter()
        while len(times) <= least or (time.perf_counter() - begun < least_s and len(times) <= most):
            times.append(self._once(groups))
        return times[1:]

    def _groups(self, cases: tuple[Case, ...], lookups: list[Lookups]) -> list[FusedGroup]:
        """The groups of cases, each in its own part of the memory."""
        elements = starts_of([self.scale.room(case) for case in cases])
        outputs = starts_of([case.outputs for case in cases])
        groups: list[FusedGroup] = []
        for i, (case, case_lookups) in enumerate(zip(cases, lookups, strict=True)):
            memory = self._memory.beyond(elements[i], outputs[i]).of_case(case)
            shape = (case.workload.batch_size, -1) if case.tables[0].pooled else (-1, case.tables[0].embedding_dim)
            gradient = memory.gradient[: case.outputs].view(shape)
            groups.append(FusedGroup(FusedTables(case, memory), case_lookups, gradient))
        return groups

    def _once(self, groups: list[FusedGroup]) -> Times:
        outputs, forward_s, forward_wall_s = self._timed(lambda: _forward(groups))
        _, backward_s, backward_wall_s = self._timed(lambda: _backward(groups, outputs))
        return Times(forward_s, backward_s, forward_wall_s, backward_wall_s)

    def _timed(self, call: Callable[[], Any]) -> tuple[Any, float, float]:
        """The value of a call, its seconds on the device, and its seconds by the wall clock."""
        raise NotImplementedError


def _forward(groups: list[FusedGroup]) -> list[Tensor]:
    return [group.tables(group.lookups.ids, group.lookups.offsets) for group in groups]


def _backward(groups: list[FusedGroup], outputs: list[Tensor]) -> None:
    for group, output in zip(reversed(groups), reversed(outputs), strict=True):
        output.backward(group.gradient)


def probe_case(scale: CaseScale) -> Case:
    """The probe of a scale: four tables of 1 MB, which caches hold, or smaller ones if the scale is small."""
    behind = 0 if scale.apart else 1  # elements per row for states that are stored in the memory of weights
    rows = (scale.elements - behind * ALIGNED_ELEMENTS) // (4 * (PROBE_DIM + behind))
    tables = tuple(
        Table(name=name, num_embeddings=min(PROBE_ROWS, rows), embedding_dim=PROBE_DIM,
              features=(Feature(name=name, pooling_factor=PROBE_POOLING),), access=AccessProfile(zipf=PROBE_ZIPF))
        for name in "abcd"
    )  # fmt: skip
    batch = int(min(max(8, scale.most_work / PROBE_WORK), scale.lookups / 32, scale.outputs / 256))
    return Case(seed=0, number=0, workload=Workload(batch_size=batch, optimizer="rowwise_adagrad", tables=tables))


def _measurement(
    cases: tuple[Case, ...], lookups: list[Lookups], times: list[Times], before: float, after: float
) -> Measurement:
    middle = Times(*(statistics.median(column) for column in zip(*times, strict=True)))
    totals = [each.total_s for each in times]
    return Measurement(
        status="ok",
        forward_s=min(each.forward_s for each in times),
        backward_s=min(each.backward_s for each in times),
        spread=statistics.median(totals) / min(totals) - 1,
        probe_s=(before + after) / 2,
        probe_moved=abs(after / before - 1),
        forward_median_s=middle.forward_s,
        backward_median_s=middle.backward_s,
        forward_wall_s=middle.forward_wall_s,
        backward_wall_s=middle.backward_wall_s,
        repetitions=len(times),
        lookups=tuple(count for case in cases for count in case.lookups),
        unique_rows=tuple(count for each in lookups for count in each.unique_rows),
        reuse_bins=tuple(count for each in lookups for count in each.reuse_bins),
    )
