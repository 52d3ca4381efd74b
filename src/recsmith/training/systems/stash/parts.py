"""What stashed tables exclude: other parts of a run that cannot go with them; without torch."""

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
    """Tables whose memory is freed between lookup and update."""

    owns: ClassVar[Capabilities] = Capabilities({ROWS})
    needs: ClassVar[Capabilities] = Capabilities({FP32_TABLES, BAGS, COPIES, ON_CPU})
    cures: ClassVar[Mapping[str, str]] = {
        FP32_TABLES: "give it fp32",
        ON_CPU: "leave rows out there, and plan with --stash weights for TorchRec's own (docs/stashing.md)",
    }
    label: str = "rows: stashed"
