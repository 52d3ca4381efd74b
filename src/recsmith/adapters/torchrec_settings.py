"""Settings of TorchRec's own planner for comparisons with RecSmith: its defaults, and a fair list of alternatives.

A comparison shows two columns. STOCK is what a user gets who changes nothing. The other is the best plan of a stated
list of settings that a user can choose without writing a planner. A setting is the same for all tables, except that
narrow shards may be limited to tables that read much. Imports no PyTorch.
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
LEAST_WIDTHS: tuple[MinPartition, ...] = (None, 8, 16, 32, 64, "half")  # values of min_partition in fair_settings
SHORT = {"table_wise": "TW", "column_wise": "CW", "row_wise": "RW", "data_parallel": "DP", "table_row_wise": "TWRW",
         "table_column_wise": "TWCW", "grid_shard": "grid"}  # fmt: skip


@noun
class TorchRecSettings:
    """Settings of TorchRec's EmbeddingShardingPlanner. The defaults are TorchRec's, except that no memory is reserved.

    bandwidths: those of its Topology: TorchRec's constants, or the cluster's. min_partition: the least columns of a
        shard (ParameterConstraints); None leaves TorchRec's 128, 'half' is half of each table's columns. heavy:
        min_partition applies only to tables that read at least this fraction of a device's even share of all values
        (columns x ids of a sample). proposers: one of PROPOSERS; the default tries grid, greedy (by the largest shard
        and by the sum of shards) and uniform. order: which shards GreedyPerfPartitioner places first: those that take
        most storage (its default) or most time. types: sharding types that the planner may use; None allows all of the
        space. reserve: fraction of the device memory that is kept free of tables; 'heuristic' is TorchRec's default
        reservation with 15 %. timeout_s: limit in wall-clock seconds for all proposers together, checked only between
        proposals. proposer_cpu_s: limit in CPU seconds for each proposer (LimitedProposer); it is no setting of
        TorchRec's, and with it plans do not depend on how busy the machine is.

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
        """The sharding types of a space that these settings allow."""
        return space.types if self.types is None else tuple(name for name in space.types if name in self.types)

    def describe(self) -> str:
        """A short text of the settings that differ from STOCK; 'stock' if none does."""
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
    """The settings whose best plan stands for TorchRec on small problems, stock first.

    They are both bandwidths x least widths None, 8, 16, 32, 64 and half (one of those that split these dims equally) x
    both orders of the partitioner x the default proposers, DynamicProgrammingProposer, and the default proposers with
    column_wise alone. Stock's widths are also tried with table_wise alone. Types that the space lacks are left out. So
    is DynamicProgrammingProposer on CPUs, because it divides by the HBM of a device.

    Args:
        space: the search space, whose sharding types are used.
        dims: numbers of columns of the tables.
        kind: kind of the devices, 'cuda' or 'cpu'.
    """
    found: list[TorchRecSettings] = []
    for bandwidths, width, order in product(("torchrec", "cluster"), _distinct_widths(dims), ("storage", "perf")):
        one = TorchRecSettings(bandwidths=bandwidths, min_partition=width, order=order)
        found += [one, *([replace(one, proposers="dynamic_programming")] if kind != "cpu" else [])]
        alone = ("column_wise",) if width is not None else ("column_wise", "table_wise")
        found += [replace(one, types=(name,)) for name in alone if name in space.types and len(space.types) > 1]
    return tuple(found)


def _distinct_widths(dims: Sequence[int]) -> list[MinPartition]:
    """LEAST_WIDTHS without the widths that split these dims exactly as an earlier width does."""
    by_split: dict[tuple[int, ...], MinPartition] = {}
    for width in LEAST_WIDTHS:
        by_split.setdefault(tuple(torchrec_width(dim, least_width(width, dim)) for dim in sorted(set(dims))), width)
    return list(by_split.values())


def least_width(setting: MinPartition, dim: int) -> int | None:
    """The min_partition of a table of `dim` columns under this setting."""
    return max(WIDTH_STEP, dim // 2) if setting == "half" else setting
