"""A step of each kind of model: DLRM and DLRM-DCN, a multi-layer perceptron, and a small transformer encoder.

Models with tables run under TorchRec, with tables that are placed whole or by columns: ids are sent to the ranks that
hold their tables, pooled rows are sent back, and gradients are sent like ids.

Legend: B samples of a rank, W ranks, F features of all tables, D columns of each; S places of a sequence, w width, H
heads.
"""

from recsmith._types import record
from recsmith.prediction.graph import KernelShape, Kind
from recsmith.prediction.models import Model
from recsmith.prediction.models.step import (
    CollectiveMark,
    Step,
    gemm,
    layer_norm,
    linear,
    loss,
    moved,
    perceptron,
    plain_product,
    relu,
    shortcut,
    summed,
)

ID, LENGTH = 8, 4  # bytes of an id, and of the length of a bag


@record
class RankTables:
    """The tables of a rank. ids: per sample of all its features; columns: of their outputs, summed.

    all_ids, all_columns, features: of all ranks. width: columns of a feature.
    """

    ranks: int
    tables: int
    elements: float
    ids: float
    columns: int
    all_ids: float
    all_columns: int
    features: int
    width: int


def sparse_step(model: Model, tables: RankTables, batch: int) -> Step:
    """A step of DLRM, or of DLRM-DCN."""
    step = Step()
    perceptron(step, batch, (model.dense_features, *model.bottom, tables.width), first=True, last_relu=True)
    if tables.ranks > 1:
        _ids_to_tables(step, tables, batch)
    else:
        step.arrange("empty to lift_fresh detach_ view to")
    _lookup(step, tables, batch)
    both = (tables.features + 1) * tables.width
    step.arrange("split_with_sizes")
    joined = moved("concat", batch * tables.all_columns, batch * tables.all_columns, tables.features)
    step.op("aten::cat", joined)

    def backward() -> None:
        for name in ("Unsqueeze", "View", "Cat"):
            parts = [moved("elementwise", 2 * batch * tables.width, batch * tables.width, 2)]
            step.op(f"{name}Backward0", *(parts if name == "Unsqueeze" and model.kind == "dlrm" else []))
        step.op("SplitWithSizesBackward0", joined)

    step.then_backward(backward)
    step.arrange("reshape unsqueeze")
    step.op("aten::cat", moved("concat", batch * both, batch * both, 2))
    inward = (
        dots(step, tables.features, tables.width, batch) if model.kind == "dlrm" else _crosses(step, model, both, batch)
    )
    perceptron(step, batch, (inward, *model.top, 1))
    loss(step, batch)
    step.backward()
    step.finish(copied=False)
    return step


def _ids_to_tables(step: Step, tables: RankTables, batch: int) -> None:
    """Exchange the numbers of ids, then their lengths, then the ids; they are sorted by feature before and after."""
    lengths = batch * max(tables.features, tables.tables * tables.ranks)
    ids = batch * max(tables.all_ids, tables.ids * tables.ranks)
    tensor_ops = "empty to lift_fresh detach_"
    here = KernelShape("sparse", (LENGTH * (tables.features + lengths) + ID * batch * tables.all_ids,
                             ID * batch * tables.all_ids, 3.0, 0.0, 0.0))  # fmt: skip
    step.arrange("view")
    step.op("fbgemm::permute_2D_sparse_data", here)
    step.arrange(f"view {tensor_ops} {tensor_ops} {tensor_ops} empty")
    step.op("aten::stack", KernelShape("concat", (8.0 * 3, 8.0 * 3, 3.0, 1.0, 0.0)))
    step.arrange("flatten")
    splits = step.start("all_to_all", 8.0 * 3 * tables.ranks)
    step.op("c10d::alltoall_base_", splits)
    step.op("aten::view", CollectiveMark(Kind.AWAIT, splits.collective))
    step.arrange(f"numpy_T resolve_conj resolve_neg view numpy_T resolve_conj resolve_neg {tensor_ops} empty")
    sent = step.start("all_to_all", LENGTH * lengths)
    step.op("c10d::alltoall_base_", sent)
    step.arrange("empty")
    values = step.start("all_to_all", ID * ids)
    step.op("c10d::alltoall_base_", values)
    step.op("aten::view", CollectiveMark(Kind.AWAIT, sent.collective))
    step.op("fbgemm::permute_2D_sparse_data", CollectiveMark(Kind.AWAIT, values.collective), here)
    step.arrange("view view")
    step.op("aten::sum", summed(tables.features, lengths / tables.features))
    step.arrange("resolve_conj resolve_neg view to")
    step.op(
        "fbgemm::asynchronous_complete_cumsum", KernelShape("sparse", (float(LENGTH * lengths),) * 2 + (1.0, 0.0, 1.0))
    )


