"""What is measured, and what hardware answers.

Legend: T tables of a case; G cases that a device runs in one step; 17 bins by reads of a row (workloads/access.py).
"""

from collections.abc import Sequence
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
    tables: of a case at most; dims, batch: least and most of a table and of a case.
    """

    name: str
    least_work: float
    most_work: float
    lookups: int
    elements: int
    outputs: int
    tables: int = 100
    dims: tuple[int, int] = (4, 1024)
    batch: tuple[int, int] = (1, 2**18)

    @property
    def size(self) -> int:
        """Bytes that hardware takes for it: weights, states and gradients in fp32, and the numbers that ids come of."""
        return 8 * (self.elements + self.lookups) + 4 * self.outputs

    def check(self, cases: Sequence["Case"]) -> None:
        """Refuse cases that together are larger than the scale allows."""
        lookups = sum(sum(case.lookups) for case in cases)
        elements, outputs = end_of([case.elements for case in cases]), end_of([case.outputs for case in cases])
        if lookups > self.lookups or elements > self.elements or outputs > self.outputs:
            what = "the case has" if len(cases) == 1 else f"the {len(cases)} cases of a device have"
            raise UsageError(
                f"{what} {lookups:,} ids, {elements:,} elements of weights and {outputs:,} of outputs; scale "
                f"{self.name} allows {self.lookups:,}, {self.elements:,} ({format_size(self.elements * 4)} in fp32) "
                f"and {self.outputs:,}"
            )


SCALES = {
    scale.name: scale
    for scale in (
        Scale(name="check", least_work=16, most_work=2**14, lookups=2**13, elements=2**18, outputs=2**18),
        Scale(name="cpu", least_work=2**10, most_work=2.5e6, lookups=2**20, elements=2**28, outputs=2**25),
        Scale(name="gpu", least_work=2**15, most_work=1.4e8, lookups=2**26, elements=2**31, outputs=2**29),
        Scale(name="jobs", least_work=2**16, most_work=1.4e8, lookups=200_000_000, elements=2**31, outputs=2**29,
              tables=60, dims=(4, 512), batch=(2048, 65_536)),
    )
}  # fmt: skip
"""check: small enough to compare with PyTorch. cpu: up to about 0.3 s a core and iteration. gpu: 16 GiB with state.

jobs: what a GPU of a training job serves; as gpu where nothing else is said.
"""


LINE = 64  # elements: what cases of a device begin at multiples of, so that no two share a cache line


def starts_of(sizes: Sequence[int]) -> list[int]:
    """Where each of some runs of elements begins (G,), one after the other."""
    return [sum(-(-size // LINE) * LINE for size in sizes[:i]) for i in range(len(sizes))]


def end_of(sizes: Sequence[int]) -> int:
    """Elements that such runs take together; 0 of none."""
    return starts_of(sizes)[-1] + sizes[-1] if sizes else 0


@noun
class Case:
    """One fusion group on one device: the tables that a kernel serves, batch_size bags of each, and an optimizer.

    seed, number: what the case was drawn from; its ids follow from them too.
    blocks: of how many blocks of rows its tables are one each: rows are read as the law of a table of so many times
        the rows has it, so that the hot rows are spread over the blocks.
    """

    seed: int
    number: int
    workload: Workload
    blocks: int = 1

    def __post_init__(self) -> None:
        """Check that one kernel can serve all tables."""
        for what in ("data_type", "pooling"):
            if len({getattr(table, what) for table in self.tables}) > 1:
                raise UsageError(f"the tables of a case differ in {what}; one fused kernel serves tables of one")

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
        scale.check((self,))


REPETITIONS = 4  # that are timed at least, after one that is not


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
