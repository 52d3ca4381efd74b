"""The likely error of a prediction, by published figures and by our own measurements.

A plan stores it (`Plan.error`), so that plan file, terminal, report, page and comparisons agree;
recsmith.costs.published computes it.
"""

import math

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.units import counted

LEARNED, DEVICE, HOST, DISK = "measured kernels", "device memory", "host memory", "tables on disk"
COLLECTIVES = "collectives"


@noun
class PublishedTimes:
    """Published or measured times of one part of a step on a device: their number, their sources, and the error.

    laboratories: number of sources; 0 for kernels that we measured and a learned model covers (docs/benchmarks/gpu.md).
    error: geometric mean of the ratio between predicted and measured times, less 1: 0.2 is 20 %. For kernels priced by
        a learned model, the median error; for other kernels that we measured and that have a spread, the median excess
        of measured over predicted time.
    spread: what remains of the error, as a geometric mean, if all times differ by a common factor, which does not
        affect the choice between plans; 0 if it is not known separately.
    """

    figures: int
    laboratories: int
    error: float
    spread: float = 0.0

    def __str__(self) -> str:
        if not self.laboratories:
            off = f"{self.error:+.0%}" if self.spread else _off(self.error)
            return f"{off} ({counted(self.figures, 'measured group')})"
        alone = ", one laboratory" if self.laboratories == 1 else ""
        by = "by " if self.error >= 1 else ""
        return f"{by}{_off(self.error)} ({counted(self.figures, 'published time')}{alone})"


@noun
class PublishedError:
    """The likely error of a prediction, by measured or published times of its parts.

    device: name in the catalogue.
    checked: the known times of the parts that the plan uses on this device.
    unchecked: parts without known times.
    share: relative error of the step, weighted by each part's seconds; an unchecked part of cost model `analytic` has
        its mean error on all other devices, and of other cost models 0.
    spread: the same, with each part's spread if known.
    known_by: the cost model that learned these kernels, if it is another one.
    """

    device: str
    checked: dict[str, PublishedTimes]
    unchecked: tuple[str, ...]
    share: float
    spread: float
    known_by: str = ""
    scaled_from: str = ""

    def __post_init__(self) -> None:
        if not (0 <= self.share < math.inf and 0 <= self.spread < math.inf):
            raise UsageError(f"the error of a prediction is {self.share}, {self.spread}; both must be 0 or more")

    def __str__(self) -> str:
        total = "" if self.unchecked else f" by about {self.off}"
        return f"the step may be off{total}: {self.reasons}"

    @property
    def reasons(self) -> str:
        """What is known of each part, and which parts are unchecked, as text."""
        found = ", ".join(_words(part, seen) for part, seen in self.checked.items())
        are = "are" if len(self.unchecked) > 1 or {COLLECTIVES, DISK} & set(self.unchecked) else "is"
        missing = f"{' and '.join(self.unchecked)} {are} not checked on {self.device}" if self.unchecked else ""
        better = f"cost model {self.known_by} knows its kernels" if self.known_by else ""
        scaled = f"kernels are {self.scaled_from}'s as measured, scaled by this device's figures"
        said = (found, missing, better, scaled if self.scaled_from else "")
        return "; ".join(each for each in said if each)

    def interval(self, seconds: float) -> tuple[float, float]:
        """The range of seconds of a step that is off by the share in either direction."""
        return seconds / (1 + self.share), seconds * (1 + self.share)

    @property
    def off(self) -> str:
        """The share as text."""
        return f"{_off(self.share).lstrip('±')}{' or more' if self.unchecked else ''}"

    @property
    def apart(self) -> str:
        """The least difference between plans that the model can distinguish, as text."""
        return f"{_off(self.spread).lstrip('±')}{' or more' if self.unchecked else ''}"

    def ties(self, difference: float) -> bool:
        """Whether steps that differ by this share of the smaller one are too close for the model to distinguish."""
        return difference <= self.spread


def _words(part: str, seen: PublishedTimes) -> str:
    if part != LEARNED:
        return f"{part} {seen}"
    return f"{part} ±{seen.error:.1%} ({counted(seen.figures, 'held-out group')})"


def _off(error: float) -> str:
    return f"±{error:.0%}" if error < 1 else f"a factor of {1 + error:.0f}"
