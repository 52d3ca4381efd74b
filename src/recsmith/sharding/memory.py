"""The memory of a shard, in two named accountings.

`torchrec` repeats TorchRec 1.8's planner byte for byte (shard_estimators.py), so that numbers can be compared.
`real` counts what a training job allocates: on CPU compared with measurements (docs/memory.md), on CUDA not measured.
They differ: TorchRec counts too little row-wise optimizer state for column shards, no gradient for data_parallel, and
no sort workspace.

Legend: N pieces; every field is an array (N,).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.elementary import distinct, expm1
from recsmith.sharding.base import FUSED, KERNELS, KEY_VALUE
from recsmith.workloads import Table
from recsmith.workloads.optimizers import OPTIMIZER_NAMES, OPTIMIZERS

CACHE_LOAD_FACTOR = 0.2  # FBGEMM's default share of rows that fused_uvm_caching keeps on the device
# rows; step in which FBGEMM's caches grow (DEFAULT_ASSOC of split_table_batched_embeddings_ops_training.py)
CACHE_SET = 32
CACHE_PER_SLOT = 16  # bytes: which row a slot holds (lxu_cache_state) and when it was last read (lxu_state)
CACHE_PER_ROW = 4  # bytes for each row, cached or not: its table (cache_index_table_map)
CACHE_PER_ID = 4  # bytes: the place in the cache of an id's row (lxu_cache_locations)
DISK_CACHE_PER_ID = 8  # bytes: the address of the id's row (lxu_cache_ptrs of tbe/ssd/training.py)
ROW_COUNTED = ("adam",)  # optimizers for which FBGEMM's tables on disk keep one more number per row (ssd_state_splits)
# For RecSmith's own caches on CPU (training/systems/tiers/cache.py), in bytes:
OWN_PER_SLOT = 25  # which row a slot holds and when it was used (8 each), whether it changed (1), free slots (8)
OWN_PER_ROW = 8  # for each row, cached or not: its slot, and its place in the log of the file (4 each)
LOG_PART = 8  # rows of a table per row of its file's log
OWN_PER_COUNT = 4  # how often a row was read, if the most read rows are kept in the cache
ID_BYTES = 8  # ids and offsets are int64 inside FBGEMM
MANAGED_IDS = 3  # int64 numbers per row of TorchRec's managed collisions: raw id, place, and rank for eviction
STATE_BYTES = 4  # optimizer state is fp32
OUTPUT_BYTES = 4  # FBGEMM returns fp32
INT8_ROW_HEADER = 8  # bytes of scale and bias per int8 row (FBGEMM INT8_EMB_ROW_DIM_OFFSET)
SORT_BYTES_PER_ID = 36  # FBGEMM transpose_embedding_input: linear ids 8, sorted 8, infos 4 and 4 sorted, runs 8 and 4
# Bytes that FBGEMM's backward writes on CPU (csr2csc in embedding_forward_split_cpu.cpp):
CPU_SORT_PER_ID = 16  # keys and rows, 4 each, and their copies in the radix sort
CPU_SORT_PER_WEIGHTED_ID = 36  # keys and (row, weight) pairs twice (24), and rows, weights and segments (12)
CPU_SORT_PER_ROW = 8  # start of a segment and its row, for each distinct id
CPU_WEIGHT_GRADIENT = 4  # for each id weight; computed whether or not it is used
# For sequences: two hash maps of hash maps and one fp32 vector for each distinct id, in glibc blocks
# (split_embedding_nobag_backward_exact_cpu_kernel): nodes 80 + 48 + 80 + 32, buckets 2 x 112, list and tables 8 + 16.
CPU_MAP_PER_ROW = 488
CPU_VECTOR_HEADER = 16  # header of the vector's memory block
PIPELINE_DEPTH = {"none": 1, "sparse_dist": 2, "prefetch_sparse_dist": 3}  # batches of ids in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The quantities that determine memory, per piece and covered rank.

    rows, width: of the shard; table_rows, table_dim: of the table.
    ids, bags: looked up and returned a step; different: rows among the ids (None: as many as evenly drawn ids read,
        the largest possible number); outputs: TorchRec's estimate of bags, with min(1, pooling factor).

    on_cpu: ranks are processes on a CPU that communicate through gloo. Fields for CPU terms only (None: false for all):
    counted: a cache counts how often each row is read;
    sequence: not pooled; mean: FBGEMM pools it with a mean; gathered: gradients come by all-gather (rows are split).

    slot_width: columns of a cache slot, which several tables may share (None: those of the piece itself).
    id_map: bytes per row of the id map of tables with unlimited ids (None: no such tables).
    replicas: ranks that share one copy of fused weights while dense layers run (1: each has its own).
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
    on_cpu: bool = False
    counted: Bools | None = None
    sequence: Bools | None = None
    mean: Bools | None = None
    gathered: Bools | None = None
    slot_width: Ints | None = None
    different: Floats | None = None
    id_map: Ints | None = None
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Bytes:
    """Device and host bytes per piece and covered rank."""

    device: Ints
    host: Ints


def id_map_bytes(table: Table, kind: str) -> int:
    """Bytes per table row of the map from ids to rows, on devices of a kind; 0 if the table's ids are row numbers.

    On CUDA this is MCHManagedCollisionModule (torchrec/modules/mc_modules.py, 1.8), on CPU RecSmith's own map.
    """
    if table.dynamic is None:
        return 0
    return table.dynamic.row_bytes if kind == "cpu" else MANAGED_IDS * ID_BYTES


def _ceil(values: Floats) -> Ints:
    return np.ceil(values).astype(np.int64)


def _place(uvm: Bools, stored: Ints, at_home: Ints) -> Bytes:
    """Bytes by place: `stored` is on the host for UVM kernels, else on the device; `at_home` is on the device."""
    return Bytes(np.where(uvm, 0, stored) + at_home, np.where(uvm, stored, 0))


def _beneath(pieces: Pieces) -> tuple[Bools, Bools]:
    """Which pieces are stored outside device memory, and which of these have a cache on the device."""
    beneath, cached = np.array([(kernel.beneath, kernel.cached) for kernel in KERNELS]).T
    return beneath[pieces.kernel], cached[pieces.kernel]


def _in_slots(pieces: Pieces) -> Bools:
    """Which caches hold rows with their state in RecSmith's own slots: those of tables on disk, on CPU."""
    return (pieces.kernel == KEY_VALUE.number) & pieces.on_cpu


