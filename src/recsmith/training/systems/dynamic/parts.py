"""What a run with tables of raw ids refuses; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.training.run.parts import COPIED, PlannedTables
from recsmith.training.seams import capabilities as job
from recsmith.training.seams.capabilities import Capabilities, owns

FUSED = ("fused", "fused_uvm", "fused_uvm_caching", "key_value")  # kernels whose rows and state can be redrawn
ON_GPUS = "train on CPUs, or have TorchRec's managed collisions in a job of yours (docs/dynamic.md says how)"


@dataclass(frozen=True)
class RawIds:
    """Tables with raw ids, as a part of a run. tables: their names, if a plan is known."""

    owns: ClassVar[Capabilities] = Capabilities({job.TABLES, job.IDS})
    needs: ClassVar[Capabilities] = Capabilities({job.BAGS, job.STEP, job.EXCHANGE, job.ORDER, job.BETWEEN, job.ON_CPU})
    cures: ClassVar[Mapping[str, str]] = {job.EXCHANGE: "write pipeline: base", job.ON_CPU: ON_GPUS}
    tables: tuple[str, ...] = ()
    label: str = "model.dynamic"

    def refuses(self, other: Any, /) -> str | None:
        """Why this part refuses row stores and plans whose rows cannot be initialized again."""
        if owns(other, job.ROWS) and other.label != "rows: tiered":
            return f"{other.label} keeps rows where model.dynamic does not draw them anew yet; leave one of them out"
        if not isinstance(other, PlannedTables):
            return None
        for placed in other.plan.placements:
            if placed.table in self.tables and placed.sharding_type == COPIED:
                return (
                    f"table '{placed.table}' has raw ids, and the plan copies it to every rank ({COPIED}); rows that "
                    "get other ids are drawn anew in one place, so give it another sharding type"
                )
            if placed.table in self.tables and placed.compute_kernel not in FUSED:
                return (
                    f"table '{placed.table}' has raw ids, and the plan gives it the kernel {placed.compute_kernel}; "
                    "rows that get other ids are drawn anew in fused kernels, so give it compute_kernel: fused"
                )
        return None
