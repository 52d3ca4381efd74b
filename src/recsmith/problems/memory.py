"""The bytes of pieces in the constraints' accounting, caches that save no memory, and a rank's own batch.

Legend: N pieces, M modes.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.problems.constraints import Constraints
from recsmith.problems.modes import Demand, Modes
from recsmith.problems.shared_caches import SharedSlots, shares_slots, slot_widths, too_wide
from recsmith.sharding import CACHED, DATA_PARALLEL, FUSED, SHARDING_TYPES, SPLIT_ROWS, UVM_CACHING, WIDTH_STEP
from recsmith.sharding.memory import (
    ID_BYTES,
    PIPELINE_DEPTH,
    Bytes,
    Pieces,
    bytes_of,
    device_parts_of,
    id_map_bytes,
)
from recsmith.workloads import Table, Workload

ROUNDED = {"torchrec": 4, "real": 0}  # bytes by which rounding can move an accounting off a straight line over widths

BAG_BYTES = 16  # a length and an offset of each bag, int64 each
OUTPUT_BYTES = 4  # embeddings arrive as fp32


@dataclass(frozen=True)
class MemoryModel:
    """The bytes of pieces of modes on a device and on its host, in the constraints' accounting.

    shared: modes (M,) whose cache is shared with tables of other widths.
    uncached: those of them that searches leave out, because they would widen the slots of other tables.
    slots: columns (M,) of the widest row in the shared cache.
    id_maps: bytes per row of each table's id map (T,); None if no table has unlimited ids.
    replicas: as in `Pieces`.
    """

    demand: Demand
    modes: Modes
    workload: Workload
    on_cpu: bool
    accounting: str
    shared: Bools
    uncached: Bools
    slots: Ints
    id_maps: Ints | None
    replicas: int = 1

    @classmethod
    def of(
        cls, workload: Workload, cluster: Cluster, constraints: Constraints, demand: Demand, modes: Modes,
        tables: tuple[Table, ...],
    ) -> "MemoryModel":  # fmt: skip
        """The memory model of a problem, from the parts of the problem."""
        shared = shares_slots(modes, workload, cluster, constraints.memory)
        uncached = too_wide(modes, demand, shared, max(cluster.capacities))
        slots = slot_widths(modes, demand, shared & ~uncached)
        maps = np.array([id_map_bytes(table, cluster.device.kind) for table in tables], dtype=np.int64)
        kind, accounting = cluster.device.kind, constraints.memory
        return cls(
            demand, modes, workload, kind == "cpu", accounting, shared, uncached, slots, maps if maps.any() else None,
            cluster.job_world_size // cluster.world_size if cluster.fully_sharded else 1,
        )  # fmt: skip

    def bytes_of(self, modes: Ints, widths: Ints, *, alone: bool = False) -> tuple[Bytes, Bytes]:
        """(head, tail) bytes (N,) of pieces with these modes and widths; alone: no wider table shares their caches."""
        head, tail = self.modes.head_rows[modes], self.modes.tail_rows[modes]
        return self._bytes_of(modes, widths, head, alone), self._bytes_of(modes, widths, tail, alone)

    def parts_of(self, modes: Ints, widths: Ints) -> tuple[dict[str, Ints], dict[str, Ints]]:
        """(head, tail) device bytes (N,) of pieces by content; they add up to those of `bytes_of`."""
        ends = (self.modes.head_rows[modes], self.modes.tail_rows[modes])
        head, tail = (
            device_parts_of(self.accounting, self._pieces(modes, widths, rows), self._optimizer(modes), self._pipeline)
            for rows in ends
        )
        return head, tail

    def _bytes_of(self, index: Ints, widths: Ints, rows: Ints, alone: bool) -> Bytes:
        pieces = self._pieces(index, widths, rows, alone)
        return bytes_of(self.accounting, pieces, self._optimizer(index), self._pipeline)

    def _optimizer(self, modes: Ints) -> Ints:
        return self.demand.optimizer[self.modes.table[modes]]

    @property
    def _pipeline(self) -> str:
        plain = self.accounting == "torchrec" and self.on_cpu  # TorchRec counts no pipeline on CPU
        return "none" if plain else self.workload.pipeline

    def _pieces(self, index: Ints, widths: Ints, rows: Ints, alone: bool = False) -> Pieces:
        demand, modes, table, kind = self.demand, self.modes, self.modes.table[index], self.modes.type[index]
        drawn = self.accounting == "real"  # TorchRec counts means
        ids = (modes.most_ids if drawn else modes.ids)[index]
        return Pieces(
            rows=rows, width=widths, table_rows=demand.rows[table], table_dim=demand.dim[table],
            element_bytes=demand.element_bytes[table], ids=ids, different=modes.most_rows[index],
            bags=np.where(drawn & ~demand.pooled[table], ids, modes.bags[index]), outputs=modes.outputs[index],
            weighted=demand.weighted[table], int8=demand.int8[table],
            data_parallel=kind == DATA_PARALLEL, kernel=modes.kernel[index],
            cache_load_factor=modes.load_factor[index], counted=modes.static[index], on_cpu=self.on_cpu,
            sequence=~demand.pooled[table], mean=demand.mean[table],
            gathered=np.isin(kind, SPLIT_ROWS) & demand.pooled[table], slot_width=None if alone else self.slots[index],
            id_map=None if self.id_maps is None else self.id_maps[table], replicas=self.replicas,
        )  # fmt: skip

    def needless_caches(self) -> Bools:
        """Modes (M,) whose cache takes no less device memory than the whole table, or than a larger cache of it.

        The alternative misses less, needs no more host memory, and runs in the same fusion group, so it can replace the
        mode in any plan. Bytes grow linearly with the width, so only the narrowest and the widest piece are compared.
        """
        modes = np.arange(len(self.modes.table))
        dim = self.demand.dim[self.modes.table]
        sizes = [
            end.device
            for width in (np.full_like(dim, WIDTH_STEP), dim)
            for end in self.bytes_of(modes, width, alone=True)
        ]
        needless = np.zeros(len(modes), dtype=bool)
        for better in (self._whole(), self._larger()):
            found = np.flatnonzero((better >= 0) & np.isin(self.modes.kernel, CACHED))
            heavy = [size[found] >= size[better[found]] + ROUNDED[self.accounting] for size in sizes]
            needless[found] |= np.logical_and.reduce(heavy)
        return needless

    @property
    def mixed(self) -> bool:
        """Whether caches are shared by tables of several widths, so that a table's bytes depend on other tables."""
        return bool(self.uncached.any() or (self.slots > self.demand.dim[self.modes.table]).any())

    @property
    def widest_slot(self) -> str:
        """A sentence on why tables of several widths take much memory in one cache, with a remedy; '' if they do not.

        It names the table with the most rows among those whose slots are wider than their rows.
        """
        wider = np.flatnonzero(self.slots > self.demand.dim[self.modes.table])
        if not wider.size:
            return ""
        mode = int(wider[np.argmax(self.demand.rows[self.modes.table[wider]])])
        return (
            f"FBGEMM makes one cache for all {UVM_CACHING.name} tables of a kernel, with slots as wide as the widest "
            f"of them, here up to {int(self.slots[mode])} columns for a table of "
            f"{int(self.demand.dim[self.modes.table[mode]])}; keep wide tables out of it by a rule "
            "(compute_kernels: [fused, fused_uvm]), or train with pipeline: prefetch_sparse_dist, which keeps widths "
            "apart"
        )

    def saved(self, mode: Ints, width: Ints, target: Ints, ranks: int) -> Ints:
        """Device bytes (W,) by which `bytes_of` overestimates placed pieces (N,) because no wider row is placed."""
        return SharedSlots(self.modes, self.demand, self.shared, self.slots).saved(mode, width, target, ranks)

    def _whole(self) -> Ints:
        """The fused mode (M,) of the same table and type; -1 if there is none."""
        key = self.modes.table * len(SHARDING_TYPES) + self.modes.type
        at = np.full(int(key.max()) + 1, -1)
        fused = np.flatnonzero(self.modes.kernel == FUSED.number)
        at[key[fused]] = fused
        return at[key]

    def _larger(self) -> Ints:
        """The mode (M,) with the next larger cache; -1 if there is none."""
        after = np.arange(1, len(self.modes.table) + 1) % len(self.modes.table)
        names = ("table", "type", "kernel")
        same = np.logical_and.reduce([getattr(self.modes, name)[after] == getattr(self.modes, name) for name in names])
        return np.where(same & (after > 0), after, -1)


