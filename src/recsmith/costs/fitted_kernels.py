"""Seconds of embedding kernels on GPUs, by formulas fitted to an H100 and scaled by a device's own figures.

As in `EmbeddingKernels`, except that plain kernels (on device memory, pooled, without weights) are sums of figures of a
table's work, each with a price: bags, outputs, rows of whole sectors, different rows, repeated reads that miss the
cache; sorting, gradients, the update by optimizer, and rows that a step reads often, which FBGEMM updates in a separate
kernel. The cost of a table does not depend on other tables, so prices add up, and a bound of sums is exact.

The prices are seconds on an H100. On other devices, prices of memory scale inversely with bandwidth, and prices of the
chip inversely with the number of multiprocessors; launches and a table's fixed cost are unchanged.
benchmarks/gpu/fitted.py fits the prices to one half of an H100's samples, and evaluates them on the other half and on
an H200, to which nothing was fitted.

Sources: FBGEMM 1.8, fbgemm_gpu/codegen. Legend: N pieces, M modes, f figures.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.embedding_kernels import EmbeddingKernels, Work, plain_modes, sectors
from recsmith.elementary import distinct
from recsmith.sharding.memory import OUTPUT_BYTES
from recsmith.workloads.optimizers import OPTIMIZER_NAMES, OPTIMIZERS

FITTED_TO = "h100"
FITTED_TO_BANDWIDTH = 3.35e12  # bytes per second of the H100
MULTIPROCESSORS = {"v100-32": 80, "torchrec-default": 80, "a100-40": 108, "a100-80": 108, "h100": 132, "h200": 132}
"""NVIDIA's V100, A100 and H100 white papers; H200 has H100's die. Of a device without a figure, an H100's are taken."""
LAUNCHED = (3.1, 23.0)  # fixed cost of a group, forward and backward, in kernel launches of 3.8 us on an H100
OFTEN = 32.0  # reads of a row in a batch from which FBGEMM uses a separate kernel: max_segment_length_per_warp
WARP_COLUMNS = 128  # columns that a warp reads at once: 32 threads of four columns
BURST = 64  # bytes that memory moves of a row at least


class Price(NamedTuple):
    """The price of a figure: seconds per unit on an H100, and the figure of a device by which it scales."""

    figure: str
    seconds: float
    by: str


MEMORY, CHIP, NOTHING = "memory", "chip", "nothing"
FORWARD = (
    Price("bag", 2.5e-10, CHIP),
    Price("byte of outputs", 3.6e-13, MEMORY),
    Price("read of a row, for each 128 columns", 1.1e-11, CHIP),
    Price("byte of rows read", 6.3e-14, CHIP),
    Price("byte of fp16 columns read, as fp32", 3.3e-14, CHIP),
    Price("different row", 1.1e-11, MEMORY),
    Price("byte of different rows", 2.5e-13, MEMORY),
    Price("byte of repeats that the cache misses", 3.0e-13, MEMORY),
)
BACKWARD = (
    Price("table", 3.9e-6, NOTHING),
    Price("id, to sort", 5.7e-11, MEMORY),
    Price("byte of gradients read", 1.7e-13, CHIP),
    Price("byte of gradients", 4.2e-13, MEMORY),
    Price("row read often", 4.5e-9, CHIP),
    Price("column of a row read often", 1.6e-10, CHIP),
)
UPDATES = {  # per different row, and per byte of it in fp32: read and written, with its state
    "sgd": (2.4e-10, 5.7e-13),
    "adagrad": (1.9e-10, 1.3e-12),
    "rowwise_adagrad": (3.6e-10, 6.2e-13),
    "adam": (1.5e-9, 1.1e-12),
}


class FittedKernels(EmbeddingKernels):
    """The kernels of a problem: plain ones by fitted prices, all others as in EmbeddingKernels."""

    def work(self, modes: Ints, widths: Ints) -> tuple[Work, Work]:
        """Seconds of pieces with these modes and widths (N,), forward and backward; one sum for each plain piece."""
        both, plain = super().work(modes, widths), np.flatnonzero(self.plain[modes])
        if len(plain):
            for work, seconds in zip(both, self._seconds(modes[plain], widths[plain]), strict=True):
                for column in work:
                    column[plain] = seconds
        return both

    @cached_property
    def plain(self) -> Bools:
        """Modes (M,) that have fitted prices."""
        return plain_modes(self.problem) & (self.problem.cluster.device.kind == "cuda")

    def _seconds(self, modes: Ints, widths: Ints) -> tuple[Floats, Floats]:
        """Seconds (N,), (N,) of plain pieces, forward and backward."""
        forward, backward = self.figures(modes, widths)
        first, second = self._priced(forward, FORWARD), np.zeros(len(modes))
        optimizers = self.problem.demand.optimizer[self.problem.modes.table[modes]]
        numbers: list[int] = distinct(optimizers).tolist()
        for number in numbers:
            name, mine = OPTIMIZER_NAMES[number], np.flatnonzero(optimizers == number)
            update = [Price(name, seconds, MEMORY) for seconds in UPDATES[priced_as(name)]]
            second[mine] = self._priced(backward[mine], (*BACKWARD, *update))
        return first, second

    def _priced(self, figures: Floats, prices: Sequence[Price]) -> Floats:
        return figures @ np.array([price.seconds * self.slower(price.by) for price in prices])

    def figures(self, modes: Ints, widths: Ints) -> tuple[Floats, Floats]:
        """Figures (N, 8), (N, 8) of plain pieces in the order of FORWARD, and of BACKWARD and UPDATES."""
        table, demand = self.problem.modes.table[modes], self.problem.demand
        ids, bags, unique = self.problem.modes.ids[modes], self.problem.modes.bags[modes], self.unique[modes]
        element = demand.element_bytes[table]
        row, outputs = sectors(widths * element), sectors(widths * OUTPUT_BYTES)
        again = self._missed(modes, row) - unique
        warps = np.ceil(widths / WARP_COLUMNS)
        converted = np.where(element < OUTPUT_BYTES, ids * widths * float(OUTPUT_BYTES), 0.0)
        forward = (bags, bags * widths * OUTPUT_BYTES, ids * warps, ids * row, converted, unique,
                   unique * np.maximum(row, BURST), again * row)  # fmt: skip
        often = self.often[modes]
        backward = (np.ones(len(modes)), ids, ids * outputs, bags * outputs, often, often * widths, unique,
                    unique * outputs)  # fmt: skip
        return np.stack(forward, axis=1), np.stack(backward, axis=1)

    @cached_property
    def often(self) -> Floats:
        """Rows (M,) of a mode that a rank reads OFTEN times or more in a step."""
        modes = self.problem.modes
        return self.reuse.read_often(modes.table, modes.lookups, OFTEN) / modes.row_spread

    def slower(self, by: str) -> float:
        """How many times as long a price takes on this device as on an H100."""
        if by == NOTHING:
            return 1.0
        device, most = self.problem.cluster.device, MULTIPROCESSORS[FITTED_TO]
        if by == MEMORY:
            return FITTED_TO_BANDWIDTH / device.hbm_bandwidth
        return most / MULTIPROCESSORS.get(device.name, most)


def priced_as(optimizer: str) -> str:
    """The optimizer whose measured update is used for another one: Adam's for optimizers with element-wise state."""
    if optimizer in UPDATES:
        return optimizer
    return "adam" if OPTIMIZERS[optimizer].element_states else "rowwise_adagrad"
