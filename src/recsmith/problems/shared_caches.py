"""Caches shared by several tables: slots as wide as the widest table, and tables that give up their cache.

FBGEMM makes one cache for all cached tables of a module (kernel fused_uvm_caching), and each slot holds a row of the
widest (max_D_cache of split_table_batched_embeddings_ops_training.py, 1.8). TorchRec puts tables of one collection,
sharding type, data type and pooling into one module (group_tables of distributed/embedding_sharding.py), and separates
widths only if rows are prefetched. So the bytes of a narrow table's cache depend on the other cached tables of its
rank. A search assumes the widest table that it may cache, bounds and proofs count each table alone, and a finished plan
is counted with the widest table that it caches.

Legend: M modes, N placed pieces, W ranks.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.clusters import Cluster
from recsmith.elementary import distinct
from recsmith.problems.modes import Demand, Modes
from recsmith.sharding import UVM, UVM_CACHING
from recsmith.sharding.coverage import covered_ranks
from recsmith.sharding.memory import cache_slots
from recsmith.workloads import Workload

PREFETCHING = "prefetch_sparse_dist"  # the pipeline in which each width has its own cache


def shares_slots(modes: Modes, workload: Workload, cluster: Cluster, accounting: str) -> Bools:
    """Modes (M,) whose cache is shared with tables of other widths."""
    shared = accounting == "real" and cluster.device.kind == "cuda" and workload.pipeline != PREFETCHING
    return (modes.kernel == UVM_CACHING.number) & shared


def slot_widths(modes: Modes, demand: Demand, shared: Bools) -> Ints:
    """Columns (M,) of the widest row that may be in a mode's cache next to its own; 0 if nothing is shared."""
    widest = np.zeros(int(modes.group.max()) + 1, dtype=np.int64)
    np.maximum.at(widest, modes.group[shared], demand.dim[modes.table[shared]])
    return np.where(shared, widest[modes.group], 0)


def too_wide(modes: Modes, demand: Demand, shared: Bools, room: int) -> Bools:
    """Modes (M,) of cached tables so wide that narrower tables need less memory if these have no cache.

    In each module, the tables above one width give up their caches. It is the width at which the module's tables take
    the least bytes, each with its smallest cache or, above, whole. Tables that fit only with a cache keep it.
    room: bytes of the largest device.
    """
    left_out = np.zeros(len(modes.table), dtype=bool)
    weights = modes.head_rows * (demand.dim * demand.element_bytes)[modes.table]
    elsewhere = distinct(modes.table[~shared & ((weights <= room) | (modes.kernel == UVM.number))])
    for group in distinct(modes.group[shared]):
        own = np.flatnonzero(shared & (modes.group == group))
        dim = demand.dim[modes.table[own]]
        if dim.min() == dim.max():
            continue
        least = int(dim[~np.isin(modes.table[own], elsewhere)].max(initial=0))
        smallest = own[np.lexsort((modes.load_factor[own], modes.table[own]))]
        smallest = smallest[np.unique(modes.table[smallest], return_index=True)[1]]
        ceiling = _lightest(modes, demand, smallest, np.unique(dim[dim >= least]))
        left_out[own[dim > ceiling]] = True
    return left_out


def _lightest(modes: Modes, demand: Demand, smallest: Ints, widths: Ints) -> int:
    """The width up to which tables have caches so that all take the least bytes; the widest of equal ones."""
    table = modes.table[smallest]
    slots, dim = cache_slots(modes.head_rows[smallest], modes.load_factor[smallest]), demand.dim[table]
    element, rows = demand.element_bytes[table], modes.head_rows[smallest]

    def weight(ceiling: int) -> float:
        size: Floats = np.where(dim <= ceiling, slots * element * float(ceiling), rows * element * dim.astype(float))
        return float(size.sum())

    return min(widths.tolist(), key=lambda ceiling: (weight(ceiling), -ceiling))


@dataclass(frozen=True)
class SharedSlots:
    """The bytes that a plan's shared caches take less than the search counted.

    shared: modes (M,) that share a cache.
    counted: columns (M,) of a slot as counted by the search.
    """

    modes: Modes
    demand: Demand
    shared: Bools
    counted: Ints

    def saved(self, mode: Ints, width: Ints, target: Ints, ranks: int) -> Ints:
        """Bytes (W,) on each rank that placed pieces (N,) need less because no row as wide as counted is placed."""
        saved = np.zeros(ranks, dtype=np.int64)
        some = np.flatnonzero(self.shared[mode])
        if not some.size:
            return saved
        piece, rank, is_tail = _on_ranks(some, target, self.modes.coverage[mode])
        module = self.modes.group[mode[piece]] * ranks + rank
        widest = np.zeros(int(module.max()) + 1, dtype=np.int64)
        np.maximum.at(widest, module, width[piece])
        at = mode[piece]
        rows = np.where(is_tail, self.modes.tail_rows[at], self.modes.head_rows[at])
        spared = np.maximum(self.counted[at], width[piece]) - widest[module]
        element = self.demand.element_bytes[self.modes.table[at]]
        np.add.at(saved, rank, cache_slots(rows, self.modes.load_factor[at]) * element * spared)
        return saved


def _on_ranks(pieces: Ints, target: Ints, coverage: Ints) -> tuple[Ints, Ints, Bools]:
    """(piece, rank, whether it is the last of the piece) for every rank that these pieces cover."""
    found: list[tuple[Ints, Ints, Bools]] = []
    sizes: list[int] = np.unique(coverage[pieces]).tolist()
    for size in sizes:
        some = pieces[coverage[pieces] == size]
        ranks = covered_ranks(target[some], size)
        last = np.broadcast_to(np.arange(size) == size - 1, ranks.shape)
        found.append((np.repeat(some, size), ranks.ravel(), last.ravel()))
    piece, rank, tail = (np.concatenate(each) for each in zip(*found, strict=True))
    return piece, rank, tail
