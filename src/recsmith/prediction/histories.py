"""What the layers of a model of histories take of a step: products at each position, and attention between them.

Kernels are those of the learned machine, as for other dense layers (speeds.py). All samples count with the mean
history, though attention grows by its square: a job whose lengths differ takes longer.

B samples of a rank, n positions of a sample
"""

from functools import lru_cache

from recsmith._types import record
from recsmith.prediction.models.build import tape_of
from recsmith.prediction.models.step import Step, gemm, linear, moved
from recsmith.prediction.speeds import core

NUMBER_BYTES = 4
KEPT = 4  # scores, biases, activations and masked ones of attention that backward reads


@record
class HistoryWork:
    """The layers of a model, for a sample.

    products: (rows, outputs, inputs) of each linear layer. blocks: of attention; heads, and columns of a head in keys
    and in values; positions: of the mean sample. biases: what is added to scores: by place, by time.
    """

    products: tuple[tuple[float, int, int], ...]
    blocks: int = 0
    heads: int = 1
    keys: int = 0
    values: int = 0
    positions: float = 0.0
    biases: int = 0

    @property
    def kept_numbers(self) -> float:
        """Outputs that backward reads, of a sample."""
        outputs = sum(2 * rows * outward for rows, outward, _ in self.products)
        return outputs + KEPT * self.blocks * self.heads * self.positions**2

    @property
    def attention_flops(self) -> float:
        """Products and sums of attention of a sample, forward."""
        return 2 * self.blocks * self.heads * (self.keys + self.values) * self.positions**2


@lru_cache(maxsize=64)
def history_layers_s(work: HistoryWork, batch_size: int) -> float:
    """Seconds of the forward and backward pass of these layers on a core, with what the host does between kernels."""
    step = Step()
    for rows, outward, inward in work.products:
        many = max(1, round(batch_size * rows))
        linear(step, many, inward, outward)
        _elementwise(step, many * outward, 1)
    for _ in range(work.blocks):
        _attention(step, work, batch_size)
    step.backward()
    return sum(event.seconds for event in tape_of(step.ops, core()))


def _attention(step: Step, work: HistoryWork, batch_size: int) -> None:
    n, both = max(1, round(work.positions)), batch_size * work.heads
    step.op("aten::matmul", gemm(both, n, work.keys, n, 0, 1))
    step.then_backward(lambda: step.op("BmmBackward0", gemm(both, n, n, work.keys), gemm(both, n, n, work.keys, 1)))
    _elementwise(step, both * n * n, 3 + work.biases)
    step.op("aten::matmul", gemm(both, n, n, work.values))
    step.then_backward(
        lambda: step.op("BmmBackward0", gemm(both, n, work.values, n, 0, 1), gemm(both, n, n, work.values, 1))
    )


def _elementwise(step: Step, elements: float, times: int) -> None:
    """An operator at each number, forward and backward, so many times."""
    for _ in range(times):
        step.op("aten::silu", moved("elementwise", elements, elements))
        step.then_backward(lambda: step.op("SiluBackward0", moved("elementwise", 2 * elements, elements, 2)))
