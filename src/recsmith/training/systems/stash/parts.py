"""Tables that rest in a file while dense layers work, as a part of a run: what does not go with it; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recsmith.training.seams.capabilities import (
    BAGS,
    COPIES,
    FP32_TABLES,
    ON_CPU,
    ROWS,
    Capabilities,
    RefusesNothing,
)


@dataclass(frozen=True)
class TablesRest(RefusesNothing):
    """Tables whose memory is away from lookup to update."""

    owns: ClassVar[Capabilities] = Capabilities({ROWS})
    needs: ClassVar[Capabilities] = Capabilities({FP32_TABLES, BAGS, COPIES, ON_CPU})
    cures: ClassVar[Mapping[str, str]] = {
        FP32_TABLES: "give it fp32",
        ON_CPU: "leave rows out there, and plan with --stash weights for TorchRec's own (docs/stashing.md)",
    }
    label: str = "rows: stashed"
