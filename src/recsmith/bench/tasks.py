"""The sharding tasks of the NeuroShard paper, at our scale: tables of the shared pool, devices and memory.

As in the paper (Zha et al., Pre-train and Search, MLSys 2023, 4.1): 10 to 60 tables are drawn from a pool, each with a
dim drawn from the powers of two from 4 to the row's largest, for 4 or 8 devices whose memory tasks nearly fill.
Different here: the pool is the shared one of 856 tables; rows beyond MOST_ROWS are cut off, so that a device's tables
fit a machine; the batch is smaller if a CPU measures; and tasks that a single shard decides are left out, since they
say nothing about a search.

A task is **degenerate** if its largest shard that cannot be split takes LARGEST_SHARE of the mean load of a device or
more. Loads count rows of 64 columns, (ids + bags) * (1 + columns / 64) / 2, as for measured cases; the largest shard is
the narrowest that column splits leave of any table. No cost model is used, so tasks favour none.

**Memory** of a device: 16/15 of its even share of the weights (the paper: 4 GB a device for tasks of at most 15 GB on
four), and twice its even share of inputs and outputs; at least 16/15 of the need of half of the largest table.

Legend: N tables, D devices.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.errors import Infeasible, UsageError
from recsmith.learning.policies.tasks import PlacementTask, PlacementTasks, SizeRow, draw_placement_tasks, parse_size
from recsmith.measuring.cases import MOST_ROWS
from recsmith.planning.feasibility import check_feasible
from recsmith.problems import Problem, Space, build_problem
from recsmith.sharding import WIDTH_STEP
from recsmith.workloads import Workload
from recsmith.workloads.sample import shared_pool

DEVICES, MAX_DIMS = (4, 8), (4, 8, 16, 32, 64, 128)  # of the table's rows: the paper's devices, and largest dims
LEAST_TABLES, MOST_TABLES = 10, 60  # tables of a task: the paper's
LARGEST_SHARE = 0.7  # share of the mean load of a device from which on one shard decides a task; not tuned further
SLACK = 16 / 15  # device memory over an even share of the weights: 4 devices of 4 GB for 15 GB
BUFFERS = 2.0  # device memory for inputs and outputs, over an even share of them
SPACE = Space(types=("table_wise", "column_wise"), kernels=("fused",))
MOST_ATTEMPTS = 1_000_000  # tasks drawn for a row: ends a search for tasks that hardly exist; not tuned further


@noun
class DimRow:
    """A row of the table: tasks of this number of devices, with dims up to max_dim."""

    devices: int
    max_dim: int

    def __str__(self) -> str:
        """The name of the row as on the command line."""
        return f"{self.devices}x{self.max_dim}"


ROWS = tuple(DimRow(devices=devices, max_dim=dim) for devices in DEVICES for dim in MAX_DIMS)


def parse_rows(names: Sequence[str]) -> tuple[DimRow, ...]:
    """Rows by names such as 4x32, in the order of the table."""
    known = {str(row): row for row in ROWS}
    odd = next((name for name in names if name not in known), None)
    if odd is not None or not names:
        raise UsageError(f"no row is called '{odd or ''}'; rows are <devices>x<largest dim>: {', '.join(known)}")
    return tuple(row for row in ROWS if str(row) in names)


def draw_tasks(row: DimRow, number: int, seed: int, device: str, global_batch: int) -> PlacementTasks:
    """The first `number` tasks of a row that are neither degenerate nor proved infeasible.

    device: of the catalogue. global_batch: samples of all devices in a step.
    """
    tasks: list[PlacementTask] = []
    degenerate = infeasible = 0
    for attempt in range(MOST_ATTEMPTS):
        if len(tasks) == number:
            return PlacementTasks(row=row, tasks=tuple(tasks), degenerate=degenerate, infeasible=infeasible)
        tables, dims = _draw(row, seed, attempt)
        if largest_share(_pool_pooling()[tables], dims, row.devices) >= LARGEST_SHARE:
            degenerate += 1
            continue
        task = _task(row, attempt, _workload(tables, dims, global_batch // row.devices), device)
        if task is None:
            infeasible += 1
        else:
            tasks.append(task)
    raise UsageError(f"row {row} has fewer than {number} tasks among the first {MOST_ATTEMPTS:,}; ask for fewer")


def _draw(row: DimRow, seed: int, attempt: int) -> tuple[Ints, Ints]:
    """Indices in the pool (N,), each at most once, and dims (N,)."""
    rng = np.random.default_rng([seed, row.devices, row.max_dim, attempt])
    tables = rng.choice(len(_pool().tables), int(rng.integers(LEAST_TABLES, MOST_TABLES + 1)), replace=False)
    kinds = MAX_DIMS[: MAX_DIMS.index(row.max_dim) + 1]
    dims = np.array(kinds)[rng.integers(0, len(kinds), len(tables))]
    order = np.argsort(tables)
    return tables[order], dims[order]


@cache
def _pool() -> Workload:
    return shared_pool()


@cache
def _pool_pooling() -> Floats:
    """Ids per sample of each table of the pool (856,)."""
    return np.array([table.features[0].pooling_factor for table in _pool().tables])


def largest_share(pooling: Floats, dims: Ints, devices: int) -> float:
    """Load of the largest unsplittable shard of tables (N,), over the mean load of a device."""
    narrowest = np.minimum(dims, WIDTH_STEP)
    return float(_load(pooling, narrowest).max() * devices / _load(pooling, dims).sum())


def _load(pooling: Floats, columns: Ints) -> Floats:
    return (pooling + 1) * (1 + columns / 64) / 2


def _workload(tables: Ints, dims: Ints, batch_size: int) -> Workload:
    chosen = [_pool().tables[i] for i in tables.tolist()]
    return Workload(
        batch_size=batch_size,
        optimizer="sgd",
        tables=tuple(
            replace(table, embedding_dim=dim, num_embeddings=min(table.num_embeddings, MOST_ROWS))
            for table, dim in zip(chosen, dims.tolist(), strict=True)
        ),
    )


def _task(row: DimRow, attempt: int, workload: Workload, device: str) -> PlacementTask | None:
    """The task with its memory; None if it is proved that no plan exists."""
    roomy = load_cluster(f"{device}:{row.devices}")
    cluster = roomy.with_memory(device_bytes(build_problem(workload, roomy, SPACE)))
    try:
        check_feasible(cost_model("analytic").compile(build_problem(workload, cluster, SPACE)), cost_model("analytic"))
    except Infeasible:
        return None
    return PlacementTask(row=row, attempt=attempt, workload=workload, cluster=cluster)


def device_bytes(problem: Problem) -> int:
    """Memory of each device in bytes (see the module)."""
    modes = np.array([problem.find_mode(t, "table_wise", "fused") for t in range(len(problem.tables))])
    dim = problem.demand.dim
    whole = problem.memory(modes, dim)[0].device
    half = problem.memory(modes, np.where(dim > WIDTH_STEP, dim // 2, dim))[0].device
    weights = np.array([table.weight_bytes for table in problem.tables])
    devices = problem.cluster.world_size
    even = SLACK * weights.sum() / devices + BUFFERS * (whole - weights).sum() / devices
    return math.ceil(max(even, SLACK * half.max()))


Family = Literal["sharding", "learned"]
LEARNED_ROWS = tuple(
    str(SizeRow(devices=devices, tables=tables)) for devices in (2, 4, 8) for tables in (20, 50, 100, 200)
)
"""The grid of the DreamShard paper: 20 to 200 tables, 2 to 8 devices."""


def parse_family_rows(family: Family, names: Sequence[str]) -> tuple[DimRow | SizeRow, ...]:
    """The rows with these names, in order; UsageError for an unknown name, or for none at all."""
    if family == "sharding":
        return parse_rows(names)
    if not names:
        raise UsageError("no rows are named; write <devices>x<tables>, such as 4x50")
    sizes: list[SizeRow] = sorted({parse_size(name) for name in names}, key=_size)
    return tuple(sizes)


def _size(row: SizeRow) -> tuple[int, int]:
    return row.devices, row.tables


def draw_family_tasks(
    family: Family, name: str, number: int, seed: int, device: str, global_batch: int
) -> PlacementTasks:
    """The first `number` tasks of a row that are not degenerate."""
    if family == "sharding":
        return draw_tasks(parse_rows([name])[0], number, seed, device, global_batch)
    return draw_placement_tasks(parse_size(name), number, seed, device, global_batch)
