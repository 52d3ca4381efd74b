"""How a sparse copy of a trained model is made, and what its card says of that; without torch."""

from recsmith._types import noun
from recsmith.errors import check_rules, too_small


@noun
class SparsitySettings:
    """How a sparse copy of a trained model is made.

    share: of the weights of linear layers that become zero. masks: steps in which a mask learns which, at most. steps:
    in which the weights that are left are tuned. batch_size: samples of a step. learning_rate: of Adam, which tunes.
    samples: that are read at most, from the first. per_layer: the same share of each layer, to compare.
    """

    share: float = 0.8
    masks: int = 100
    steps: int = 200
    batch_size: int = 512
    learning_rate: float = 1e-3
    samples: int = 200_000
    per_layer: bool = False

    def __post_init__(self) -> None:
        check_rules(
            None if 0 < self.share < 1 else f"share is {self.share}; it lies between 0 and 1",
            too_small("masks", self.masks),
            too_small("steps", self.steps),
            too_small("batch_size", self.batch_size, 1),
            too_small("samples", self.samples, 1),
            None if self.learning_rate > 0 else f"learning_rate is {self.learning_rate}; it must be above 0",
        )


@noun
class Sparsified:
    """What became of a model's linear layers.

    settings: as they were given. samples: that were read. layers: share of zeros of each, by name. weights, zeros: of
    all of them. loss_full, loss: mean log loss on the samples, of the whole model and of its copy. corrupt: samples
    beside them that were left out.
    """

    settings: SparsitySettings
    samples: int
    layers: dict[str, float]
    weights: int
    zeros: int
    loss_full: float
    loss: float
    corrupt: int = 0
