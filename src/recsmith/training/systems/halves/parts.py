"""What weights in two halves exclude: other parts of a run that cannot go with them; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.training.run.parts import TableOptimizer
from recsmith.training.seams.capabilities import (
    BAGS,
    BF16_PRODUCTS_NEEDED,
    FP32_TABLES,
    FP32_WEIGHTS,
    LAYER_WEIGHTS,
    LAYERS,
    ON_CPU,
    ONE_PLACE,
    ROWS,
    Capabilities,
    RefusesNothing,
)
from recsmith.workloads.optimizers import SPLIT_OPTIMIZERS


@dataclass(frozen=True)
class HalfLayers(RefusesNothing):
    """Dense layers with bf16 weights, trained by an optimizer that keeps the rest of each weight."""

    owns: ClassVar[Capabilities] = Capabilities({LAYERS, LAYER_WEIGHTS})
    needs: ClassVar[Capabilities] = Capabilities({BF16_PRODUCTS_NEEDED})
    lacks: ClassVar[Capabilities] = Capabilities({FP32_WEIGHTS})
    cures: ClassVar[Mapping[str, str]] = {BF16_PRODUCTS_NEEDED: "write model.precision: bf16 beside it"}
    name: str

    @property
    def label(self) -> str:
        """The setting's key and the optimizer's name."""
        return f"optimizers.dense.name: {self.name}"

    @property
    def stands(self) -> str:
        """What the optimizer does to weights, for errors."""
        return f"optimizers.dense.name {self.name} makes dense layers bf16"


@dataclass(frozen=True)
class SplitHalves:
    """Tables whose weights are stored in two halves of 16 bits."""

    owns: ClassVar[Capabilities] = Capabilities({ROWS})
    needs: ClassVar[Capabilities] = Capabilities({FP32_TABLES, BAGS, ON_CPU, ONE_PLACE})
    cures: ClassVar[Mapping[str, str]] = {
        FP32_TABLES: "leave its data_type out, and lookups read bf16",
        ON_CPU: "leave rows out there, and give tables data_type fp16",
        ONE_PLACE: "use a plan without data_parallel, or leave rows out",
    }
    label: str = "rows: split"

    def refuses(self, other: Any, /) -> str | None:
        """Refuse table optimizers that cannot update halves."""
        if isinstance(other, TableOptimizer) and other.name not in SPLIT_OPTIMIZERS:
            return f"rows: split has no form of {other.name}; use {' or '.join(SPLIT_OPTIMIZERS)}, or leave rows out"
        return None
