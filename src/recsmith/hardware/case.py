"""The cases that are measured, the scale that limits their size, and the measurements that hardware returns.

A case is one fusion group on one device. It depends only on a key, whose random numbers are the same on every machine.

Legend: T tables of a case; G cases that a device runs in one step; 17 bins by reads of a row (workloads/workload.py).
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from recsmith._random import draw, philox, uniform
from recsmith._types import Floats, noun
from recsmith.elementary import exp, log, log1p
from recsmith.errors import UsageError
from recsmith.units import format_size
from recsmith.workloads import Table, Workload
from recsmith.workloads.optimizers import OPTIMIZERS

CASES, IDS, EXCHANGES, NOISE = range(4)  # streams of one key, one for each purpose; visit v draws noise from NOISE + v
PLANS = 2**32  # the stream of tasks that are planned for their cases, which no visit's noise reaches


class KeyedRandom:
    """The random numbers of a key: a seed, the number of a case, and a stream."""

    def __init__(self, seed: int, number: int, stream: int) -> None:
        self._words = philox(seed, number, stream)

    def uniform(self, count: int) -> Floats:
        """The next uniform numbers, 0 to below 1 (count,)."""
        return uniform(draw(self._words, count))

    def between(self, low: float, high: float, count: int) -> Floats:
        """The next numbers between low and high, whose logarithms are uniform (count,)."""
        return low * exp(self.uniform(count) * log(high / low))

    def normal(self, count: int) -> Floats:
        """The next standard normal numbers, by Box and Muller's transform (count,)."""
        first, second = self.uniform(count), self.uniform(count)
        return np.sqrt(-2 * log1p(-first)) * np.cos(2 * np.pi * second)


Draw = Literal["any", "few", "cold", "narrow", "shared"]


@noun
class CaseScale:
    """Limits of the size of cases. Hardware is opened for a scale; a case and its scale determine the ids.

    least_work, most_work: of an iteration, in rows of 64 columns (measuring/cases.py). lookups: ids of an iteration;
    elements: of all weights; outputs: elements that are returned. tables: of a case at most; dims, batch: least and
    most of a table and of a case. rows, pooling: of a table at most. draws: kinds of cases, used in turn by number: any
    (tables of all sizes), few (one to four), cold (large tables with many ids, whose rows are seldom read again),
    narrow (4 to 32 columns), shared (some tables as large as a cache, read often and evenly). apart: whether weights
    and states have an allocation of `elements` elements each; otherwise both share one of `elements` elements, the
    states of a case after its weights, and every case begins with fresh values.
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
    rows: int = 2_000_000
    pooling: float = 500.0
    draws: tuple[Draw, ...] = ("any",)
    apart: bool = True

    @property
    def size(self) -> int:
        """Bytes of device memory: fp32 weights, states and gradients, and the 8-byte random numbers of ids."""
        return (8 if self.apart else 4) * self.elements + 8 * self.lookups + 4 * self.outputs

    def check(self, cases: Sequence["Case"]) -> None:
        """Raise UsageError if cases together are larger than the scale allows."""
        lookups = sum(sum(case.lookups) for case in cases)
        elements, outputs = end_of([self.room(case) for case in cases]), end_of([case.outputs for case in cases])
        if lookups > self.lookups or elements > self.elements or outputs > self.outputs:
            what = "the case has" if len(cases) == 1 else f"the {len(cases)} cases of a device have"
            held = "weights" if self.apart else "weights and states"
            raise UsageError(
                f"{what} {lookups:,} ids, {elements:,} elements of {held} and {outputs:,} of outputs; scale "
                f"{self.name} allows {self.lookups:,}, {self.elements:,} ({format_size(self.elements * 4)} in fp32) "
                f"and {self.outputs:,}"
            )

    def room(self, case: "Case") -> int:
        """Elements that a case needs in each allocation that it uses."""
        if self.apart:
            return max(case.elements, case.states)
        return end_of([case.elements, case.states])


SCALES = {
    scale.name: scale
    for scale in (
        CaseScale(name="check", least_work=16, most_work=2**14, lookups=2**13, elements=2**18, outputs=2**18),
        CaseScale(name="cpu", least_work=2**10, most_work=2.5e6, lookups=2**20, elements=2**28, outputs=2**25),
        CaseScale(name="gpu", least_work=2**15, most_work=1.4e8, lookups=2**26, elements=2**31, outputs=2**29),
        CaseScale(name="jobs", least_work=2**16, most_work=1.4e8, lookups=200_000_000, elements=2**31, outputs=2**29,
              tables=60, dims=(4, 512), batch=(2048, 65_536)),
        CaseScale(name="pools", least_work=2**15, most_work=4e8, lookups=2**28, elements=2**36, outputs=2**31,
              dims=(4, 2048), batch=(2048, 2**18), rows=100_000_000, pooling=1000.0,
              draws=("any", "few", "any", "cold", "narrow", "any", "cold")),
        CaseScale(name="caches", least_work=2**22, most_work=4e8, lookups=2**28, elements=2**36, outputs=2**31,
              tables=24, dims=(4, 2048), batch=(2048, 2**18), rows=100_000_000, pooling=1000.0, draws=("shared",)),
        CaseScale(name="cpu-caches", least_work=2**15, most_work=2.5e6, lookups=2**20, elements=2**28, outputs=2**25,
              tables=24, draws=("shared",)),
        CaseScale(name="job-caches", least_work=2**20, most_work=1.4e8, lookups=200_000_000, elements=2**31,
              outputs=2**29, tables=24, dims=(4, 512), batch=(2048, 65_536), draws=("shared",)),
    )
}  # fmt: skip
"""Sizes by name.

