"""The settings of a sparse copy of a trained model, and what its card says of it; without torch."""

from recsmith._types import noun
from recsmith.errors import check_rules, too_small


@noun
class SparsitySettings:
    """How a sparse copy of a trained model is made.

    share: share of the weights of linear layers that become zero. masks: most steps in which a mask learns which
    weights to keep. steps: steps in which the remaining weights are tuned. batch_size: samples of a step.
    learning_rate: of Adam, for tuning. samples: most samples that are read, from the first on. per_layer: whether each
    layer loses the same share, to compare.
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
    """The linear layers of a sparse copy.

    settings: as they were given. samples: number of samples that were read. layers: share of zeros of each layer, by
    name. weights, zeros: numbers over all layers. loss_full, loss: mean log loss on the samples, of the whole model and
    of its copy. corrupt: number of corrupt samples that were skipped.
    """

    settings: SparsitySettings
    samples: int
    layers: dict[str, float]
    weights: int
    zeros: int
    loss_full: float
    loss: float
    corrupt: int = 0
