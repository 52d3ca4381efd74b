"""What hardware answers when a case is measured, and the protocol that all hardware follows.

Legend: T tables of a case; G cases that a device runs in one step; 17 bins by reads of a row (workloads/workload.py).
"""

from typing import Literal, Protocol

from recsmith._types import noun
from recsmith.hardware.case import Case, Scale

Status = Literal["ok", "out_of_memory", "failed", "interrupted"]
REPETITIONS = 4  # timed at least, after one that is not. Trade-off: more find the fastest, and fewer cases are measured


@noun
class Measurement:
    """What a device took for a case, or for several in one step. Seconds are None where there are none.

    forward_s, backward_s: the fastest repetition; backward sorts ids and updates the weights.
    forward_median_s, backward_median_s: of all repetitions.
    forward_wall_s, backward_wall_s: medians by the wall clock, where the others are the device's time.
    spread: median / fastest - 1 of forward and backward together.
    probe_s: a small fixed case, before and after, on average; probe_moved: how far the two are apart.
    lookups, unique_rows: ids and different rows of each table (T,). reuse_bins: how many of a table's rows are read
        once, twice, 3 to 4 times ... (T * 17,), table after table.
    status: ok; out_of_memory; failed; interrupted (the run ended while it was measured).
    """

    status: Status
    forward_s: float | None = None
    backward_s: float | None = None
    spread: float | None = None
    probe_s: float | None = None
    probe_moved: float | None = None
    forward_median_s: float | None = None
    backward_median_s: float | None = None
    forward_wall_s: float | None = None
    backward_wall_s: float | None = None
    repetitions: int = 0
    lookups: tuple[int, ...] = ()
    unique_rows: tuple[int, ...] = ()
    reuse_bins: tuple[int, ...] = ()
    message: str = ""


class Hardware(Protocol):
    """Something that can be measured, or that answers as if it had been.

    name: as on the command line. scale: what it was opened for. device, versions: for the record.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def scale(self) -> Scale: ...  # noqa: D102

    @property
    def device(self) -> str: ...  # noqa: D102

    @property
    def versions(self) -> str: ...  # noqa: D102

    def refuse(self, optimizers: tuple[str, ...], data_types: tuple[str, ...]) -> None:
        """UsageError where it trains no such optimizer or data type."""
        ...

    def measure(self, case: Case, visit: int = 0) -> Measurement:
        """Measure a case; what goes wrong in it is a status, not an error. visit: how often it was measured before."""
        ...

    def measure_groups(self, cases: tuple[Case, ...], visit: int = 0, least: int = REPETITIONS) -> Measurement:
        """Measure the cases (G,) that a device runs in one step: forward of all in order, then backward of all.

        Backward goes in reverse. least: repetitions that are timed at least, after one that is not. Counts of tables
        are those of all cases, one after the other.
        """
        ...