def torchrec_bytes(pieces: Pieces, optimizer: str, pipeline: str) -> Bytes:
    """Storage as TorchRec 1.8 estimates it: calculate_shard_storages in planner/shard_estimators.py."""
    tensor = pieces.rows * pieces.width * pieces.element_bytes
    weights = tensor + _torchrec_state(tensor, pieces.table_dim, optimizer)
    inputs = _ceil(pieces.ids * ID_BYTES)
    outputs = _ceil(pieces.outputs * pieces.width * pieces.element_bytes)
    uvm, caching = _beneath(pieces)
    if pipeline == "none":
        buffers = inputs + outputs
    elif pipeline == "sparse_dist":
        buffers = 2 * inputs
    else:  # prefetch_sparse_dist with one prefetch pass
        buffers = 3 * inputs + np.where(caching, 7 * inputs, 0)
    return _place(uvm, weights, _torchrec_cache(pieces, caching, optimizer) + buffers)


def _torchrec_state(tensor: Ints, table_dim: Ints, optimizer: str) -> Ints:
    """Optimizer bytes according to TorchRec: a multiple of the weights."""
    return _ceil(tensor * _torchrec_multiplier(table_dim, optimizer))


def _torchrec_multiplier(table_dim: Ints, optimizer: str) -> Floats:
    if optimizer == "rowwise_adagrad":
        return 1 / table_dim
    return np.full(np.shape(table_dim), {"sgd": 0.0, "adam": 2.0}.get(optimizer, 1.0))


