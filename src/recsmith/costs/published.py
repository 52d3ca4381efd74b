"""How far cost model `analytic` was off beside GPU times that others have published, by part of a step and device.

`PUBLISHED` is what benchmarks/public_gpu.py finds for its list of figures, `MEASURED` what the learned model of a GPU
that we measured says of `analytic`; tests hold them equal. What was neither is not checked: a device that is missing
from a part may be off by more than others.
Only `analytic` carries such an error, and only on GPUs.

Legend: W ranks; the four parts of a step are recsmith.plans.PARTS.
"""

from collections.abc import Iterable

from recsmith._types import Floats, noun
from recsmith.clusters import Cluster
from recsmith.plans import Placement
from recsmith.sharding import KEY_VALUE, UVM, UVM_CACHING
from recsmith.units import counted

MODEL = "analytic"
LARGE_BYTES = 2**20  # of a message; smaller ones are latency, which the model overstates by its kernels that pack
DEVICE, HOST, DISK, COLLECTIVES = "device memory", "host memory", "tables on disk", "collectives"

_PLACES = {UVM.name: HOST, UVM_CACHING.name: HOST, KEY_VALUE.name: DISK}


@noun
class PublishedTimes:
    """Published figures of a part of a step on a device: how many, by how many laboratories, and the error.

    laboratories: 0 where they are kernels that we measured, which a learned model knows (docs/benchmarks/gpu.md).
    error: the geometric mean of how far predicted and measured are apart, less 1: 0.2 is 20 %; of kernels that we
    measured, by how much they took longer at the median. spread: what is left of it, as a geometric mean, where all
    take longer by the same factor, which decides between no plans; 0 where that is not known apart from the error.
    """

    figures: int
    laboratories: int
    error: float
    spread: float = 0.0

    def __str__(self) -> str:
        if not self.laboratories:
            return f"+{self.error:.0%} ({counted(self.figures, 'measured group')})"
        alone = ", one laboratory" if self.laboratories == 1 else ""
        by = "by " if self.error >= 1 else ""
        return f"{by}{_off(self.error)} ({counted(self.figures, 'published time')}{alone})"


PUBLISHED: dict[str, dict[str, PublishedTimes]] = {
    DEVICE: {
        "h100": PublishedTimes(figures=5, laboratories=2, error=0.12),
        "v100-32": PublishedTimes(figures=8, laboratories=1, error=0.22),
    },
    HOST: {
        "h100": PublishedTimes(figures=40, laboratories=1, error=0.15),
    },
    COLLECTIVES: {
        "a100-80": PublishedTimes(figures=21, laboratories=2, error=0.26),
        "b200": PublishedTimes(figures=60, laboratories=3, error=0.3),
        "gb200": PublishedTimes(figures=25, laboratories=2, error=0.19),
        "h100": PublishedTimes(figures=30, laboratories=7, error=0.19),
        "h200": PublishedTimes(figures=21, laboratories=2, error=0.18),
        "l40s": PublishedTimes(figures=16, laboratories=1, error=14.77),
        "mi300x": PublishedTimes(figures=14, laboratories=1, error=0.33),
    },
}

MEASURED = {  # kernels on tables in device memory, before what was published of them
    "h100": PublishedTimes(figures=14114, laboratories=0, error=0.51, spread=0.26),
    "h200": PublishedTimes(figures=14942, laboratories=0, error=0.76, spread=0.26),
}


@noun
class PublishedError:
    """How far a prediction may be off, by what others have published.

    device: of the catalogue. checked: what was published of the parts that the plan uses on this device. unchecked:
    parts of which nothing was. share: of the step, each part by its seconds and error; an unchecked part by the error
    that it has on the other devices, all of them together. spread: the same, with each part's spread where it is known.
    """

    device: str
    checked: dict[str, PublishedTimes]
    unchecked: tuple[str, ...]
    share: float
    spread: float

    def __str__(self) -> str:
        found = ", ".join(f"{part} {seen}" for part, seen in self.checked.items())
        are = "are" if len(self.unchecked) > 1 or {COLLECTIVES, DISK} & set(self.unchecked) else "is"
        missing = f"{' and '.join(self.unchecked)} {are} not checked on {self.device}" if self.unchecked else ""
        ours = any(not seen.laboratories for seen in self.checked.values())
        better = f"cost model neural:{self.device} knows its kernels" if ours else ""
        total = "" if self.unchecked else f" by about {self.off}"
        return f"the step may be off{total}: {'; '.join(each for each in (found, missing, better) if each)}"

    @property
    def off(self) -> str:
        """The share in words."""
        return f"{_off(self.share).lstrip('±')}{' or more' if self.unchecked else ''}"

    @property
    def apart(self) -> str:
        """What plans must differ by for the model to tell them apart, in words."""
        return f"{_off(self.spread).lstrip('±')}{' or more' if self.unchecked else ''}"

    def ties(self, difference: float) -> bool:
        """Whether steps that differ by this share of the smaller one are too close for the model to tell apart."""
        return difference <= self.spread


def error_of(
    cost_model: str, cluster: Cluster, placements: Iterable[Placement], parts: Floats
) -> PublishedError | None:
    """The error of a step from its parts (W, 4); None for other cost models, and where the device is no GPU."""
    if cost_model != MODEL or cluster.device.kind == "cpu":
        return None
    places = {_PLACES.get(placement.compute_kernel, DEVICE) for placement in placements}
    kernels = [part for part in (DEVICE, HOST, DISK) if part in places]
    forward_compute, backward_compute, forward_comm, backward_comm = parts.sum(axis=0).tolist()
    compute, comm = forward_compute + backward_compute, forward_comm + backward_comm
    used = kernels + ([COLLECTIVES] if comm else [])
    seen = {part: _seen(part, cluster.device.name) for part in used}

    def weighed(errors: dict[str, float]) -> float:
        worst = max((errors[part] for part in kernels), default=0.0)
        off = compute * worst + comm * errors.get(COLLECTIVES, 0.0)
        return off / (compute + comm) if compute + comm else 0.0

    return PublishedError(
        device=cluster.device.name,
        checked={part: found for part, found in seen.items() if found},
        unchecked=tuple(part for part, found in seen.items() if not found),
        share=weighed({part: found.error if found else _elsewhere(part) for part, found in seen.items()}),
        spread=weighed(
            {part: found.spread or found.error if found else _elsewhere(part) for part, found in seen.items()}
        ),
    )


def _seen(part: str, device: str) -> PublishedTimes | None:
    return (MEASURED.get(device) if part == DEVICE else None) or PUBLISHED.get(part, {}).get(device)


def _elsewhere(part: str) -> float:
    """The error of a part over all devices, each by its figures; of tables on disk, that of tables in host memory."""
    found = PUBLISHED.get(part, PUBLISHED[HOST]).values()
    return sum(each.figures * each.error for each in found) / sum(each.figures for each in found)


def _off(error: float) -> str:
    return f"±{error:.0%}" if error < 1 else f"a factor of {1 + error:.0f}"
