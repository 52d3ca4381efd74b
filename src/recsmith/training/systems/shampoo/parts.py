"""Dense layers by Shampoo, as a part of a run: what does not go with them; without torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recsmith.training.seams.capabilities import FP32_WEIGHTS, LAYERS, MATRICES, Capabilities, RefusesNothing


@dataclass(frozen=True)
class FactoredLayers(RefusesNothing):
    """Dense layers by Shampoo, which keeps statistics of their rows and columns, and takes roots of them in fp32."""

    owns: ClassVar[Capabilities] = Capabilities({LAYERS})
    needs: ClassVar[Capabilities] = Capabilities({MATRICES, FP32_WEIGHTS})
    cures: ClassVar[Mapping[str, str]] = {
        MATRICES: "use adam",
        FP32_WEIGHTS: "give its arguments another optimizer, or train the layers in fp32",
    }
    instead: ClassVar[str] = "use adam"
    name: str = "shampoo"

    @property
    def label(self) -> str:
        """Its key and name, which may be auto."""
        return f"optimizers.dense.name: {self.name}"
