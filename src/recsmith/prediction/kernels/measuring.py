# pyright: basic
"""Measures kernels on one thread of this machine's CPU (imports torch).

Each kernel is measured as the profiler sees an operator of a real step: its output tensors are new, other code and data
have passed through the caches, and the thread's own time counts, which other processes disturb least. A kernel that
runs in a loop of its own finds its code in the caches. In a step, dozens of other operators run before it runs again,
and a short kernel then takes up to twice as long.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn

from recsmith.prediction.graph import KernelShape
from recsmith.prediction.kernels import LOOKUPS
from recsmith.prediction.kernels.times import BETWEEN, KernelCase, usual
from recsmith.prediction.operators import ADAGRAD, kernel_of, kind_of

REPETITIONS, LEAST_S = 7, 1e-7  # runs in a visit; the shortest time of a kernel
NAMES = {torch.float32: "float", torch.int64: "long int", torch.int32: "int"}
Visit = Callable[[], list[tuple[KernelShape, float]]]


def prepare_kernel(case: KernelCase) -> Visit:
    """A function that times the kernels of a case on each call; for embeddings, the forward and the backward kernel.

    Its tensors are made once.
    """
    return prepare_embedding(case) if case.kind == "embedding" else _prepared(case)


@cache
def _between() -> tuple[Callable[[], None], float]:
    """Other code that runs before each measurement, and the seconds of timing a call that does nothing."""
    between = other_code()
    return between, calling_s(between)


def kernel_and_call(case: KernelCase) -> tuple[KernelShape, Callable[[], Any]]:
    """The kernel of a case that is no embedding, and a function that runs it; its tensors are on the default device."""
    name, call, inputs = _operator(case)
    dims = [[list(one.shape) for one in each] if isinstance(each, list) else list(each.shape) for each in inputs]
    types = ["TensorList" if isinstance(each, list) else NAMES[each.dtype] for each in inputs]
    strides = [list(each.stride()) for each in inputs if not isinstance(each, list)]
    return kernel_of(name, case.kind, dims, strides, types, [])._replace(between=float(case.between)), call


def _prepared(case: KernelCase) -> Visit:
    kernel, call = kernel_and_call(case)
    call()

    between, calling = _between()

    def visit() -> list[tuple[KernelShape, float]]:
        spent: list[float] = []
        for _ in range(REPETITIONS):
            pass_data(case.between)
            between()
            begun = time.thread_time()
            call()
            spent.append(time.thread_time() - begun)
        return [(kernel, max(usual(spent) - calling, LEAST_S))]

    return visit


Operator = tuple[str, Callable[[], Any], list[Any]]  # name, call, inputs as the profiler would record them


def _operator(case: KernelCase) -> Operator:
    return {"gemm": _gemm, "interaction": _interaction, "transpose": _transpose, "concat": _concat, "copy": _copy,
            "elementwise": _elementwise, "exponential": _exponential, "reduction": _reduction, "softmax": _softmax,
            "normalisation": _normalisation, "sparse": _sparse}[case.kind](case)  # fmt: skip


def _gemm(case: KernelCase) -> Operator:
    """A forward product (the weight is transposed), a gradient of the input, or a gradient of the weight."""
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
    """A batch of heads, or a matrix, in another order; this copy is the work of the operator `contiguous`."""
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


LOOKUP_REPETITIONS = 4  # runs in a visit; the first one warms up
STEADY = 1.1  # wall-clock time over the thread's own time, above which something else has run in between


def prepare_embedding(case: KernelCase) -> Callable[[], list[tuple[KernelShape, float]]]:
    """A function that measures the forward and the backward kernel of a case on each call; ids are drawn evenly.

    The profiler uses wall-clock time, so runs in which the thread was held up are left out, unless all were.
    """
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        OptimType,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    tables, width, bags, pooling, rows = case.figures
    plain = case.way % 2 == 1
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, width, EmbeddingLocation.HOST, ComputeDevice.CPU)] * tables,
        optimizer=OptimType.EXACT_SGD if plain else OptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=0.01, device=torch.device("cpu"),
    )  # fmt: skip
    offsets = torch.arange(0, tables * bags * pooling + 1, pooling)
    ids, all_bags = float(tables * bags * pooling), float(tables * bags)
    shape = (float(tables), ids, all_bags, float(tables * width), float(tables * rows * width))
    kernels = [KernelShape(kind, (*shape, way), float(case.between))
               for kind, way in zip(LOOKUPS, (0.0, 0.0 if plain else ADAGRAD), strict=True)]  # fmt: skip
    between, gradient = other_code(), torch.ones(bags, tables * width)

    def visit() -> list[tuple[KernelShape, float]]:
        spent: dict[str, list[float]] = {kind: [] for kind in LOOKUPS}
        held_up: list[float] = []
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profiler:
            for _ in range(LOOKUP_REPETITIONS):
                pass_data(case.between)
                between()
                drawn = torch.randint(0, rows, (tables * bags * pooling,))
                clock, own = time.perf_counter(), time.thread_time()
                pooled = module(drawn, offsets)
                pass_data(case.between)
                gradient.mul_(1.0)  # another kernel has just made it
                pooled.backward(gradient)
                held_up.append((time.perf_counter() - clock) / max(time.thread_time() - own, 1e-7))
        for event in profiler.events() or ():
            kind = kind_of(event.name)
            if kind in spent:
                spent[kind].append(event.time_range.elapsed_us() * 1e-6)
        steady = [place for place in range(1, LOOKUP_REPETITIONS) if held_up[place] < STEADY] or range(
            1, LOOKUP_REPETITIONS
        )
        return [(kernel, min(spent[kernel.kind][place] for place in steady)) for kernel in kernels
                if len(spent[kernel.kind]) == LOOKUP_REPETITIONS]  # fmt: skip

    return visit


FLOAT = 4  # bytes
EMPTY = 100  # timed calls that do nothing, to measure the cost of calling and timing


def other_code() -> Callable[[], None]:
    """A function that runs some small operators, forward and backward."""
    net = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16), nn.Sigmoid(), nn.Softmax(-1))
    inputs = torch.rand(4, 16)

    def call() -> None:
        with torch.enable_grad():
            found = net(inputs)
            found = torch.cat([found, found.transpose(0, 1).reshape(4, 16)], 1)[:, [1, 3, 5]]
            (found * found).sum().backward()

    return call


@cache
def _data() -> torch.Tensor:
    return torch.zeros(BETWEEN[1] // FLOAT)


def pass_data(size: int) -> None:
    """Move this many bytes, BETWEEN[1] at most, through the caches: half are read, and half written."""
    half = size // (2 * FLOAT)
    _data()[:half].copy_(_data()[half : 2 * half])


def calling_s(between: Callable[[], None]) -> float:
    """Seconds of the thread to call PyTorch and to take the time, which are no part of a kernel."""
    tensor, spent = torch.rand(4), list[float]()
    for _ in range(EMPTY):
        between()
        begun = time.thread_time()
        tensor.is_contiguous()
        spent.append(time.thread_time() - begun)
    return sorted(spent)[EMPTY // 2]
