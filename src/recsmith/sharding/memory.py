"""What a shard weighs, in two named accountings.

`torchrec` repeats TorchRec 1.8's planner byte for byte (shard_estimators.py), so that its numbers can be compared.
`real` counts what a training job allocates; docs/memory.md holds it against measurements. They differ: TorchRec
under-counts row-wise optimizer state of column shards, counts no gradient for data_parallel, and no sort workspace.

Legend: N pieces; every field is an array (N,).
"""

import math
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints

CACHE_LOAD_FACTOR = 0.2  # share of the rows that fused_uvm_caching keeps on the device; UVM_CACHING_RATIO of TorchRec
ID_BYTES = 8  # ids and offsets are int64 inside FBGEMM
STATE_BYTES = 4  # optimizer state is fp32
OUTPUT_BYTES = 4  # FBGEMM returns fp32
INT8_ROW_HEADER = 8  # bytes of scale and bias per int8 row (FBGEMM INT8_EMB_ROW_DIM_OFFSET)
SORT_BYTES_PER_ID = 36  # FBGEMM transpose_embedding_input: linear ids 8, sorted 8, infos 4 and 4 sorted, runs 8 and 4
PIPELINE_DEPTH = {"none": 1, "sparse_dist": 2, "prefetch_sparse_dist": 3}  # batches of ids in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """What memory depends on, per piece and covered rank.

    rows, width: of the shard; table_rows, table_dim: of the table.
    ids, bags: looked up and returned a step; outputs: TorchRec's estimate of bags, with min(1, pooling factor).
    """

    rows: Ints
    width: Ints
    table_rows: Ints
    table_dim: Ints
    element_bytes: Ints
    ids: Floats
    bags: Floats
    outputs: Floats
    weighted: Bools
    int8: Bools
    data_parallel: Bools
    kernel: Ints
    cache_load_factor: Floats


@dataclass(frozen=True, slots=True)
class Bytes:
    """Device and host bytes per piece and covered rank."""

    device: Ints
    host: Ints


def _ceil(values: Floats) -> Ints:
    return np.ceil(values).astype(np.int64)


def _place(pieces: Pieces, weights: Ints, cached: Ints, buffers: Ints, kernels: tuple[str, ...]) -> Bytes:
    """Weights (with state) live on the device, or on the host for UVM kernels; caches and buffers on the device."""
    uvm = np.isin(pieces.kernel, [kernels.index("fused_uvm"), kernels.index("fused_uvm_caching")])
    caching = pieces.kernel == kernels.index("fused_uvm_caching")
    device = np.where(uvm, np.where(caching, cached, 0), weights) + buffers
    return Bytes(device, np.where(uvm, weights, 0))


def torchrec_bytes(pieces: Pieces, optimizer: str, pipeline: str, kernels: tuple[str, ...]) -> Bytes:
    """Storage as TorchRec 1.8 estimates it: calculate_shard_storages in planner/shard_estimators.py."""
    tensor = pieces.rows * pieces.width * pieces.element_bytes
    weights = tensor + _torchrec_state(tensor, pieces.table_dim, optimizer)
    inputs = _ceil(pieces.ids * ID_BYTES)
    outputs = _ceil(pieces.outputs * pieces.width * pieces.element_bytes)
    caching = pieces.kernel == kernels.index("fused_uvm_caching")
    cached = _torchrec_cache(pieces, caching, optimizer)
    if pipeline == "none":
        buffers = inputs + outputs
    elif pipeline == "sparse_dist":
        buffers = 2 * inputs
    else:  # prefetch_sparse_dist with one prefetch pass
        buffers = 3 * inputs + np.where(caching, 7 * inputs, 0)
    return _place(pieces, weights, cached, buffers, kernels)


def _torchrec_state(tensor: Ints, table_dim: Ints, optimizer: str) -> Ints:
    """Optimizer bytes per TorchRec: a multiple of the weights."""
    return _ceil(tensor * _torchrec_multiplier(table_dim, optimizer))


def _torchrec_multiplier(table_dim: Ints, optimizer: str) -> Floats:
    if optimizer == "rowwise_adagrad":
        return 1 / table_dim
    return np.full(np.shape(table_dim), {"sgd": 0.0, "adam": 2.0}.get(optimizer, 1.0))


def _torchrec_cache(pieces: Pieces, caching: Bools, optimizer: str) -> Ints:
    """Device bytes of a UVM cache and its bookkeeping; exact integers, since TorchRec divides Python's."""
    cached = np.zeros(np.shape(caching), dtype=np.int64)
    for i in np.flatnonzero(caching):
        rows, width, table_rows, dim, element = (
            array.flat[i].item()
            for array in (pieces.rows, pieces.width, pieces.table_rows, pieces.table_dim, pieces.element_bytes)
        )
        factor = pieces.cache_load_factor.flat[i].item()
        tensor = math.ceil(round(table_rows * dim * element * factor) * rows * width / (table_rows * dim))
        state = math.ceil(tensor * _torchrec_multiplier(np.array(dim), optimizer).item())
        cached.flat[i] = tensor + state + math.ceil(rows * (4 + factor * 16))
    return cached


def real_bytes(pieces: Pieces, optimizer: str, pipeline: str, kernels: tuple[str, ...]) -> Bytes:
    """Memory that a training job allocates for a shard at the peak of its step.

    weights + optimizer state per shard (row-wise state once per column shard) + gradient (data_parallel)
    + ids, offsets and id weights of the batches in flight + fp32 outputs + FBGEMM's sort workspace in backward.
    """
    row_bytes = pieces.width * pieces.element_bytes + np.where(pieces.int8, INT8_ROW_HEADER, 0)
    tensor = pieces.rows * row_bytes
    state = _real_state(pieces, optimizer)
    gradient = np.where(pieces.data_parallel, tensor, 0)
    depth = PIPELINE_DEPTH[pipeline]
    id_bytes = ID_BYTES + np.where(pieces.weighted, 4, 0)
    buffers = _ceil(depth * (pieces.ids * id_bytes + pieces.bags * ID_BYTES))
    buffers = buffers + _ceil(pieces.bags * pieces.width * OUTPUT_BYTES) + _ceil(pieces.ids * SORT_BYTES_PER_ID)
    cached_rows = _ceil(pieces.rows * pieces.cache_load_factor)
    cached = cached_rows * (row_bytes + 16) + pieces.rows * 4
    return _place(pieces, tensor + state + gradient, cached, buffers, kernels)


def _real_state(pieces: Pieces, optimizer: str) -> Ints:
    """Optimizer state of a shard: FBGEMM keeps element-wise state per weight and row-wise state per row of a shard."""
    by_element = {"adagrad": 1, "partial_rowwise_adam": 1, "adam": 2, "lamb": 2}.get(optimizer, 0)
    by_row = {"rowwise_adagrad": 1, "partial_rowwise_adam": 1}.get(optimizer, 0)
    return STATE_BYTES * pieces.rows * (by_element * pieces.width + by_row)


ACCOUNTINGS = {"torchrec": torchrec_bytes, "real": real_bytes}
