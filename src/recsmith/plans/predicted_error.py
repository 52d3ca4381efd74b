"""How far a prediction may be off: by figures that others have published, and by measurements of ours.

A plan carries it (`Plan.error`), so that its file, the terminal, the report, the page and comparisons say the same;
recsmith.costs.published works it out.
"""

import math

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.units import counted

LEARNED, DEVICE, HOST, DISK = "measured kernels", "device memory", "host memory", "tables on disk"
COLLECTIVES = "collectives"


@noun
class PublishedTimes:
    """Published figures of a part of a step on a device: how many, by how many laboratories, and the error.

    laboratories: 0 where they are kernels that we measured, which a learned model knows (docs/benchmarks/gpu.md).
    error: the geometric mean of how far predicted and measured are apart, less 1: 0.2 is 20 %; of kernels that a
    learned model priced, the median; of others that we measured, by how much they took longer at the median, where
    there is a spread. spread: what is left of it, as a geometric mean, where all take longer by the same factor, which
    decides between no plans; 0 where that is not known apart from the error.
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
    """How far a prediction may be off, by what was measured or published of its parts.

    device: of the catalogue. checked: what is known of the parts that the plan uses on this device. unchecked: parts of
    which nothing is. share: of the step, each part by its seconds and error; an unchecked part of cost model `analytic`
    by the error that it has on the other devices, all of them together, and of others by 0. spread: the same, with each
    part's spread where it is known. known_by: the cost model that learned these kernels, where that is another.
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
        """What is known of each part, and what is not, in words."""
        found = ", ".join(_words(part, seen) for part, seen in self.checked.items())
        are = "are" if len(self.unchecked) > 1 or {COLLECTIVES, DISK} & set(self.unchecked) else "is"
        missing = f"{' and '.join(self.unchecked)} {are} not checked on {self.device}" if self.unchecked else ""
        better = f"cost model {self.known_by} knows its kernels" if self.known_by else ""
        scaled = f"kernels are {self.scaled_from}'s as measured, scaled by this device's figures"
        said = (found, missing, better, scaled if self.scaled_from else "")
        return "; ".join(each for each in said if each)

    def interval(self, seconds: float) -> tuple[float, float]:
        """Between which seconds a step lies that is off by the share, either way."""
        return seconds / (1 + self.share), seconds * (1 + self.share)

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


def _words(part: str, seen: PublishedTimes) -> str:
    if part != LEARNED:
        return f"{part} {seen}"
    return f"{part} ±{seen.error:.1%} ({counted(seen.figures, 'held-out group')})"


def _off(error: float) -> str:
    return f"±{error:.0%}" if error < 1 else f"a factor of {1 + error:.0f}"
