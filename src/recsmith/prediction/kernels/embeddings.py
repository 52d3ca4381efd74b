# pyright: basic
"""Measures FBGEMM's embedding kernels on this machine's CPU, as the profiler sees them (imports torch)."""

import torch

from recsmith.prediction.extraction import usual
from recsmith.prediction.graph import Kernel
from recsmith.prediction.kernels.cases import KernelCase
from recsmith.prediction.operators import kind_of

REPETITIONS = 7


def measure_embedding(case: KernelCase) -> list[tuple[Kernel, float]]:
    """The forward and the backward kernel of a case with their seconds; ids are drawn evenly."""
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        OptimType,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    tables, width, bags, pooling, rows = case.figures
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, width, EmbeddingLocation.HOST, ComputeDevice.CPU)] * tables,
        optimizer=OptimType.EXACT_SGD if case.way % 2 else OptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=0.01, device=torch.device("cpu"),
    )  # fmt: skip
    offsets = torch.arange(0, tables * bags * pooling + 1, pooling)
    spent: dict[str, list[float]] = {"embedding_forward": [], "embedding_backward": []}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profiler:
        for _ in range(REPETITIONS + 1):
            module(torch.randint(0, rows, (tables * bags * pooling,)), offsets).sum().backward()
    for event in profiler.events() or ():
        kind = kind_of(event.name)
        if kind in spent:
            spent[kind].append(event.time_range.elapsed_us() * 1e-6)
    ids, all_bags = float(tables * bags * pooling), float(tables * bags)
    shape = (float(tables), ids, all_bags, float(tables * width), float(tables * rows * width))
    return [(Kernel(kind, shape), usual(times[1:])) for kind, times in spent.items() if len(times) > 1]
