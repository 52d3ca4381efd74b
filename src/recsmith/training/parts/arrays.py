"""Several models in one job, as a part of a run: what does not go with that; without torch."""

from dataclasses import dataclass
from typing import Any

from recsmith.training.parts.rows import SplitHalves, TablesInFile
from recsmith.training.parts.run import (
    BACKGROUND,
    BF16_PRODUCTS,
    COMPRESSION,
    Deduplicated,
    FactoredLayers,
    FewerUnits,
    InPeriods,
    LayersByStep,
    Messages,
    NarrowLayers,
    OwnStep,
    OwnTables,
    Sequences,
    is_among,
    not_as_plain,
)
from recsmith.training.parts.towers import TowersOfHosts

NOT_TOGETHER = (
    COMPRESSION, BF16_PRODUCTS, BACKGROUND, Deduplicated, OwnTables, Sequences, InPeriods, LayersByStep, OwnStep,
    NarrowLayers, FactoredLayers, FewerUnits, SplitHalves, TablesInFile, TowersOfHosts,
)  # fmt: skip


@dataclass(frozen=True)
class TrainedTogether:
    """Several models in one job."""

    label: str = "array"

    def refuses(self, other: Any, /) -> str | None:
        """What tables, layers or checkpoints of several models do not have yet, and codecs that mix their columns."""
        if is_among(other, NOT_TOGETHER):
            return f"{other.label} does not go with array yet; leave it out, or write array.together: never"
        if isinstance(other, Messages):
            return not_as_plain(
                other.comms, "array", "comms ask for int8, whose scale is of a sample's vectors of all members; use "
                "fp16 or bf16, or write array.together: never",
            )  # fmt: skip
        return None
