"""What pieces weigh, and which modes are never worth their weight.

Legend: N pieces, M modes.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.clusters import Cluster
from recsmith.problems.demand import Demand
from recsmith.problems.modes import Modes
from recsmith.problems.space import Constraints
from recsmith.sharding import FUSED, SHARDING_TYPES, TYPE_NAMES, UVM_CACHING, WIDTH_STEP
from recsmith.sharding.memory import ACCOUNTINGS, Bytes, Pieces
from recsmith.workloads import Workload

ROUNDED = {"torchrec": 4, "real": 0}  # bytes by which a weight may lie beside a straight line over the widths

_SPLIT_ROWS = [i for i, sharding in enumerate(SHARDING_TYPES) if sharding.splits_rows]


@dataclass(frozen=True)
class Scales:
    """Weighs pieces of modes, in the constraints' accounting."""

    demand: Demand
    modes: Modes
    workload: Workload
    on_cpu: bool
    accounting: str

    @classmethod
    def of(
        cls, workload: Workload, cluster: Cluster, constraints: Constraints, demand: Demand, modes: Modes
    ) -> "Scales":
        """The scales of a problem's parts."""
        return cls(demand, modes, workload, cluster.device.kind == "cpu", constraints.memory)

    def weigh(self, modes: Ints, widths: Ints) -> tuple[Bytes, Bytes]:
        """(head, tail) bytes (N,) of pieces of these modes and widths."""
        head, tail = self.modes.head_rows[modes], self.modes.tail_rows[modes]
        return self._weigh(modes, widths, head), self._weigh(modes, widths, tail)

    def _weigh(self, index: Ints, widths: Ints, rows: Ints) -> Bytes:
        demand, modes, table, kind = self.demand, self.modes, self.modes.table[index], self.modes.type[index]
        pieces = Pieces(
            rows=rows, width=widths, table_rows=demand.rows[table], table_dim=demand.dim[table],
            element_bytes=demand.element_bytes[table], ids=modes.ids[index], bags=modes.bags[index],
            outputs=modes.outputs[index], weighted=demand.weighted[table], int8=demand.int8[table],
            data_parallel=kind == TYPE_NAMES.index("data_parallel"), kernel=modes.kernel[index],
            cache_load_factor=modes.load_factor[index], on_cpu=self.on_cpu,
            sequence=~demand.pooled[table], mean=demand.mean[table],
            gathered=np.isin(kind, _SPLIT_ROWS) & demand.pooled[table],
        )  # fmt: skip
        plain = self.accounting == "torchrec" and self.on_cpu  # TorchRec counts no pipeline there
        pipeline = "none" if plain else self.workload.pipeline
        return ACCOUNTINGS[self.accounting](pieces, self.workload.optimizer, pipeline)

    def needless(self) -> Bools:
        """Caches (M,) that weigh no less on the device than the whole table, or than a larger cache of it.

        What they are compared with misses less, needs no more host memory, and runs in the same fusion group: it takes
        their place in any plan. Weights grow evenly with the width, so the narrowest and the widest piece decide.
        """
        modes = np.arange(len(self.modes.table))
        dim = self.demand.dim[self.modes.table]
        weights = [end.device for width in (np.full_like(dim, WIDTH_STEP), dim) for end in self.weigh(modes, width)]
        needless = np.zeros(len(modes), dtype=bool)
        for better in (self._whole(), self._larger()):
            found = np.flatnonzero((better >= 0) & (self.modes.kernel == UVM_CACHING.number))
            heavy = [weight[found] >= weight[better[found]] + ROUNDED[self.accounting] for weight in weights]
            needless[found] |= np.logical_and.reduce(heavy)
        return needless

    def _whole(self) -> Ints:
        """The fused mode (M,) of the same table and type; -1 where there is none."""
        key = self.modes.table * len(SHARDING_TYPES) + self.modes.type
        at = np.full(int(key.max()) + 1, -1)
        fused = np.flatnonzero(self.modes.kernel == FUSED.number)
        at[key[fused]] = fused
        return at[key]

    def _larger(self) -> Ints:
        """The mode (M,) with the next larger cache; -1 where there is none."""
        after = np.arange(1, len(self.modes.table) + 1) % len(self.modes.table)
        names = ("table", "type", "kernel")
        same = np.logical_and.reduce([getattr(self.modes, name)[after] == getattr(self.modes, name) for name in names])
        return np.where(same & (after > 0), after, -1)


def kept_modes(modes: Modes, kept: Bools) -> Modes:
    """Only these modes."""
    return replace(modes, **{field.name: getattr(modes, field.name)[kept] for field in fields(modes)})
