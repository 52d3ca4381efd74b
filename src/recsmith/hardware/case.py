"""What is measured, and what hardware answers.

Legend: T tables of a case; 17 bins by reads of a row (workloads/access.py).
"""

from typing import Literal, Protocol

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.units import format_size
from recsmith.workloads import Table, Workload

Status = Literal["ok", "out_of_memory", "failed", "interrupted"]


@noun
class Scale:
    """How large cases get. A hardware is opened for a scale; a case and its scale give the ids.

    least_work, most_work: of an iteration, in rows of 64 columns (measuring/cases.py).
    lookups: ids of an iteration; elements: of all weights; outputs: elements that are returned.
    """

    name: str
    least_work: float
    most_work: float
    lookups: int
    elements: int
    outputs: int


SCALES = {
    scale.name: scale
    for scale in (
        Scale(name="check", least_work=16, most_work=2**14, lookups=2**13, elements=2**18, outputs=2**18),
        Scale(name="cpu", least_work=2**10, most_work=2.5e6, lookups=2**20, elements=2**28, outputs=2**25),
        Scale(name="gpu", least_work=2**15, most_work=1.4e8, lookups=2**26, elements=2**31, outputs=2**29),
    )
}
"""check: small enough to compare with PyTorch. cpu: up to about 0.3 s a core and iteration. gpu: 16 GiB with state."""


@noun
class Case:
    """One fusion group on one device: the tables that a kernel serves, batch_size bags of each, and an optimizer.

    seed, number: what the case was drawn from; its ids follow from them too.
    """

    seed: int
    number: int
    workload: Workload

    def __post_init__(self) -> None:
        """Check that one kernel can serve all tables."""
        if len({table.data_type for table in self.tables}) > 1:
            raise UsageError("the tables of a case differ in data_type; one fused kernel serves tables of one type")

    @property
    def tables(self) -> tuple[Table, ...]:
        """Its tables."""
        return self.workload.tables

    @property
    def data_type(self) -> str:
        """Of all its tables."""
        return self.tables[0].data_type

    @property
    def lookups(self) -> tuple[int, ...]:
        """Ids of each table in an iteration, (T,)."""
        return tuple(round(table.features[0].pooling_factor * self.workload.batch_size) for table in self.tables)

    @property
    def elements(self) -> int:
        """Elements of all weights."""
        return sum(table.num_embeddings * table.embedding_dim for table in self.tables)

    @property
    def outputs(self) -> int:
        """Elements that an iteration returns."""
        return self.workload.batch_size * sum(table.embedding_dim for table in self.tables)

    def check(self, scale: Scale) -> None:
        """Refuse a case that is larger than its scale allows."""
        if sum(self.lookups) > scale.lookups or self.elements > scale.elements or self.outputs > scale.outputs:
            raise UsageError(
                f"the case has {sum(self.lookups):,} ids, {self.elements:,} elements of weights and {self.outputs:,} "
                f"of outputs; scale {scale.name} allows {scale.lookups:,}, {scale.elements:,} "
                f"({format_size(scale.elements * 4)} in fp32) and {scale.outputs:,}"
            )


@noun
class Measurement:
    """What a device took for a case. Seconds are None where there are none.

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
