"""A file of measured kernels and collectives: `recsmith measure kernels` writes, `recsmith learn kernels` reads it."""

from pathlib import Path
from typing import Any

from recsmith._types import Source, noun
from recsmith.errors import UsageError, check_rules
from recsmith.files import check_schema, decode, dump_json, encode, parse_json, read_text, source_text, write_text
from recsmith.prediction.kernels.inputs import figures_of
from recsmith.prediction.operators import KINDS

LEAST_SECONDS = 1e-9  # no kernel and no collective takes less
TIMES_SCHEMA = "recsmith/kernel-times/1"


@noun
class KernelTime:
    """A kernel and its seconds. shape: as prediction/operators.py has it; between: bytes that passed (caches.py)."""

    kind: str
    shape: tuple[float, ...]
    seconds: float
    between: float = 0.0

    def __post_init__(self) -> None:
        """Check kind, figures and seconds."""
        figures = figures_of(self.kind)
        check_rules(
            None if self.kind in KINDS else f"kind '{self.kind}' is not known; known are {', '.join(KINDS)}",
            None if len(self.shape) == figures and all(0 <= each < 1e18 for each in self.shape)
            else f"a kernel of kind {self.kind} has {figures} figures of 0 or more",
            None if 0 <= self.between < 1e18 else f"bytes between two runs are {self.between}; they must be 0 or more",
            None if LEAST_SECONDS <= self.seconds < 1e6
            else f"a kernel took {self.seconds} seconds; it must be a nanosecond or more",
        )  # fmt: skip


@noun
class CollectiveTime:
    """A collective and what the rank that came last saw of it."""

    name: str
    ranks: int
    bytes: float
    seconds: float

    def __post_init__(self) -> None:
        """Check seconds and bytes."""
        check_rules(
            None
            if LEAST_SECONDS <= self.seconds < 1e6
            else f"{self.name} took {self.seconds} seconds; it must be a nanosecond or more",
            None if 0 < self.bytes < 1e18 else f"bytes of {self.name} are {self.bytes}; they must be above 0",
        )


@noun
class KernelTimes:
    """What was measured on a device. cases: that were visited, with those that something disturbed."""

    device: str
    versions: str
    seed: int
    kernels: tuple[KernelTime, ...]
    collectives: tuple[CollectiveTime, ...] = ()
    cases: int = 0


def load_times(source: Source) -> KernelTimes:
    """The kernel times of a file; UsageError or CorruptFile where it is none."""
    name = source_text(source, "kernel times")
    raw: Any = parse_json(read_text(name), name)
    if not isinstance(raw, dict):
        raise UsageError(f"'{name}' holds no kernel times; `recsmith measure kernels` makes them")
    return decode(KernelTimes, check_schema(raw, TIMES_SCHEMA, name), name)


def save_times(times: KernelTimes, target: Path) -> None:
    """Write a file of kernel times, whole or not at all."""
    write_text(str(target), dump_json({"schema": TIMES_SCHEMA, **encode(times)}))
