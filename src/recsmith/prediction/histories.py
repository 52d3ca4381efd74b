"""Seconds of the layers of a model of histories in a step: products at each position, and attention between them.

Products are kernels of the learned machine, as those of other dense layers are (speeds.py). The additional time of
attention was fitted to 21 small shapes by CPU seconds, on a core that others used too, and is checked on other shapes
(docs/sequences.md).

B samples of a rank, n positions of a sample
"""

import math
from functools import lru_cache

from recsmith._types import record
from recsmith.prediction.models.build import tape_of
from recsmith.prediction.models.step import Step, gemm, linear, moved
from recsmith.prediction.speeds import core

NUMBER_BYTES = 4
SCORE_FLOPS = 280  # operations of a score besides its two products, forward: a third of SCORE_S at 50 GFLOP/s of a core
GROUP_S = 2.8e-4  # seconds of the samples of one length in a layer: some sixty small operators, forward and backward
SCORE_S = 1.7e-8  # seconds of a score: bias, activation, mask and their gradients, besides the two products
MOVED_S = 2.4e-8  # seconds of a number of a position in a layer of attention: split by length, joined again, gathered
WEIGHED_S = 8e-9  # seconds of a number of an event that is weighed without attention
DEALT_S = 5.4e-6  # seconds of a sample if samples are distributed to ranks by work: a sort of as many numbers as ranks
PASSES = 14  # operators at each number of a position in a layer: norms, gates, sums, dropout
DIFFER = 3  # samples of a batch for each different length, at least
KEPT = 4  # scores, biases, activations and masked ones of attention that the backward pass reads


@record
class HistoryWork:
    """The work of the layers of a model on a sample.

    products: (rows, outputs, inputs) of each linear layer. blocks: number of blocks of attention; heads, and columns of
    a head in keys and in values; positions: number of the mean sample; pairs: of its positions, the mean of squares;
    different: number of different lengths in a batch, 0 if unknown; width: columns of a position.
    """

    products: tuple[tuple[float, int, int], ...]
    blocks: int = 0
    heads: int = 1
    keys: int = 0
    values: int = 0
    positions: float = 0.0
    pairs: float = 0.0
    different: float = 0.0
    width: int = 1

    @property
    def kept_numbers(self) -> float:
        """Numbers of a sample's outputs that the backward pass reads."""
        outputs = sum(2 * rows * outward for rows, outward, _ in self.products)
        return outputs + KEPT * self.blocks * self.heads * self.pairs

    @property
    def pair_work(self) -> float:
        """The work of a pair of events over that of an event, so that n events take n + pair_work n^2."""
        event = sum(2 * outward * inward for rows, outward, inward in self.products if rows == self.positions)
        pair = self.blocks * self.heads * (2 * (self.keys + self.values) + SCORE_FLOPS)
        return pair / event if self.blocks and event else 0.0


@lru_cache(maxsize=64)
def history_layers_s(work: HistoryWork, batch_size: int) -> float:
    """Seconds of the forward and backward pass of these layers on a core, with the host's work between kernels."""
    step = Step()
    for rows, outward, inward in work.products:
        many = max(1, round(batch_size * rows))
        linear(step, many, inward, outward)
        _elementwise(step, many * outward, 1)
    for _ in range(max(1, work.blocks)):
        _elementwise(step, batch_size * work.positions * work.width, PASSES)
    for _ in range(work.blocks):
        _attention(step, work, batch_size)
    step.backward()
    lengths, scores = work.different or min(work.positions, batch_size / DIFFER), batch_size * work.heads * work.pairs
    numbers = batch_size * work.positions * work.width
    beside = work.blocks * (GROUP_S * lengths + SCORE_S * scores + MOVED_S * numbers)
    beside += 0 if work.blocks else WEIGHED_S * numbers
    return beside + sum(event.seconds for event in tape_of(step.ops, core()))


def _attention(step: Step, work: HistoryWork, batch_size: int) -> None:
    n, both = max(1, round(math.sqrt(work.pairs))), batch_size * work.heads
    step.op("aten::matmul", gemm(both, n, work.keys, n, 0, 1))
    step.then_backward(lambda: step.op("BmmBackward0", gemm(both, n, n, work.keys), gemm(both, n, n, work.keys, 1)))
    step.op("aten::matmul", gemm(both, n, n, work.values))
    step.then_backward(
        lambda: step.op("BmmBackward0", gemm(both, n, work.values, n, 0, 1), gemm(both, n, n, work.values, 1))
    )


def _elementwise(step: Step, elements: float, times: int) -> None:
    """Add an operator at each number, forward and backward, this many times."""
    for _ in range(times):
        step.op("aten::silu", moved("elementwise", elements, elements))
        step.then_backward(lambda: step.op("SiluBackward0", moved("elementwise", 2 * elements, elements, 2)))
