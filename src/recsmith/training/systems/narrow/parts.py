"""What narrow dense layers exclude: other parts of a run that cannot go with them; without torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from recsmith._components import known
from recsmith.training.optimizers import KIND
from recsmith.training.optimizers.settings import DenseOptimizer
from recsmith.training.seams.capabilities import LAYERS, Capabilities, RefusesNothing

ADAMW_DECAY = 0.01  # the default weight_decay of torch.optim.AdamW
PARKING = ("sgd", "adam", "adamw", "adagrad", "rmsprop")  # without gradient and moments they change no weight


@dataclass(frozen=True)
class LayerOptimizer(RefusesNothing):
    """The optimizer of dense layers, from torch.optim or your own, and its weight decay."""

    name: str
    weight_decay: float = 0.0

    @property
    def label(self) -> str:
        """The setting's key, the optimizer's name and its weight decay."""
        decays = f", weight_decay {self.weight_decay:g}" if self.weight_decay else ""
        return f"optimizers.dense.name: {self.name}{decays}"


@dataclass(frozen=True)
class FewerUnits:
    """Dense layers of which some units are parked for a time, without gradients or moments."""

    owns: ClassVar[Capabilities] = Capabilities({LAYERS})
    instead: ClassVar[str] = "leave model.narrow out"
    label: str = "model.narrow"

    def refuses(self, other: Any, /) -> str | None:
        """Refuse optimizers that may change weights that have no gradient."""
        if isinstance(other, LayerOptimizer) and other.weight_decay:
            return (
                f"optimizers.dense has weight_decay {other.weight_decay:g}, which would shrink the weights of units "
                "that model.narrow parks; write arguments: {weight_decay: 0}, or leave model.narrow out"
            )
        if isinstance(other, LayerOptimizer) and other.name not in PARKING:
            return (
                f"optimizers.dense.name is {other.name}, and model.narrow knows what becomes of parked units under "
                f"{', '.join(PARKING)} alone; use one of these, or leave model.narrow out"
            )
        return None


def optimizer_to_park_under(dense: DenseOptimizer) -> tuple[str, float] | None:
    """(name, weight decay) of the dense optimizer, from torch.optim or your own; None if a system provides it."""
    if {dense.name, (dense.arguments or {}).get("optimizer")} & {*known(KIND)}:
        return None
    decay = (dense.arguments or {}).get("weight_decay", ADAMW_DECAY if dense.name.lower() == "adamw" else 0.0)
    return dense.name.lower(), float(decay)