check: small enough to compare with PyTorch. cpu: up to about 0.3 s of a core for an iteration. gpu: 16 GiB of weights
and states. jobs: what one GPU of a training job serves (docs/measurements.md), in the memory of gpu. pools: all that
plans of the shared pool of tables put on a GPU; its largest cases fit none, so it is for simulated ones, which hold no
weights.
caches: groups of the same reach whose tables share a second-level cache; cpu-caches and job-caches: such groups in the
memory of cpu and jobs.
"""

ALIGNED_ELEMENTS = 64  # cases of a device begin at multiples of it (256 bytes in fp32), so that none share a cache line


def starts_of(sizes: Sequence[int]) -> list[int]:
    """First element of each of G cases in one allocation (G,), from the cases' sizes."""
    return [sum(-(-size // ALIGNED_ELEMENTS) * ALIGNED_ELEMENTS for size in sizes[:i]) for i in range(len(sizes))]


def end_of(sizes: Sequence[int]) -> int:
    """End of the elements of the last of G cases; 0 without any."""
    return starts_of(sizes)[-1] + sizes[-1] if sizes else 0


@noun
class Case:
    """One fusion group on one device: the tables of one kernel, batch_size bags of each, and an optimizer.

    seed, number: from which the case was drawn; its ids depend on them too. blocks: each table is one of this many
    row-wise blocks of a larger table; its rows are read by the Zipf law of the larger table, whose hot rows are evenly
    distributed over the blocks.
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
        if not self.tables[0].pooled and len({table.embedding_dim for table in self.tables}) > 1:
            raise UsageError("the tables of a case of sequences differ in embedding_dim; a kernel returns rows of one")

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables of the case."""
        return self.workload.tables

    @property
    def data_type(self) -> str:
        """Data type of all tables of the case."""
        return self.tables[0].data_type

    @property
    def lookups(self) -> tuple[int, ...]:
        """Ids of each table in an iteration (T,)."""
        return tuple(round(table.features[0].pooling_factor * self.workload.batch_size) for table in self.tables)

    @property
    def elements(self) -> int:
        """Elements of all weights."""
        return sum(table.num_embeddings * table.embedding_dim for table in self.tables)

    @property
    def states(self) -> int:
        """Elements of all states that the optimizer keeps."""
        optimizer = OPTIMIZERS[self.workload.optimizer]
        rows = sum(table.num_embeddings for table in self.tables)
        return optimizer.element_states * self.elements + optimizer.row_states * rows

    @property
    def outputs(self) -> int:
        """Elements that an iteration returns: a vector for each bag, or for each id of sequences."""
        if not self.tables[0].pooled:
            return sum(self.lookups) * self.tables[0].embedding_dim
        return self.workload.batch_size * sum(table.embedding_dim for table in self.tables)

    def check(self, scale: CaseScale) -> None:
        """Raise UsageError if the case is larger than its scale allows."""
        scale.check((self,))


Status = Literal["ok", "out_of_memory", "failed", "interrupted"]
REPETITIONS = 4  # fewest timed, after one that is not. Trade-off: more find the fastest, and leave time for fewer cases


@noun
class Measurement:
    """Seconds of a device for a case, or for several cases in one step. Seconds are None if there are none.

    forward_s, backward_s: the fastest repetition; backward sorts ids and updates the weights. forward_median_s,
    backward_median_s: of all repetitions. forward_wall_s, backward_wall_s: medians by the wall clock; the other seconds
    are the device's time. spread: median / fastest - 1 of forward and backward together. probe_s: a small fixed case,
    measured before and after, mean of the two; probe_moved: relative difference of the two. lookups, unique_rows: ids
    and different rows of each table (T,). reuse_bins: numbers of a table's rows that are read
        once, twice, 3 to 4 times ... (T * 17,), table after table.
    status: ok; out_of_memory; failed; interrupted (the run ended during the measurement).
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
    """A device that measures cases, or a simulation of one.

    name: as on the command line. scale: the scale for which it was opened. device, versions: for the record.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def scale(self) -> CaseScale: ...  # noqa: D102

    @property
    def device(self) -> str: ...  # noqa: D102

    @property
    def versions(self) -> str: ...  # noqa: D102

    def refuse(self, optimizers: tuple[str, ...], data_types: tuple[str, ...]) -> None:
        """Raise UsageError for an optimizer or data type that the hardware does not support."""
        ...

    def measure(self, case: Case, visit: int = 0) -> Measurement:
        """Measure a case; a failure of the case is a status, not an error. visit: how often it was measured before."""
        ...

    def measure_groups(self, cases: tuple[Case, ...], visit: int = 0, least: int = REPETITIONS) -> Measurement:
        """Measure the cases (G,) that a device runs in one step: forward of all in order, then backward of all.

        Backward runs in reverse order. least: fewest timed repetitions, after one that is not timed. Counts of tables
        are those of all cases, one after the other.
        """
        ...
