"""Seconds of embedding kernels, forward and backward, from the bytes of memory and of cache that they move.

The kernels are FBGEMM's table-batched ones. Forward, a bag's rows are read, summed and written. Backward, the ids are
sorted so that each different row is updated once, from the gradients of all its reads. A row that was read recently
comes from the second-level cache; how often follows from the table's access profile.

Kernels on host memory read rows over the host link: all rows, or, with a cache on the device, only those of a batch
that the cache lacks. These are fetched before forward, and as many updated rows that they evict are written back.
Row-wise optimizer state is on the device; element-wise state is on the host and never cached. Kernels on a disk work in
the same way with the host's disk, which its ranks share; on CUDA all state is on the device, on CPU it is fetched with
the rows.

Sources: [L] Lin et al., Building a Performance Model for DLRM Training on GPUs (HiPC 2022) and its code,
owensgroup/ml_perf_model; [F] FBGEMM 1.8, fbgemm_gpu/codegen; [T] torchrec 1.8, planner/constants.py. The efficiencies
are calibrated on published figures: docs/cost-models.md lists them, and the model's errors.

Legend: N pieces, M modes.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.errors import UsageError
from recsmith.problems import Problem
from recsmith.sharding import CACHED, DATA_PARALLEL, FUSED, KEY_VALUE, SPLIT_ROWS, UVM, UVM_CACHING
from recsmith.sharding.memory import CACHE_SET, ID_BYTES, OUTPUT_BYTES, STATE_BYTES
from recsmith.sharding.on_disk import disk_seconds, log_seconds
from recsmith.workloads.optimizers import OPTIMIZERS
from recsmith.workloads.reuse import Reuse

SECTOR = 32  # bytes that memory moves at least [L]
L2_SHARE = 0.7  # share of the cache that has its full speed (gpu-benches, a100_80.txt and h100_pcie.txt)
NARROW = ((33, 1.55), (65, 1.1))  # (columns, factor): rows of fewer columns cost this much more [L]
SORT_BYTES = 160  # per id: linear ids, four passes of radix sort over (id, place), run lengths [F]
CACHE_SORT_BYTES = 116  # per id of a cached table: linear ids, four passes of radix sort over them, runs, places [F]
TAG_BYTES = CACHE_SET * ID_BYTES  # read to find a row: the rows in a set of the cache [F]
ELEMENTWISE = 9.22  # passes over a data_parallel table to clear, add and apply its gradient [T]
WEIGHT_BYTES = 4  # bytes of an id's weight, in fp32
FORWARD_EFFICIENCY = 0.75  # share of peak device memory bandwidth: 0.65 to 0.83 are published
BACKWARD_EFFICIENCY = 0.5  # the same: 0.42 to 0.56 by the one published pair of a weighted kernel
LINK_EFFICIENCY = 0.68  # share of the host link's line rate, both directions at once: 0.65 to 0.72 published for PCIe 5
HOT_ROWS = 96.0  # rows of a table in host memory whose reads a cache on the device serves: 64 to 128 fit measurements
CACHE_MANAGEMENT_S = 1.1e-9  # per id of a cached table, in addition to the counted bytes: 0.7 to 1.6 ns fit
CACHE_OVER_MEMORY = 2.5  # speed of cache over device memory, if the device states none: 2.0 to 2.6 are measured

_STATES = np.array([(each.element_states, each.row_states) for each in OPTIMIZERS.values()])  # of each optimizer
_UVM, _UVM_CACHING = UVM.number, UVM_CACHING.number


class Work(NamedTuple):
    """Seconds (N,) of a kernel, which takes the longer of memory and cache seconds, each summed over its tables."""

    memory: Floats
    cache: Floats


class _Piece(NamedTuple):
    """The work of pieces on a rank (N,): ids, bags, different rows, and row reads that miss the second-level cache.

    row, gradient, row_state, state: bytes; `state` is the element-wise one.
    fetched: rows that the UVM cache lacks.
    remote: rows are read where they are, in host memory.
    hosted: rows are stored in host memory.
    stored: rows are on disk.
    """

    ids: Floats
    bags: Floats
    unique: Floats
    missed: Floats
    fetched: Floats
    row: Floats
    gradient: Floats
    row_state: Floats
    state: Floats
    remote: Bools
    hosted: Bools
    stored: Bools


@dataclass(frozen=True)
class EmbeddingKernels:
    """The embedding kernels of a problem: the cost of pieces on a rank, forward and backward.

    unique, fetched (M,): different rows that a covered rank reads for a mode, and those of them that its cache lacks.
    """

    problem: Problem
    reuse: Reuse
    unique: Floats
    fetched: Floats

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The kernels of a problem; UsageError if the device lacks a figure that they need."""
        modes, device = problem.modes, problem.cluster.device
        if device.host_link_bandwidth is None and np.isin(modes.kernel, (_UVM, _UVM_CACHING)).any():
            raise UsageError(
                f"kernels fused_uvm* on device '{device.name}' need its host_link_bandwidth; give it, or use fused"
            )
        if problem.cluster.disk is None and (modes.kernel == KEY_VALUE.number).any():
            raise UsageError(
                f"kernel {KEY_VALUE.name} reads rows from disk; give the cluster its disk (bandwidth, reads_per_s), "
                "which `recsmith measure disk FOLDER` measures"
            )
        reuse = Reuse.of(problem.tables)
        blocks = np.where(np.isin(modes.type, SPLIT_ROWS), modes.coverage, 1)
        lookups = modes.lookups
        fetched, cached = np.zeros(len(blocks)), np.flatnonzero(np.isin(modes.kernel, CACHED))
        held = modes.load_factor * problem.demand.rows[modes.table] * (modes.spread / blocks)
        # all caches of a space have one policy
        missed = reuse.missed_static if modes.static.any() else reuse.missed_rows
        fetched[cached] = missed(modes.table[cached], lookups[cached], held[cached])
        unique = reuse.unique_rows(modes.table, lookups) / modes.row_spread
        return cls(problem, reuse, unique, fetched / modes.row_spread)

    def work(self, modes: Ints, widths: Ints) -> tuple[Work, Work]:
        """Seconds of pieces with these modes and widths (N,), forward and backward."""
        piece = self._piece(modes, widths)
        return self._forward(piece, modes, widths), self._backward(piece, modes, widths)

    def _forward(self, piece: _Piece, modes: Ints, widths: Ints) -> Work:
        """Seconds to read ids, offsets and each id's row, and write each bag's sum: [L] with the hits of `_missed`.

        For cached tables, ids are sorted and looked up first, and rows that the cache lacks are fetched, evicting as
        many others.
        """
        weight = np.where(self._weighted(modes), WEIGHT_BYTES, 0)
        stream = piece.ids * (ID_BYTES + weight) + piece.bags * (ID_BYTES + widths * OUTPUT_BYTES)
        fetched, cached = piece.fetched * piece.row, (piece.hosted & ~piece.remote) | piece.stored
        stream = stream + 2 * fetched + np.where(cached, piece.ids * CACHE_SORT_BYTES + piece.unique * TAG_BYTES, 0.0)
        tags, read = np.where(cached, float(TAG_BYTES), 0.0), np.where(piece.remote, 0.0, piece.row)
        memory = (stream + piece.missed * (read + tags)) / self._memory_speed(FORWARD_EFFICIENCY)
        linked = np.where(piece.stored, 0.0, fetched)
        remote = np.where(piece.remote, self._remote_reads(modes) * piece.row, 0.0) if piece.remote.any() else 0.0
        distant = self._distant(linked + remote, linked) + np.where(cached, piece.ids * CACHE_MANAGEMENT_S, 0.0)
        distant = distant + self._from_disk(piece, modes, widths)
        return Work(memory + distant, (stream + piece.ids * (piece.row + tags)) / self._cache_speed + distant)

    def _backward(self, piece: _Piece, modes: Ints, widths: Ints) -> Work:
        """Seconds to sort ids, read the gradient of each id's bag, read and write each different row and its state [F].

        For weighted features, the gradient of the weights reads rows and gradients once more. data_parallel updates no
        rows but writes, reduces and applies a gradient of the whole table.
        """
        copies = self.problem.modes.type[modes] == DATA_PARALLEL
        touched = np.where(copies, 0.0, 2 * piece.unique)
        update = touched * (piece.row + piece.row_state + piece.state)
        gradients = self._gradients(piece)
        stream = piece.ids * SORT_BYTES + np.where(copies, ELEMENTWISE * self._weights(modes, widths), 0.0)
        again = np.where(self._weighted(modes), 1.0, 0.0)
        reread = again * piece.missed * piece.row
        written = np.where(piece.remote, touched / 2 * piece.row, 0.0)  # as many bytes are read as written
        written += np.where(piece.hosted, touched / 2 * piece.state, 0.0)
        reread_far = np.where(piece.remote, reread, 0.0)
        memory = stream + gradients * (1 + again) + update + reread - 2 * written - reread_far
        cache = stream + piece.ids * piece.gradient * (1 + again) + update + again * piece.ids * piece.row
        distant = self._distant(written + reread_far, written)
        return Work(memory / self._memory_speed(BACKWARD_EFFICIENCY) + distant, cache / self._cache_speed + distant)

    # --- bytes ----------------------------------------------------------------------------------------------------

    def _piece(self, modes: Ints, widths: Ints) -> _Piece:
        table, kernel = self.problem.modes.table[modes], self.problem.modes.kernel[modes]
        row = sectors(widths * self.problem.demand.element_bytes[table]) * _narrow(widths)
        by_element, by_row = _STATES[self.problem.demand.optimizer[table]].T
        return _Piece(
            ids=self.problem.modes.ids[modes], bags=self.problem.modes.bags[modes], unique=self.unique[modes],
            missed=self._missed(modes, row), fetched=self.fetched[modes], row=row,
            gradient=sectors(widths * OUTPUT_BYTES) * _narrow(widths),
            row_state=(by_row * SECTOR).astype(np.float64), state=by_element * sectors(widths * STATE_BYTES),
            remote=kernel == _UVM, hosted=np.isin(kernel, (_UVM, _UVM_CACHING)), stored=kernel == KEY_VALUE.number,
        )  # fmt: skip

    def _missed(self, modes: Ints, row: Floats) -> Floats:
        """Row reads that miss the cache: each different row once, and repeated reads of rows that it does not hold.

        Of the U rows that a batch reads, the cache holds the X hottest. Repeated reads are distributed over them as all
        reads are: the hot share of X rows over that of U. For even access this is X / U, as in [L]. Bags are processed
        table by table, so each table has the cache to itself.
        """
        ids, unique = self.problem.modes.ids[modes], self.unique[modes]
        held: Floats = np.minimum(L2_SHARE * (self.problem.cluster.device.l2_bytes or 0) / row, unique)
        missed, overflowing = unique.copy(), np.flatnonzero(held < unique)
        table = self.problem.modes.table[modes[overflowing]]
        hot = self.hot_share(table, held[overflowing], modes[overflowing])
        all_hot = self._all_hot[modes[overflowing]]
        repeats = np.maximum(ids[overflowing] - unique[overflowing], 0.0)
        missed[overflowing] += repeats * (1 - np.minimum(hot / np.maximum(all_hot, 1e-300), 1.0))
        return missed

    @cached_property
    def _all_hot(self) -> Floats:
        """The share (M,) of a table's reads that its hottest rows have, for as many rows as a batch of a mode reads."""
        return self.hot_share(self.problem.modes.table, self.unique)

    def hot_share(self, table: Ints, rows: Floats, modes: Ints | None = None) -> Floats:
        """The share of a table's reads on its hottest rows, of which each rank holds `rows` in its block (N,).

        If hot rows are scattered, all blocks have their part of them. If one block has them all, its own number counts.
        """
        spread = self.problem.modes.spread if modes is None else self.problem.modes.spread[modes]
        return self.reuse.hot_share(table, rows * spread)

    def crowded(self, modes: Ints, widths: Ints, missing: Floats) -> tuple[Floats, Floats]:
        """Extra seconds of pieces that share the cache with other tables, and the cache space that they take.

        missing (N, h): share of the repeated reads that misses the part of the cache left by other tables; the part
        falls from column to column. Returns seconds (N, h) that memory takes longer forward: in the first column beyond
        `forward`, and in each later one beyond the columns before it; and bytes (N,) of the different rows, if any row
        is read again.
        """
        piece = self._piece(modes, widths)
        alone = (piece.missed - piece.unique)[:, None]
        missed = np.maximum(np.maximum(piece.ids - piece.unique, 0.0)[:, None] * missing, alone)
        more = np.maximum(np.diff(missed, axis=1, prepend=alone), 0.0) * piece.row[:, None]
        again = np.where(piece.ids > piece.unique, piece.unique * piece.row, 0.0)
        return more / self._memory_speed(FORWARD_EFFICIENCY), again

    def _gradients(self, piece: _Piece) -> Floats:
        """Bytes of gradients read from memory: each bag's once; repeated reads come from cache if they fit."""
        size = piece.bags * piece.gradient
        l2 = self.problem.cluster.device.l2_bytes or 0
        cached = np.minimum(1.0, L2_SHARE * l2 / np.maximum(size, 1.0))
        first = np.minimum(piece.ids, piece.bags)
        return (first + (piece.ids - first) * (1 - cached)) * piece.gradient

    def _weights(self, modes: Ints, widths: Ints) -> Floats:
        table = self.problem.modes.table[modes]
        return (self.problem.demand.rows[table] * widths * self.problem.demand.element_bytes[table]).astype(float)

    def _weighted(self, modes: Ints) -> Bools:
        return self.problem.demand.weighted[self.problem.modes.table[modes]]

    # --- speeds ---------------------------------------------------------------------------------------------------

    def _distant(self, read: Floats, written: Floats) -> Floats:
        """Seconds of bytes over the host link, which carries both directions at once."""
        link = self.problem.cluster.device.host_link_bandwidth
        return np.zeros(len(read)) if link is None else np.maximum(read, written) / (link * LINK_EFFICIENCY)

    def from_disk(self, modes: Ints, widths: Ints) -> Floats:
        """Seconds (N,) to fetch rows from the disk, with one row written back for each."""
        return self._from_disk(self._piece(modes, widths), modes, widths)

    def _from_disk(self, piece: _Piece, modes: Ints, widths: Ints) -> Floats:
        cluster, table = self.problem.cluster, self.problem.modes.table[modes]
        if cluster.disk is None:
            return np.zeros(len(modes))
        on_cpu, size = cluster.device.kind == "cpu", (widths * self.problem.demand.element_bytes[table]).astype(float)
        size = size + piece.state if on_cpu else size  # FBGEMM keeps the state of all rows on the device
        ranks, read = cluster.local_world_size, disk_seconds(cluster.disk, size, cluster.local_world_size)
        written = log_seconds(cluster.disk, size, ranks) if on_cpu else read
        return np.where(piece.stored, piece.fetched * (read + written), 0.0)

    def _remote_reads(self, modes: Ints) -> Floats:
        """Ids whose rows are read over the host link: all except those of a table's few hottest rows."""
        hot = self.hot_share(self.problem.modes.table[modes], np.full(len(modes), HOT_ROWS), modes)
        return self.problem.modes.ids[modes] * (1 - np.minimum(hot, 1.0))

    def _memory_speed(self, efficiency: float) -> float:
        return self.problem.cluster.device.hbm_bandwidth * efficiency

    @property
    def _cache_speed(self) -> float:
        device = self.problem.cluster.device
        return device.l2_bandwidth or CACHE_OVER_MEMORY * device.hbm_bandwidth


def plain_modes(problem: Problem) -> Bools:
    """Modes (M,) of fused kernels on the device, pooled and without weights, as in the measurements."""
    table = problem.modes.table
    plain = problem.demand.pooled[table] & ~problem.demand.weighted[table]
    return plain & (problem.modes.kernel == FUSED.number)


def sectors(size: Ints) -> Floats:
    """Bytes rounded up to whole sectors."""
    return (-(-size // SECTOR) * SECTOR).astype(np.float64)


def _narrow(widths: Ints) -> Floats:
    more = np.ones(len(widths))
    for limit, factor in reversed(NARROW):
        more[widths < limit] = factor
    return more
