"""Measures the kernels of every rank of plans, visit after visit.

A visit measures every distinct load of every plan once. Ranks of all plans take turns, and each visit begins with
another plan, so a slow minute disturbs all plans equally and differences within a visit are valid. Loads that several
ranks or plans share are measured once a visit. One core measures rank after rank.

Legend: V visits, P plans, W ranks of a plan; the last axis of kernels is forward, backward.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recsmith._types import Floats, noun
from recsmith.errors import RecSmithError, UsageError
from recsmith.hardware import Hardware, load_hardware
from recsmith.hardware.loads import Load, scale_for
from recsmith.jobs.machine import free_bytes
from recsmith.units import format_size

VISITS = 7  # visits of a run: trade-off, more narrow the intervals and take longer
ENOUGH = 3  # fewest visits that an interrupted run can report: fewer give no interval
LEAST = 2  # fewest timed repetitions of a load in a visit, after one that is not timed

ForwardBackward = tuple[float, float]
"""Seconds of a load's kernels, forward and backward with update."""


@noun
class MeasuredKernels:
    """The measured kernels. kernels: seconds of each plan's ranks, P arrays (V, W, 2).

    probe_s: the hardware's probe, the median of each visit (V,). others: seconds (2,) of other loads, in order.
    complete: whether all visits were made.
    """

    kernels: tuple[Floats, ...]
    probe_s: Floats
    others: tuple[ForwardBackward, ...]
    complete: bool

    @property
    def visits(self) -> int:
        """Number of visits, V."""
        return len(self.probe_s)


@noun
class VisitProgress:
    """Progress of a run: loads done of total, in visit number `visit` of visits (from 1)."""

    done: int
    total: int
    visit: int
    visits: int
    elapsed_s: float


def open_hardware(name: str, loads: Sequence[Load]) -> Hardware:
    """Hardware by name (`load_hardware`) with room for any of these loads.

    Raises:
        UsageError: there is no such hardware, it does not support an optimizer or data type of a load, or a load does
            not fit in memory.
        MissingExtra: PyTorch or FBGEMM is missing.
    """
    scale = scale_for(loads, name)
    free = free_bytes() if name == "cpu" else None
    if free is not None and scale.size > free:
        raise UsageError(
            f"the largest rank needs {format_size(scale.size)} of memory (weights and states in fp32, ids, gradients), "
            f"and this machine has {format_size(free)} available; measure plans of more ranks or of smaller tables"
        )
    hardware = load_hardware(name, scale)
    cases = [case for load in loads for case in load]
    optimizers = sorted({case.workload.optimizer for case in cases})
    hardware.refuse(tuple(optimizers), tuple(sorted({case.data_type for case in cases})))
    return hardware


def measure_kernels(
    hardware: Hardware,
    plans: Sequence[tuple[Load, ...]],
    visits: int = VISITS,
    *,
    others: Sequence[Load] = (),
    least: int = LEAST,
    on_progress: Callable[[VisitProgress], None] | None = None,
) -> MeasuredKernels:
    """Measure the kernels of plans, given as the loads of their ranks (`loads_of`).

    Ctrl-C ends the run after ENOUGH whole visits; before, it is raised.

    Args:
        hardware: on which they are measured.
        plans: the loads of each plan's ranks.
        visits: number of visits.
        others: loads that are measured once each, spread over the first VISITS visits.
        least: timed repetitions of a load in a visit, after one that is not timed; the fastest forward and the fastest
            backward count.
        on_progress: called after each load.

    Raises:
        UsageError: there is no visit or no plan.
        RecSmithError: the hardware failed.
    """
    if visits < 1 or not plans:
        raise UsageError(f"{visits} visits of {len(plans)} plans measure nothing; give at least one of each")
    run = _Visits(hardware, plans, visits, others, least, on_progress)
    try:
        for visit in range(visits):
            run.visit(visit)
    except KeyboardInterrupt:
        if len(run.probes) < ENOUGH:
            raise
    done = len(run.probes)
    kernels = tuple(
        np.array([[run.found[visit][load] for load in ranks] for visit in range(done)], dtype=np.float64)
        for ranks in plans
    )
    return MeasuredKernels(
        kernels=kernels, probe_s=np.array(run.probes), others=tuple(run.others), complete=done == visits
    )


def measure_load(
    hardware: Hardware, load: Load, visit: int, least: int = LEAST, what: str = "a rank's kernels"
) -> tuple[ForwardBackward, float]:
    """(seconds of a load's kernels, seconds of the hardware's probe) in one visit.

    what: name of the load in an error.

    Raises:
        RecSmithError: the hardware failed.
    """
    answer = hardware.measure_groups(load, visit, least)
    if answer.forward_s is None or answer.backward_s is None:
        raise RecSmithError(f"{what} could not be measured ({answer.status}): {answer.message}")
    return (answer.forward_s, answer.backward_s), answer.probe_s or 0.0


class _Visits:
    """The visits of a run so far. found: seconds of loads by visit, complete or not; probes: of complete visits."""

    def __init__(
        self, hardware: Hardware, plans: Sequence[tuple[Load, ...]], visits: int, others: Sequence[Load], least: int,
        on_progress: Callable[[VisitProgress], None] | None,
    ) -> None:  # fmt: skip
        self.found: list[dict[Load, ForwardBackward]] = []
        self.probes: list[float] = []
        self.others: list[ForwardBackward] = []
        self._hardware, self._plans, self._visits, self._least = hardware, plans, visits, least
        self._waiting, self._on_progress = list(others), on_progress
        self._begun, self._done = time.monotonic(), 0
        self._total = visits * len({load for ranks in plans for load in ranks if load}) + len(others)

    def visit(self, visit: int) -> None:
        """Measure every load once, and the visit's part of the others."""
        found: dict[Load, ForwardBackward] = {}
        probes: list[float] = []
        self.found.append(found)
        for load in turns(self._plans, visit):
            found[load] = self._measure(load, visit, probes)
        left = max(1, min(self._visits, VISITS) - visit)
        for _ in range(-(-len(self._waiting) // left)):
            self.others.append(self._measure(self._waiting[0], visit, probes))
            self._waiting.pop(0)
        self.probes.append(float(np.median(probes)) if probes else 0.0)

    def _measure(self, load: Load, visit: int, probes: list[float]) -> ForwardBackward:
        if not load:
            return 0.0, 0.0
        seconds, probe_s = measure_load(self._hardware, load, visit, self._least)
        probes.append(probe_s)
        self._done += 1
        if self._on_progress:
            elapsed_s = time.monotonic() - self._begun
            self._on_progress(
                VisitProgress(
                    done=self._done, total=self._total, visit=visit + 1, visits=self._visits, elapsed_s=elapsed_s
                )
            )
        return seconds


def turns(plans: Sequence[tuple[Load, ...]], visit: int) -> Iterator[Load]:
    """The distinct loads of all plans in the order of a visit: for each rank number, that of every plan.

    Visit v begins with plan v (modulo P), so no plan always comes first.
    """
    order = [plans[(place + visit) % len(plans)] for place in range(len(plans))]
    seen: set[Load] = set()
    for rank in range(max(len(ranks) for ranks in plans)):
        for ranks in order:
            if rank < len(ranks) and ranks[rank] not in seen:
                seen.add(ranks[rank])
                yield ranks[rank]
