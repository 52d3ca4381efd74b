# pyright: basic
"""Measures FBGEMM's embedding kernels on this machine's CPU, as the profiler sees them (imports torch)."""

import time
from collections.abc import Callable

import torch

from recsmith.prediction.graph import Kernel
from recsmith.prediction.kernels.cases import KernelCase
from recsmith.prediction.kernels.other_code import other_code, pass_data
from recsmith.prediction.operators import ADAGRAD, kind_of

REPETITIONS = 4  # of a visit; the first one warms up
STEADY = 1.1  # clock over the thread's own time, from which on something else has run in between
KINDS = ("embedding_forward", "embedding_backward")


def prepare_embedding(case: KernelCase) -> Callable[[], list[tuple[Kernel, float]]]:
    """What times the forward and the backward kernel of a case on each call; ids are drawn evenly.

    The profiler goes by the clock, so repetitions in which the thread was held up are left out, unless all were.
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
    kernels = [Kernel(kind, (*shape, way), float(case.between))
               for kind, way in zip(KINDS, (0.0, 0.0 if plain else ADAGRAD), strict=True)]  # fmt: skip
    between, gradient = other_code(), torch.ones(bags, tables * width)

    def visit() -> list[tuple[Kernel, float]]:
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        held_up: list[float] = []
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profiler:
            for _ in range(REPETITIONS):
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
        steady = [place for place in range(1, REPETITIONS) if held_up[place] < STEADY] or range(1, REPETITIONS)
        return [(kernel, min(spent[kernel.kind][place] for place in steady)) for kernel in kernels
                if len(spent[kernel.kind]) == REPETITIONS]  # fmt: skip

    return visit
