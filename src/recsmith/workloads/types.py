"""The sparse optimizers of TorchRec, and what each keeps beside the weights."""

from typing import Literal

from recsmith._types import noun

OptimizerName = Literal["sgd", "adagrad", "rowwise_adagrad", "partial_rowwise_adam", "adam", "lamb"]


@noun
class Optimizer:
    """A sparse optimizer that FBGEMM fuses into the backward kernel.

    element_states: fp32 numbers kept for each weight. row_states: fp32 numbers kept for each row of a shard, so that
    column shards keep one each and train differently from the unsharded table.
    on_cpu: FBGEMM's CPU kernels train it, so that it can be measured and verified without a GPU.
    """

    name: OptimizerName
    element_states: int
    row_states: int
    on_cpu: bool = False

    @property
    def is_row_wise(self) -> bool:
        """Whether it keeps a statistic of each row of a shard."""
        return self.row_states > 0


OPTIMIZERS: dict[str, Optimizer] = {
    each.name: each
    for each in (
        Optimizer(name="sgd", element_states=0, row_states=0, on_cpu=True),
        Optimizer(name="adagrad", element_states=1, row_states=0, on_cpu=True),
        Optimizer(name="rowwise_adagrad", element_states=0, row_states=1, on_cpu=True),
        Optimizer(name="partial_rowwise_adam", element_states=1, row_states=1),
        Optimizer(name="adam", element_states=2, row_states=0),
        Optimizer(name="lamb", element_states=2, row_states=0),
    )
}
CPU_OPTIMIZERS: tuple[OptimizerName, ...] = tuple(each.name for each in OPTIMIZERS.values() if each.on_cpu)
