"""The lines of a benchmark run's journal: attempts of planners, and what visits of tasks measured; each is checked."""

from collections.abc import Iterable
from itertools import chain

import numpy as np

from recsmith._types import Floats, noun
from recsmith.bench.plans import Attempt
from recsmith.errors import UsageError
from recsmith.files import Raw, decode

JOURNAL = "the journal"  # as errors call it
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
    """A planner's attempt at a task as a line of the journal has it."""

    task: str
    attempt: Attempt

    def __post_init__(self) -> None:
        """Check seconds."""
        _check_seconds([self.attempt.plan_s], "plan_s")


@noun
class RawBound:
    """A bound of a task as a line of the journal has it."""

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
    """A MeasuredVisit as a line of the journal has it."""

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
        """Check seconds, that there are some, and the number of the visit."""
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
    """A visit as a line of the journal holds it."""
    raw: Raw = {name: getattr(measured, name) for name in MeasuredVisit.__dataclass_fields__}
    for name in ("kernels", "comm"):
        raw[name] = {planner: seconds.tolist() for planner, seconds in raw[name].items()}
    return raw


def visit_from_raw(raw: object) -> MeasuredVisit:
    """The visit of a line; CorruptFile where a field is wrong."""
    line = decode(_RawVisit, raw, JOURNAL)
    return MeasuredVisit(
        task=line.task, visit=line.visit,
        kernels={planner: np.array(seconds) for planner, seconds in line.kernels.items()},
        comm={planner: np.array(seconds) for planner, seconds in line.comm.items()},
        probe_s=line.probe_s, device=line.device, versions=line.versions, date=line.date, elapsed_s=line.elapsed_s,
    )  # fmt: skip
