"""How cold a kernel's data is: what its step moves through the processor's caches between two uses of it.

A product of two tensors of 1 MB takes 21 µs right after another one, and 57 µs where 64 MB passed through a cache of
32 MB in the meantime. So kernels are measured after other data has passed, and predicted by how much does in a step:

    lookups: all data of the step, for a row of a table is used once in it
    other kernels: the geometric mean of the kernel's own data and all data of the step, since some of its tensors were
    made by the kernel before, and others (weights, what forward keeps for backward) long ago
"""

import math
from collections.abc import Sequence

from recsmith.prediction.graph import Kernel, Tape
from recsmith.prediction.kernels.inputs import shapes_of, work_of

USES = 2  # what a kernel writes is read by another one: so a step has half as much data as its kernels move
LOOKUPS = ("embedding_forward", "embedding_backward")


def within_step(kernels: Sequence[Kernel]) -> list[Kernel]:
    """All kernels of a rank's step, each with the bytes that pass between two uses of its data."""
    own = [float(work_of(kernel.kind, shapes_of([kernel]))[0, 1]) for kernel in kernels]
    whole = sum(own) / USES
    return [
        kernel._replace(between=whole if kernel.kind in LOOKUPS else math.sqrt(min(mine, whole) * whole))
        for kernel, mine in zip(kernels, own, strict=True)
    ]


def with_caches(tape: Tape) -> Tape:
    """A rank's tape, each of whose kernels is told how much data passes between two uses of its own."""
    kernels = iter(within_step([event.kernel for event in tape if event.kernel is not None]))
    return tuple(event if event.kernel is None else event._replace(kernel=next(kernels)) for event in tape)
