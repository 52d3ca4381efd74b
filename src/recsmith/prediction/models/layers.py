"""Layers of dense models: what operators each runs, forward and backward.

Legend: B rows, i columns in, o columns out.
"""

from itertools import pairwise

from recsmith.prediction.models.step import Kernel, Step, gemm, moved, summed


def linear(step: Step, rows: int, inward: int, outward: int, *, first: bool = False, folded: bool = False) -> None:
    """A linear layer (B, i) -> (B, o). first: its input needs no gradient. folded: inputs have more than two axes."""
    step.op("aten::linear", gemm(1, rows, inward, outward, 0, 1))

    def backward() -> None:
        inputs = [] if first else [gemm(1, rows, outward, inward)]
        weights = gemm(1, outward, rows, inward, int(outward > 1))
        if folded:
            step.op("ViewBackward0")
        step.op("AddmmBackward0", *inputs, weights, summed(rows, outward))
        step.gradient(outward)
        step.op("TBackward0")
        step.gradient(inward * outward)
        if folded:
            step.op("ViewBackward0")

    step.then_backward(backward)


def plain_product(step: Step, rows: int, inward: int, outward: int, extra: tuple[Kernel, ...] = ()) -> None:
    """A linear layer without bias. extra: kernels at the end of its backward, such as sums of gradients that meet."""
    step.op("aten::linear", gemm(1, rows, inward, outward, 0, 1))

    def backward() -> None:
        step.op("MmBackward0", gemm(1, outward, rows, inward, 1), gemm(1, rows, outward, inward), *extra)
        step.op("TBackward0")
        step.gradient(inward * outward)

    step.then_backward(backward)


def relu(step: Step, elements: int) -> None:
    """A rectifier."""
    step.op("aten::relu", moved("elementwise", elements, elements, way=2))
    step.then_backward(lambda: step.op("ReluBackward0", moved("elementwise", 2 * elements, elements, 2, way=2)))


def perceptron(step: Step, rows: int, sizes: tuple[int, ...], *, first: bool = False, last_relu: bool = False) -> None:
    """Linear layers with a rectifier between them, and behind the last where last_relu."""
    for place, (inward, outward) in enumerate(pairwise(sizes)):
        linear(step, rows, inward, outward, first=first and place == 0)
        if last_relu or place < len(sizes) - 2:
            relu(step, rows * outward)


def loss(step: Step, rows: int) -> None:
    """Binary cross entropy of logits (B, 1), and the start of backward."""
    step.arrange("squeeze")

    def small(read: int) -> Kernel:
        return moved("elementwise", read * rows, rows, read)

    logs = moved("exponential", rows, rows)
    step.op("aten::binary_cross_entropy_with_logits", logs, moved("copy", 0, rows), small(2), small(2), small(2),
            moved("reduction", rows, 1, rows, run=rows), small(1))  # fmt: skip
    step.op("aten::ones_like", moved("copy", 0, 1))
    step.op("BinaryCrossEntropyWithLogitsBackward0", logs, small(2), small(1), small(1))
    step.op("SqueezeBackward1")


def layer_norm(step: Step, rows: int, width: int, *, adds: bool) -> None:
    """A normalisation of (B, width). adds: its input's gradient is added to that of a shortcut."""
    whole = rows * width
    step.op("aten::layer_norm", moved("normalisation", whole + 2 * width, whole, 3, run=width))

    def backward() -> None:
        sums = [moved("elementwise", 2 * whole, whole, 2)] if adds else []
        step.op("NativeLayerNormBackward0", moved("normalisation", 2 * whole + 2 * rows + 2 * width, whole, 6,
                                                     run=width, way=1), *sums)  # fmt: skip
        step.gradient(width)
        step.gradient(width)

    step.then_backward(backward)


def shortcut(step: Step, elements: int) -> None:
    """A sum with an earlier output."""
    step.op("aten::add", moved("elementwise", 2 * elements, elements, 2))
    step.then_backward(lambda: step.op("AddBackward0"))
