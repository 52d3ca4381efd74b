# pyright: basic
"""Measures kernels on one thread of this machine's CPU (imports torch).

Each is what an operator of a real step is to the profiler: tensors are freshly made by it, other code and data have
passed through the caches, and the thread's own time counts, which other processes disturb least.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from recsmith.prediction.extraction import usual
from recsmith.prediction.graph import Kernel
from recsmith.prediction.kernels.cases import KernelCase
from recsmith.prediction.kernels.embeddings import prepare_embedding
from recsmith.prediction.kernels.other_code import calling_s, other_code, pass_data
from recsmith.prediction.operators import kernel_of

REPETITIONS, LEAST_S = 7, 1e-7  # of a visit; what a kernel takes at least
NAMES = {torch.float32: "float", torch.int64: "long int", torch.int32: "int"}
Visit = Callable[[], list[tuple[Kernel, float]]]


def prepare_kernel(case: KernelCase) -> Visit:
    """What times a case on each call: its kernels and their seconds, of embeddings the forward and the backward one.

    Its tensors are made once.
    """
    return prepare_embedding(case) if case.kind == "embedding" else _prepared(case)


@cache
def _between() -> tuple[Callable[[], None], float]:
    """Other code, and the seconds of a call that does nothing after it."""
    between = other_code()
    return between, calling_s(between)


def _prepared(case: KernelCase) -> Visit:
    name, call, inputs = _operator(case)
    dims = [[list(one.shape) for one in each] if isinstance(each, list) else list(each.shape) for each in inputs]
    types = ["TensorList" if isinstance(each, list) else NAMES[each.dtype] for each in inputs]
    strides = [list(each.stride()) for each in inputs if not isinstance(each, list)]
    kernel = kernel_of(name, case.kind, dims, strides, types, [])._replace(between=float(case.between))
    call()

    between, calling = _between()

    def visit() -> list[tuple[Kernel, float]]:
        spent: list[float] = []
        for _ in range(REPETITIONS):
            pass_data(case.between)
            between()
            begun = time.thread_time()
            call()
            spent.append(time.thread_time() - begun)
        return [(kernel, max(usual(spent) - calling, LEAST_S))]

    return visit


Operator = tuple[str, Callable[[], Any], list[Any]]  # name, call, inputs as the profiler would show them


def _operator(case: KernelCase) -> Operator:
    return {"gemm": _gemm, "interaction": _interaction, "transpose": _transpose, "concat": _concat, "copy": _copy,
            "elementwise": _elementwise, "exponential": _exponential, "reduction": _reduction, "softmax": _softmax,
            "normalisation": _normalisation, "sparse": _sparse}[case.kind](case)  # fmt: skip


def _gemm(case: KernelCase) -> Operator:
    """Forward (the weight is transposed), gradient of the input, gradient of the weight."""
    batch, m, k, n = case.figures
    lead = (batch,) if batch > 1 else ()
    left = torch.rand(*lead, m, k) if case.way != 2 else torch.rand(*lead, k, m).transpose(-1, -2)
    right = torch.rand(*lead, k, n) if case.way != 0 else torch.rand(*lead, n, k).transpose(-1, -2)
    if batch > 1:
        return "aten::bmm", lambda: torch.bmm(left, right), [left, right]
    if case.way == 0:
        bias = torch.rand(n)
        return "aten::addmm", lambda: torch.addmm(bias, left, right), [bias, left, right]
    return "aten::mm", lambda: torch.mm(left, right), [left, right]


def _interaction(case: KernelCase) -> Operator:
    batch, features = case.figures
    products, pairs = torch.rand(batch, features, features), torch.tril_indices(features, features, -1)
    if case.way % 2:
        return "aten::index", lambda: products[:, pairs[0], pairs[1]], [products]
    values = products[:, pairs[0], pairs[1]]
    target = torch.zeros_like(products)
    call = torch.ops.aten._index_put_impl_
    return ("aten::_index_put_impl_", lambda: call(target, [None, pairs[0], pairs[1]], values, True, True),
            [target, values])  # fmt: skip


def _rows(case: KernelCase) -> torch.Tensor:
    return torch.rand(case.figures[0], case.figures[1])


def _transpose(case: KernelCase) -> Operator:
    """A batch of heads, or a matrix, in another order; the copy is what the operator `contiguous` ends in."""
    rows, columns, pieces = case.figures
    source = (torch.rand(rows, columns).t() if case.way % 2
              else torch.rand(max(1, rows // pieces), pieces, columns).transpose(0, 1))  # fmt: skip
    target = torch.empty(source.shape)
    return "aten::copy_", lambda: torch.empty(source.shape).copy_(source), [target, source]


def _concat(case: KernelCase) -> Operator:
    rows, columns, pieces = case.figures
    parts = [torch.rand(max(1, rows // pieces), columns) for _ in range(pieces)]
    return "aten::cat", lambda: torch.cat(parts, dim=1), [parts]


def _copy(case: KernelCase) -> Operator:
    target = _rows(case)
    if case.way % 3 == 0:
        return "aten::fill_", lambda: target.fill_(0.0), [target]
    source = _rows(case)
    return "aten::copy_", lambda: target.copy_(source), [target, source]


def _elementwise(case: KernelCase) -> Operator:
    one, other = _rows(case), _rows(case)
    return [("aten::clamp_min", lambda: torch.relu(one), [one]),
            ("aten::mul", lambda: one * other, [one, other]),
            ("aten::add", lambda: one + other, [one, other]),
            ("aten::threshold_backward", lambda: torch.ops.aten.threshold_backward(one, other, 0), [one, other]),
            ("aten::add_", lambda: one.add_(other, alpha=-0.1), [one, other]),
            ("aten::mul", lambda: one * 2.0, [one])][case.way]  # fmt: skip


def _exponential(case: KernelCase) -> Operator:
    one, other = _rows(case), _rows(case)
    return [
        ("aten::sigmoid", lambda: torch.sigmoid(one), [one]),
        ("aten::tanh", lambda: torch.tanh(one), [one]),
        ("aten::sigmoid_backward", lambda: torch.ops.aten.sigmoid_backward(one, other), [one, other]),
    ][case.way % 3]


def _reduction(case: KernelCase) -> Operator:
    one = _rows(case)
    return "aten::sum", lambda: one.sum(0, keepdim=True), [one]


def _softmax(case: KernelCase) -> Operator:
    one = _rows(case)
    if case.way % 2:
        return "aten::_softmax", lambda: torch.softmax(one, -1), [one]
    answer = torch.softmax(one, -1)
    call = torch.ops.aten._softmax_backward_data
    return "aten::_softmax_backward_data", lambda: call(one, answer, -1, torch.float32), [one, answer]


def _normalisation(case: KernelCase) -> Operator:
    one, scale, shift = _rows(case), torch.rand(case.figures[1]), torch.rand(case.figures[1])
    forward = torch.ops.aten.native_layer_norm
    width = [case.figures[1]]
    if case.way % 2:
        return "aten::native_layer_norm", lambda: forward(one, width, scale, shift, 1e-5), [one, scale, shift]
    _, mean, deviation = forward(one, width, scale, shift, 1e-5)
    call, every = torch.ops.aten.native_layer_norm_backward, [True, True, True]
    return ("aten::native_layer_norm_backward",
            lambda: call(one, one, width, mean, deviation, scale, shift, every),
            [one, one, mean, deviation, scale, shift])  # fmt: skip


def _sparse(case: KernelCase) -> Operator:
    import fbgemm_gpu  # noqa: F401  # pyright: ignore[reportUnusedImport]

    rows, columns, pieces = case.figures
    bags = max(1, rows * columns // (pieces * 4))
    lengths = torch.full((pieces, bags), 4, dtype=torch.int32)
    if case.way % 2:
        flat = lengths.view(-1)
        cumsum = torch.ops.fbgemm.asynchronous_complete_cumsum
        return "fbgemm::asynchronous_complete_cumsum", lambda: cumsum(flat), [flat]
    order, ids = torch.randperm(pieces).int(), torch.randint(0, 1000, (pieces * bags * 4,))
    call = torch.ops.fbgemm.permute_2D_sparse_data
    return ("fbgemm::permute_2D_sparse_data", lambda: call(order, lengths, ids, None, ids.numel()),
            [order, lengths, ids])  # fmt: skip
