"""How layers of a trained model are fitted to other data, and what its card says of that; without torch."""

from dataclasses import field
from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules, too_small


@noun
class RefitSettings:
    """How layers of a trained model are fitted to other data.

    layers: last, the linear one that makes the logits; dense: all that are of no table. method: dance or
    progressive_lbfgs. damping: that holds new layers near the old ones; none: the one that a held-out fifth of the
    samples likes best. samples: that are read at most, from the first.
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

    settings: as they were given. samples: that were read. loss_before, loss: their mean log loss, of the old and of the
    new layers. damped: the new one with what holds it near the old layers. norm: of its gradient. bound: what it is at
    most above its least; none where the problem is not convex. passes: over the samples, forward and backward. damping:
    that was used. tried: mean log loss of held-out samples by damping, and of the `old` layers, where it was picked.
    corrupt: samples beside them that were left out.
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
