"""Samples that come period after period, as parts of a run: what does not go with them; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recsmith.training.seams.capabilities import BAGS, FORMATS, ORDER, STEP, Capabilities, PlainPart, RefusesNothing

IN_PERIODS = PlainPart("data.periods", Capabilities({ORDER}), Capabilities({FORMATS}))


@dataclass(frozen=True)
class MixedPeriods(RefusesNothing):
    """Steps that take a batch of each of several periods, whose losses are weighted: sample by sample, by one loss."""

    needs: ClassVar[Capabilities] = Capabilities({BAGS, STEP})
    cures: ClassVar[Mapping[str, str]] = {STEP: "write incremental or window, or pipeline: base"}
    update: str

    @property
    def label(self) -> str:
        """Its key and name."""
        return f"data.periods.update: {self.update}"