def _torchrec_cache(pieces: Pieces, caching: Bools, optimizer: str) -> Ints:
    """Device bytes of a UVM cache and its bookkeeping; in exact integers, since TorchRec divides Python integers."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a shard's memory in the `real` accounting, in bytes at the peak of a step."""

    weights: Ints
    state: Ints
    gradient: Ints
    ids: Ints
    outputs: Ints
    sort: Ints


def real_bytes(pieces: Pieces, optimizer: str, pipeline: str) -> Bytes:
    """Memory that a training job allocates for a shard at the peak of its step."""
    parts = real_parts(pieces, optimizer, pipeline)
    uvm, caching = _beneath(pieces)
    at_home = _state_at_home(pieces, parts, optimizer)
    cached = np.where(caching, _real_cache(pieces, optimizer), 0)
    stored = parts.weights + parts.state - at_home + parts.gradient + _log(pieces, optimizer)
    beside = sum(_shared_parts(pieces, parts.weights).values())
    return _place(uvm, stored, at_home + cached + parts.ids + parts.outputs + parts.sort + beside)


def _shared_parts(pieces: Pieces, weights: Ints) -> dict[str, Ints]:
    """Extra bytes of shards whose weights replicas share: a rank's share, and a padded copy.

    There are none if each replica has its own weights. The copy is made for shards whose size the replicas do not
    divide evenly. Source: ShardedBatchedFusedEmbeddingBag._reduce_scatter_weights_async (torchrec 1.8,
    batched_embedding_kernel.py).
    """
    if pieces.replicas == 1:
        return {}
    shared = pieces.kernel == FUSED.number
    odd = (pieces.rows * pieces.width) % pieces.replicas != 0
    return {
        "share": np.where(shared, -(-weights // pieces.replicas), 0),
        "padded": np.where(shared & odd, weights, 0),
    }


def _state_at_home(pieces: Pieces, parts: Parts, optimizer: str) -> Ints:
    """Optimizer state that is always on the device: row-wise state, and all state of FBGEMM's tables on disk.

    RecSmith's own file of rows stores the state next to the rows.
    """
    by_row = np.where(_in_slots(pieces), 0, STATE_BYTES * pieces.rows * OPTIMIZERS[optimizer].row_states)
    return np.where(_on_fbgemm_disk(pieces), parts.state, by_row)


def _on_fbgemm_disk(pieces: Pieces) -> Bools:
    """Which pieces use FBGEMM's kernels for tables on disk, on CUDA."""
    return (pieces.kernel == KEY_VALUE.number) & (not pieces.on_cpu)


def _real_cache(pieces: Pieces, optimizer: str) -> Ints:
    """Device bytes of a cache, either RecSmith's own or FBGEMM's."""
    return np.where(_in_slots(pieces), _own_cache(pieces, optimizer), _fbgemm_cache(pieces))


def _log(pieces: Pieces, optimizer: str) -> Ints:
    """Bytes of the log of a file of rows (training/systems/tiers/tables.py); 0 if there is no such file."""
    rows = np.maximum(1, pieces.rows // LOG_PART)
    state = _real_state(replace(pieces, rows=np.ones_like(pieces.rows)), optimizer)
    return np.where(_in_slots(pieces), rows * (_row_bytes(pieces) + state), 0)


def _own_cache(pieces: Pieces, optimizer: str) -> Ints:
    """Bytes of a cache of training/systems/tiers/cache.py: rows with their state, and bookkeeping."""
    slots = np.maximum(1, np.rint(pieces.rows * pieces.cache_load_factor).astype(np.int64))
    state = _real_state(replace(pieces, rows=np.ones_like(pieces.rows)), optimizer)
    by_row = OWN_PER_ROW + np.where(False if pieces.counted is None else pieces.counted, OWN_PER_COUNT, 0)
    return slots * (_row_bytes(pieces) + state + OWN_PER_SLOT) + pieces.rows * by_row


def _fbgemm_cache(pieces: Pieces) -> Ints:
    """Bytes of an FBGEMM cache: whole sets of rows, and bookkeeping.

    For host memory see `_apply_cache_state` of split_table_batched_embeddings_ops_training.py; for a disk
    tbe/ssd/training.py, with the sets that TorchRec's `_populate_ssd_tbe_params` asks for, or one more.
    """
    slot = pieces.width if pieces.slot_width is None else np.maximum(pieces.width, pieces.slot_width)
    on_disk = _on_fbgemm_disk(pieces)
    by_row = np.where(on_disk, 0, pieces.rows * CACHE_PER_ROW)
    by_id = np.where(on_disk, DISK_CACHE_PER_ID, CACHE_PER_ID)
    slots = cache_slots(pieces.rows, pieces.cache_load_factor)
    return slots * (slot * pieces.element_bytes + CACHE_PER_SLOT) + by_row + _ceil(pieces.ids * by_id)


def cache_slots(rows: Ints, load_factor: Floats) -> Ints:
    """Slots of FBGEMM's caches for tables of `rows` rows: whole sets, at least one."""
    kept = (rows * load_factor).astype(np.int64)
    return CACHE_SET * np.maximum(1, -(-kept // CACHE_SET))


def real_parts(pieces: Pieces, optimizer: str, pipeline: str) -> Parts:
    """The parts of the `real` accounting: state for each column shard, gradients of data_parallel, ids in flight."""
    weights = pieces.rows * _row_bytes(pieces)
    id_bytes = ID_BYTES + np.where(pieces.weighted, 4, 0)
    ids = PIPELINE_DEPTH[pipeline] * (pieces.ids * id_bytes + pieces.bags * _bag_bytes(pieces))
    outputs = _ceil(pieces.bags * pieces.width * OUTPUT_BYTES)
    if pieces.on_cpu:
        outputs = outputs * np.where(_flag(pieces.gathered), 2, 1)  # gloo's all-gather fills a flat copy first
    return Parts(
        weights=weights,
        state=_real_state(pieces, optimizer),
        gradient=np.where(pieces.data_parallel, _dense_gradient(pieces, weights), 0),
        ids=_ceil(ids) + (0 if pieces.id_map is None else pieces.rows * pieces.id_map),
        outputs=outputs,
        sort=_ceil(_cpu_sort(pieces) if pieces.on_cpu else pieces.ids * SORT_BYTES_PER_ID),
    )


def _flag(values: Bools | None) -> Bools:
    return np.zeros(1, dtype=bool) if values is None else values


def _row_bytes(pieces: Pieces) -> Ints:
    return pieces.width * pieces.element_bytes + np.where(pieces.int8, INT8_ROW_HEADER, 0)


def _bag_bytes(pieces: Pieces) -> Ints:
    """Bytes per bag: its offset, and on CPU also its length; 0 for CPU sequences: they have far fewer bags than ids."""
    if not pieces.on_cpu:
        return np.full(np.shape(pieces.bags), ID_BYTES)
    return np.where(_flag(pieces.sequence), 0, 2 * ID_BYTES)


def _dense_gradient(pieces: Pieces, weights: Ints) -> Ints:
    """The gradient in DDP's bucket; on CPU, as measured, also FBGEMM's own in fp32 and its cast to narrower weights."""
    if not pieces.on_cpu:
        return weights
    cast = np.where(pieces.element_bytes < STATE_BYTES, weights, 0)
    return weights + pieces.rows * pieces.width * STATE_BYTES + cast


def _cpu_sort(pieces: Pieces) -> Floats:
    """Bytes that FBGEMM's backward writes on CPU to group equal ids; the dense kernel adds without sorting."""
    distinct = pieces.different if pieces.different is not None else -pieces.rows * expm1(-pieces.ids / pieces.rows)
    weighted = pieces.weighted | _flag(pieces.mean)
    pooled = pieces.ids * np.where(weighted, CPU_SORT_PER_WEIGHTED_ID, CPU_SORT_PER_ID) + distinct * CPU_SORT_PER_ROW
    pooled = pooled + pieces.ids * np.where(pieces.weighted, CPU_WEIGHT_GRADIENT, 0)
    rows = distinct * (CPU_MAP_PER_ROW + CPU_VECTOR_HEADER + pieces.width * OUTPUT_BYTES)
    return np.where(pieces.data_parallel, 0.0, np.where(_flag(pieces.sequence), rows, pooled))


def _real_state(pieces: Pieces, optimizer: str) -> Ints:
    """Optimizer state of a shard: FBGEMM keeps element-wise state per weight and row-wise state per row of a shard."""
    kept = OPTIMIZERS[optimizer]
    counters = np.where(_on_fbgemm_disk(pieces), int(optimizer in ROW_COUNTED), 0)
    return STATE_BYTES * pieces.rows * (kept.element_states * pieces.width + kept.row_states + counters)


def device_parts(accounting: str, pieces: Pieces, optimizer: str, pipeline: str) -> dict[str, Ints]:
    """The device bytes of an accounting by content; they add up to those of `ACCOUNTINGS[accounting]`.

    `torchrec` does not separate optimizer state from weights, nor ids from outputs.
    """
    uvm, caching = _beneath(pieces)
    if accounting == "torchrec":
        total = torchrec_bytes(pieces, optimizer, pipeline).device
        cache = _torchrec_cache(pieces, caching, optimizer)
        tensor = pieces.rows * pieces.width * pieces.element_bytes
        weights = np.where(uvm, 0, tensor + _torchrec_state(tensor, pieces.table_dim, optimizer))
        return {"weights and optimizer state": weights, "cache": cache, "ids and outputs": total - weights - cache}
    parts = real_parts(pieces, optimizer, pipeline)
    at_home = _state_at_home(pieces, parts, optimizer)
    return {
        "weights": np.where(uvm, 0, parts.weights),
        "optimizer state": np.where(uvm, 0, parts.state - at_home) + at_home,
        "gradients": np.where(uvm, 0, parts.gradient),
        "cache": np.where(caching, _real_cache(pieces, optimizer), 0),
        "ids": parts.ids,
        "outputs": parts.outputs,
        "sorting": parts.sort,
    } | _shared_parts(pieces, parts.weights)


def bytes_of(accounting: str, pieces: Pieces, optimizer: Ints, pipeline: str) -> Bytes:
    """Bytes of pieces in an accounting. optimizer: index in OPTIMIZER_NAMES for each piece (N,)."""

    def of(name: str) -> dict[str, Ints]:
        made = ACCOUNTINGS[accounting](pieces, name, pipeline)
        return {"device": made.device, "host": made.host}

    return Bytes(**_by_optimizer(optimizer, of))


def device_parts_of(accounting: str, pieces: Pieces, optimizer: Ints, pipeline: str) -> dict[str, Ints]:
    """Device bytes of an accounting by content, for pieces with different optimizers, as in `bytes_of`."""
    return _by_optimizer(optimizer, lambda name: device_parts(accounting, pieces, name, pipeline))


def _by_optimizer(optimizer: Ints, of: Callable[[str], dict[str, Ints]]) -> dict[str, Ints]:
    """The result of an accounting for pieces (N,), each under its own optimizer."""
    numbers = distinct(optimizer).tolist() or [0]
    made = of(OPTIMIZER_NAMES[numbers[0]])
    for number in numbers[1:]:
        mine = of(OPTIMIZER_NAMES[number])
        made = {what: np.where(optimizer == number, mine[what], values) for what, values in made.items()}
    return made


ACCOUNTINGS = {"torchrec": torchrec_bytes, "real": real_bytes}
