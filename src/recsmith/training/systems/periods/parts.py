"""Samples that come period after period, as parts of a run: what does not go with them; without torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.training.run.parts import BAGS, ORDER, STEP, Owned, OwnSource, owns


@dataclass(frozen=True)
class InPeriods:
    """Samples that come period after period."""

    owns: ClassVar[Owned] = Owned({ORDER})
    label: str = "data.periods"

    def refuses(self, other: Any, /) -> str | None:
        """Sources of the user's, whose order is their own."""
        if isinstance(other, OwnSource):
            return "data.periods cuts data of a format, and data.train names a source, whose order is its own; drop one"
        return None


@dataclass(frozen=True)
class MixedPeriods:
    """Steps that take a batch of each of several periods, whose losses are weighted."""

    update: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"data.periods.update: {self.update}"

    def refuses(self, other: Any, /) -> str | None:
        """Features that are looked up once for several samples, and steps of the user's, whose loss is their own."""
        if owns(other, BAGS):
            return (
                f"data.periods.update {self.update} weights the losses of samples, and data.deduplicate does not keep "
                "the samples of several periods apart yet; drop one of them"
            )
        if owns(other, STEP):
            return (
                f"data.periods.update {self.update} weights the losses of samples, and pipeline {other.name} has a "
                "loss of its own, which may not; write incremental or window, or pipeline: base"
            )
        return None