def _lookup(step: Step, tables: RankTables, batch: int) -> None:
    """The fused lookup, and the exchange that sends its outputs to the ranks of their samples."""
    whole = batch * tables.ranks
    ids, bags = whole * tables.ids, whole * tables.tables
    shape = (float(tables.tables), ids, float(bags), float(tables.columns), tables.elements, 0.0)
    step.op("aten::to", moved("copy", bags, 2 * bags))
    step.arrange("to to")
    step.op("fbgemm::bounds_check_indices", KernelShape("sparse", (8.0 * (ids + bags), 8.0 * ids, 4.0, 0.0, 0.0)))
    step.op("fbgemm::split_embedding_codegen_lookup_sgd_function_pt2", moved("copy", 0, 0),
            KernelShape("embedding_forward", shape))  # fmt: skip

    def backward() -> None:
        step.op("torch::autograd::CppNode<SplitLookupFunction_sgd_Op_pt2>", KernelShape("embedding_backward", shape))
        step.op("torch::autograd::AccumulateGrad")
        step.op("torch::autograd::AccumulateGrad")

    step.then_backward(backward)
    if tables.ranks > 1:
        _rows_to_samples(step, tables, batch)


def _rows_to_samples(step: Step, tables: RankTables, batch: int) -> None:
    out, home = batch * tables.ranks * tables.columns, batch * tables.all_columns
    size = 4.0 * max(out, home)
    step.arrange("empty")
    step.op("aten::zeros_like", moved("copy", 0, 1))
    sent = step.start("all_to_all", size)
    step.op("All2All_Pooled_Req", moved("copy", out, out), sent)
    joined = moved("concat", home, home, tables.ranks)
    step.op("All2All_Pooled_Wait", CollectiveMark(Kind.AWAIT, sent.collective), joined)

    def backward() -> None:
        part = moved("copy", home // tables.ranks, home // tables.ranks)
        back = step.start("all_to_all", size)
        step.op("All2All_Pooled_WaitBackward", *[part] * tables.ranks, joined, back)
        step.op(
            "All2All_Pooled_ReqBackward", CollectiveMark(Kind.AWAIT, back.collective), moved("elementwise", out, out)
        )

    step.then_backward(backward)


def dots(step: Step, features: int, width: int, batch: int) -> int:
    """DLRM's products of all pairs of features and of the dense part; returns the columns of the last layers' input."""
    count = features + 1
    pairs = count * (count - 1) // 2
    whole, square, out = batch * count * width, batch * count**2, width + pairs
    step.arrange("transpose")
    step.op("aten::bmm", gemm(batch, count, width, count, 0, 1))
    step.arrange("select select")
    step.op("aten::index", moved("interaction", square, square))
    step.op("aten::cat", moved("concat", batch * out, batch * out, 2))

    def backward() -> None:
        step.op("CatBackward0")
        step.op("IndexBackward0", moved("copy", 0, square), moved("interaction", square + batch * pairs,
                                                                  batch * pairs, 2, way=1))  # fmt: skip
        step.op("BmmBackward0", gemm(batch, width, count, count, 1), gemm(batch, count, count, width))
        step.op("TransposeBackward0", moved("elementwise", 2 * whole, whole, 2))
        step.op("CatBackward0")

    step.then_backward(backward)
    return out


def _crosses(step: Step, model: Model, width: int, batch: int) -> int:
    """DCN's low-rank cross layers of (B, width); returns the width."""
    whole = batch * width
    twice = moved("elementwise", 2 * whole, whole, 2)
    step.arrange("reshape")

    def ended() -> None:
        step.op("ViewBackward0")
        step.op("CatBackward0")

    step.then_backward(ended)
    for layer in range(model.cross_layers):
        plain_product(step, batch, width, model.cross_rank, (twice,))
        plain_product(step, batch, model.cross_rank, width)

        def backward(layer: int = layer) -> None:
            last = layer == model.cross_layers - 1
            step.op("AddBackward0", *([] if last else [twice]))
            step.op("MulBackward0", twice, twice, *([] if last else [twice]))
            step.op("AddBackward0", summed(batch, width))
            step.gradient(width)

        step.op("aten::add", moved("elementwise", whole + width, whole, 2))
        step.op("aten::mul", twice)
        step.op("aten::add", twice)
        step.then_backward(backward)
    return width


def mlp_step(model: Model, batch: int) -> Step:
    """A step of a perceptron (B, dense_features) -> (B, 1)."""
    step = Step()
    perceptron(step, batch, (model.dense_features, *model.layers, 1), first=True)
    loss(step, batch)
    step.backward()
    step.finish(copied=True)
    return step


def transformer_step(model: Model, batch: int) -> Step:
    """A step of blocks of attention and perceptron with shortcuts, the mean over the sequence, and a linear layer."""
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
