"""Dense layers by Shampoo, as a part of a run: what does not go with that; without torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith.training.run.parts import LAYER_WEIGHTS, LAYERS, NO_LAYERS, Owned, owns


@dataclass(frozen=True)
class FactoredLayers:
    """Dense layers by Shampoo, which keeps statistics of their rows and columns."""

    owns: ClassVar[Owned] = Owned({LAYERS})
    name: str = "shampoo"

    @property
    def label(self) -> str:
        """Its key and name, which may be auto."""
        return f"optimizers.dense.name: {self.name}"

    def refuses(self, other: Any, /) -> str | None:
        """Models without any, and weights in bf16."""
        if other is NO_LAYERS:
            return "optimizers.dense.name is shampoo, and the model has no dense layer with a matrix; use adam"
        if owns(other, LAYER_WEIGHTS):
            return (
                f"shampoo takes roots in fp32, and optimizers.dense.name {other.name} makes dense layers bf16; give "
                "its arguments another optimizer, or train the layers in fp32"
            )
        return None
