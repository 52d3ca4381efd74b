"""A step of models without tables: a multi-layer perceptron, and a small transformer encoder.

Legend: B samples, S places of a sequence, w width, H heads.
"""

from recsmith.prediction.models.description import Model
from recsmith.prediction.models.layers import layer_norm, linear, loss, perceptron, relu, shortcut
from recsmith.prediction.models.step import Step, gemm, moved


def mlp_step(model: Model, batch: int) -> Step:
    """A perceptron of (B, dense_features) -> (B, 1)."""
    step = Step()
    perceptron(step, batch, (model.dense_features, *model.layers, 1), first=True)
    loss(step, batch)
    step.backward()
    step.finish(copied=True)
    return step


def transformer_step(model: Model, batch: int) -> Step:
    """Blocks of attention and perceptron with shortcuts, the mean over the sequence, and a linear layer."""
    step, whole = Step(), batch * model.sequence * model.width
    for block in range(model.blocks):
        _block(step, model, batch, first=block == 0)
    step.op("aten::mean", moved("reduction", whole + batch * model.width, (model.sequence + 1) * model.width, batch,
                                   run=model.width),
        moved("elementwise", batch * model.width, batch * model.width))  # fmt: skip
    step.then_backward(lambda: step.op("MeanBackward1", moved("elementwise", whole, whole)))
    linear(step, batch, model.width, 1)
    loss(step, batch)
    step.backward()
    step.finish(copied=True)
    return step


def _block(step: Step, model: Model, batch: int, *, first: bool) -> None:
    rows, width = batch * model.sequence, model.width
    layer_norm(step, rows, width, adds=not first)
    linear(step, rows, width, 3 * width, folded=True)
    _attention(step, batch, model.sequence, width, model.heads)
    linear(step, rows, width, width, folded=True)
    shortcut(step, rows * width)
    layer_norm(step, rows, width, adds=True)
    linear(step, rows, width, model.hidden, folded=True)
    relu(step, rows * model.hidden)
    linear(step, rows, model.hidden, width, folded=True)
    shortcut(step, rows * width)


def _attention(step: Step, batch: int, sequence: int, width: int, heads: int) -> None:
    """softmax(Q K' / sqrt(w / H)) V of each head, from one tensor (B, S, 3 w)."""
    whole, scores, each = batch * sequence * width, batch * heads * sequence**2, width // heads
    both = batch * heads
    laid = moved("transpose", whole, whole, width, run=each)
    step.arrange("view permute unbind transpose")
    step.op("aten::matmul", laid, laid, gemm(both, sequence, each, sequence))
    step.op("aten::mul", moved("elementwise", scores, scores))
    step.op("aten::softmax", moved("softmax", scores, scores, run=sequence))
    step.op("aten::matmul", laid, gemm(both, sequence, sequence, each))
    step.arrange("transpose")
    step.op("aten::reshape", laid)

    def names(text: str) -> None:
        for name in text.split():
            step.op(f"{name}Backward0")

    def backward() -> None:
        names("UnsafeView Clone Transpose")
        step.op("UnsafeViewBackward0", laid)
        step.op("BmmBackward0", gemm(both, sequence, sequence, each, 1), gemm(both, sequence, each, sequence, 0, 1))
        names("UnsafeView Clone Expand View Expand")
        step.op("SoftmaxBackward0", moved("softmax", 2 * scores, scores, 2, run=sequence, way=1))
        step.op("MulBackward0", moved("elementwise", scores, scores))
        names("UnsafeView")
        step.op("BmmBackward0", gemm(both, each, sequence, sequence, 1), gemm(both, sequence, sequence, each, 0, 1))
        names("UnsafeView Clone Expand UnsafeView Clone Expand Transpose")
        step.op("UnbindBackward0", moved("concat", 3 * whole, 3 * whole, 3, run=each))
        names("Permute")
        step.op("ViewBackward0", moved("transpose", 3 * whole, 3 * whole, sequence * each, run=each))

    step.then_backward(backward)
