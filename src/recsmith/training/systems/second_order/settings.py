"""Settings of a refit of a trained model's layers, and its record in the model's card; without torch."""

from dataclasses import field
from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules, too_small


@noun
class RefitSettings:
    """How layers of a trained model are fitted to other data.

    layers: last, the linear layer that makes the logits; dense, all parameters outside tables. method: dance or
    progressive_lbfgs. damping: strength with which new layers are held near the old ones; none: the value with the
    lowest loss on a held-out fifth of the samples. samples: most samples that are read, from the first.
    """

    layers: Literal["last", "dense"] = "last"
    method: Literal["dance", "progressive_lbfgs"] = "dance"
    damping: float | None = None
    samples: int = 200_000

    def __post_init__(self) -> None:
        check_rules(
            None if self.damping is None or self.damping > 0 else f"damping is {self.damping}; it must be above 0",
            too_small("samples", self.samples, 1),
        )


@noun
class Refitted:
    """How layers of a model were fitted to other data.

    settings: as they were given. samples: number of samples fitted to. loss_before, loss: mean log loss of these
    samples under the old and the new layers. damped: the new loss plus the damping term. norm: of the gradient of the
    damped loss. bound: most by which the damped loss exceeds its minimum; none if the problem is not convex. passes:
    forward and backward passes over the samples. damping: the value used. tried: mean log loss of held-out samples by
    damping, and of the `old` layers, if the damping was chosen by them. corrupt: number of further samples that were
    left out.
    """

    settings: RefitSettings
    samples: int
    loss_before: float
    loss: float
    damped: float
    norm: float
    bound: float | None = None
    passes: float = 0.0
    damping: float | None = None
    tried: dict[str, float] = field(default_factory=dict[str, float])
    corrupt: int = 0
