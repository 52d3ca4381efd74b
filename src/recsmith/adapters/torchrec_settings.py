"""How TorchRec's own planner is set up where RecSmith is compared with it: stock, and settings that are fair to it.

A comparison shows two columns: STOCK, what somebody gets who changes nothing, and the best plan of a stated list of
settings that a user can choose without writing a planner: the same for all tables, but that narrow shards may be for
those alone that read much. Imports no PyTorch.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

from recsmith._types import noun
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.problems import Space
from recsmith.problems.space import torchrec_width
from recsmith.sharding import WIDTH_STEP

PROPOSERS = ("default", "greedy", "greedy_sum", "uniform", "grid", "dynamic_programming")
MinPartition = int | Literal["half"] | None
LEAST_WIDTHS: tuple[MinPartition, ...] = (None, 8, 16, 32, 64, "half")  # of fair_settings
SHORT = {"table_wise": "TW", "column_wise": "CW", "row_wise": "RW", "data_parallel": "DP", "table_row_wise": "TWRW",
         "table_column_wise": "TWCW", "grid_shard": "grid"}  # fmt: skip


@noun
class TorchRecSettings:
    """Settings of TorchRec's EmbeddingShardingPlanner. The defaults are its own, but that no memory is reserved.

    bandwidths: of its Topology: TorchRec's constants, or the cluster's. min_partition: the least columns of a shard
        (ParameterConstraints); None leaves TorchRec's 128, 'half' is half of each table's columns. heavy: it holds only
        for tables that read at least so much of a device's even share of the values. proposers: one of PROPOSERS; the
        default tries grid, greedy (by the largest shard and by the sum of shards) and uniform. order: what
        GreedyPerfPartitioner places first: what takes most storage (its default) or most time. types: sharding types it
        may use; None for all of the space. reserve: share of the device memory kept free of tables; 'heuristic' is its
        default reservation with 15 %. timeout_s: by the clock, for all proposers together, checked only between
        proposals. proposer_cpu_s: CPU seconds of each proposer (LimitedProposer), no setting of TorchRec's: plans
        then do not depend on how busy the machine is.

    Raises:
        UsageError: an unknown proposer, or a number out of range.
    """

    bandwidths: Literal["torchrec", "cluster"] = "torchrec"
    min_partition: MinPartition = None
    heavy: float = 0.0
    proposers: str = "default"
    order: Literal["storage", "perf"] = "storage"
    types: tuple[str, ...] | None = None
    reserve: float | Literal["heuristic"] = 0.0
    timeout_s: int | None = None
    proposer_cpu_s: float | None = None

    def __post_init__(self) -> None:
        if self.proposers not in PROPOSERS:
            raise UsageError(
                f"TorchRec has no proposers '{self.proposers}'{did_you_mean(self.proposers, [*PROPOSERS])}"
            )
        for name, least in (("min_partition", 4), ("timeout_s", 1)):
            value = getattr(self, name)
            if isinstance(value, int) and value < least:
                raise UsageError(f"{name} is {value}; TorchRec's planner needs at least {least}")
        if not isinstance(self.reserve, str) and not 0 <= self.reserve < 1:
            raise UsageError(f"reserve is {self.reserve}; it is a share of device memory, at least 0 and below 1")

    def types_in(self, space: Space) -> tuple[str, ...]:
        """The sharding types of a space that these settings leave."""
        return space.types if self.types is None else tuple(name for name in space.types if name in self.types)

    def describe(self) -> str:
        """What differs from stock, in short."""
        parts = [] if self.bandwidths == "torchrec" else ["cluster's bandwidths"]
        where = f" for tables above {self.heavy:g} of a device" if self.heavy else ""
        parts += [] if self.min_partition is None else [f"min_partition {self.min_partition}{where}"]
        parts += [] if self.proposers == "default" else [f"{self.proposers} proposer"]
        parts += [] if self.order == "storage" else ["partitioner by perf"]
        parts += [] if self.types is None else [" + ".join(SHORT[name] for name in self.types)]
        parts += [] if self.reserve == 0 else [f"reserve {self.reserve}"]
        return ", ".join(parts) or "stock"


STOCK = TorchRecSettings()


def fair_settings(space: Space, dims: Sequence[int], kind: str = "cuda") -> tuple[TorchRecSettings, ...]:
    """The settings that small problems take the best of, stock first; dims: of the tables; kind: of the devices.

    Both bandwidths x least widths None, 8, 16, 32, 64 and half (those that split these dims alike once) x both orders
    of the partitioner x the default proposers, DynamicProgrammingProposer, and the default ones with column_wise alone;
    and stock's widths with table_wise alone. Types that the space lacks are left out, and on CPUs the
    DynamicProgrammingProposer, which divides by the HBM of a device.
    """
    found: list[TorchRecSettings] = []
    for bandwidths, width, order in product(("torchrec", "cluster"), _distinct_widths(dims), ("storage", "perf")):
        one = TorchRecSettings(bandwidths=bandwidths, min_partition=width, order=order)
        found += [one, *([replace(one, proposers="dynamic_programming")] if kind != "cpu" else [])]
        alone = ("column_wise",) if width is not None else ("column_wise", "table_wise")
        found += [replace(one, types=(name,)) for name in alone if name in space.types and len(space.types) > 1]
    return tuple(found)


def _distinct_widths(dims: Sequence[int]) -> list[MinPartition]:
    """The least widths of the list, without those that split these dims like one before."""
    by_split: dict[tuple[int, ...], MinPartition] = {}
    for width in LEAST_WIDTHS:
        by_split.setdefault(tuple(torchrec_width(dim, least_width(width, dim)) for dim in sorted(set(dims))), width)
    return list(by_split.values())


def least_width(setting: MinPartition, dim: int) -> int | None:
    """The min_partition of a table of `dim` columns."""
    return max(WIDTH_STEP, dim // 2) if setting == "half" else setting