def kept_modes(modes: Modes, kept: Bools) -> Modes:
    """The modes reduced to those in `kept`."""
    return replace(modes, **{field.name: getattr(modes, field.name)[kept] for field in fields(modes)})


def local_batch_bytes(table: Table, workload: Workload) -> tuple[float, float]:
    """(bytes of ids, lengths and offsets, bytes of outputs) that a table adds to the local batch of a step."""
    return _local_bytes((table,), workload)


def batch_bytes(workload: Workload, world_size: int) -> int:
    """Bytes of a rank's own batches, of the embeddings returned to it for one batch, and of their gradients.

    Gradients that are sent by an all-to-all count twice (TorchRec sorts them by rank). A single rank sends nothing: its
    lookups, which planning counts, are its outputs.
    """
    ids, outputs = _local_bytes(workload.tables, workload)
    return int(outputs if world_size == 1 else PIPELINE_DEPTH[workload.pipeline] * ids + 3 * outputs)


def forward_bytes(workload: Workload, world_size: int) -> int:
    """Bytes of a rank's own batches and embeddings while layers compute, in addition to the counted lookups.

    Outputs of lookups are freed by then, and embeddings of the same size have returned; the rest is copies of rows for
    repeated ids.
    """
    ids, _ = _local_bytes(workload.tables, workload)
    demand = Demand.of(workload, workload.tables)
    again = np.where(demand.repeats > 1, demand.ids * demand.repeats * demand.dim, 0.0).sum() * OUTPUT_BYTES
    return int(again + (0 if world_size == 1 else PIPELINE_DEPTH[workload.pipeline] * ids))


def _local_bytes(tables: tuple[Table, ...], workload: Workload) -> tuple[float, float]:
    demand = Demand.of(workload, tables)
    features = sum(len(table.features) for table in tables)
    # a batch has all ids, and their indices among the different ones
    given, once = demand.ids * demand.repeats, demand.repeats > 1
    ids = float((given * np.where(demand.weighted, 12, 8)).sum()) + workload.batch_size * features * BAG_BYTES
    ids += float((np.where(once, demand.ids + given, 0.0)).sum()) * ID_BYTES
    bags = demand.bags + np.where(once, given, 0.0)  # returned rows, and one copy for each id
    return ids, float((bags * demand.dim).sum()) * OUTPUT_BYTES
