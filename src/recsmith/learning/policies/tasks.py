"""The tasks of learned planners: tables of the shared pool, one half to train and one half to judge.

A task consists of tables and devices. Tables keep the pool's rows (at most MOST_ROWS, on a CPU also at most
CPU_ELEMENTS elements), columns, pooling factors and access laws; they use SGD and fp32. If a task needs more tables
than half of the pool has, tables are drawn with repetition.

**Training tasks** mix tables: with a chance of MIXED each, a table takes its columns, its rows and access law, and its
pooling factor from other tables of the half, so that a cost network sees more than the pool's few wide and few hot
tables.

A task is **degenerate** if its heaviest table takes LARGEST_SHARE of the mean load of a device or more: that table
would decide the step whatever the others do. Loads count rows of 64 columns, (ids + bags) * (1 + columns / 64) / 2, so
no cost model is involved. In training tasks, the narrowest shard of the heaviest table counts, for planners may split
it. Tasks for more than MOST_JUDGED devices draw from tables with at most FEW_IDS ids per bag, for with others nearly
every task is degenerate; there, too, the narrowest shard counts.

**Memory** of a device: SLACK times its even share of all tables, or what the largest table needs if that is more.

Legend: N tables, D devices.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.clusters import Cluster, load_cluster
from recsmith.errors import UsageError
from recsmith.measuring.cases import MOST_ROWS
from recsmith.problems import Space, build_problem
from recsmith.sharding import WIDTH_STEP
from recsmith.workloads import Table, Workload
from recsmith.workloads.sample import shared_pool

SPACE = Space(types=("table_wise", "column_wise"), kernels=("fused",))
TRAINING, TESTING = "training", "testing"  # halves of the pool
SEEN, BOTH = "seen", "both"  # the half that trains, its tables unmixed; the whole pool
HALVES_SEED = 856  # decides which tables of the pool train
LARGEST_SHARE = 0.7  # share of the mean load of a device from which on one table decides a task
MIXED = 0.5  # chance that a figure of a training table is another table's
SLACK = 1.5  # device memory over an even share of all tables
ROOM = 16 / 15  # least device memory over the need of the largest table
MOST_JUDGED, FEW_IDS = 8, 30.0  # devices beyond which tables of more ids per bag are left out
CPU_ELEMENTS = 2**26  # most elements of a table on a CPU, whose memory holds the tables of a device: 256 MiB
MOST_DEVICES, MOST_TABLES = 128, 2_000
MOST_ATTEMPTS = 1_000_000  # most tasks drawn for a row
PER_HOST = 8  # devices of a host, in tasks for more than that


@noun
class SizeRow:
    """A row of tasks: a number of devices and of tables, written 4x50."""

    devices: int
    tables: int

    def __str__(self) -> str:
        """The name of the row as on the command line."""
        return f"{self.devices}x{self.tables}"


class TaskRow(Protocol):
    """A row of a table of tasks, written as on the command line."""

    @property
    def devices(self) -> int:
        """Devices of each of its tasks."""
        ...


@noun
class PlacementTask:
    """Tables to place on devices. attempt: number of the task among those drawn for the row."""

    row: TaskRow
    attempt: int
    workload: Workload
    cluster: Cluster

    @property
    def name(self) -> str:
        """The name of the task, unique within a run."""
        return f"{self.row}-{self.attempt}"


@noun
class PlacementTasks:
    """The tasks of a row, and the number of rejected ones: degenerate ones, and ones proved to have no plan."""

    row: TaskRow
    tasks: tuple[PlacementTask, ...]
    degenerate: int
    infeasible: int = 0

    @property
    def rejected(self) -> float:
        """Share of the drawn tasks that were rejected."""
        rejected = self.degenerate + self.infeasible
        return rejected / (rejected + len(self.tasks))


def parse_size(text: str) -> SizeRow:
    """The row of a text such as 4x50."""
    devices, _, tables = text.partition("x")
    if devices.isascii() and tables.isascii() and devices.isdigit() and tables.isdigit():
        row = SizeRow(devices=int(devices), tables=int(tables))
        whole_hosts = row.devices <= PER_HOST or row.devices % PER_HOST == 0
        if 1 <= row.devices <= MOST_DEVICES and 1 <= row.tables <= MOST_TABLES and whole_hosts:
            return row
    raise UsageError(
        f"'{text}' is no row; write <devices>x<tables>, such as 4x50: up to {MOST_DEVICES} devices ({PER_HOST} a host, "
        f"whole hosts) and {MOST_TABLES:,} tables"
    )


def draw_placement_tasks(
    row: SizeRow, number: int, seed: int, device: str, global_batch: int, half: str = TESTING,
    tables: tuple[Table, ...] | None = None,
) -> PlacementTasks:  # fmt: skip
    """The first `number` tasks of a row that are not degenerate.

    half: half of the pool from which tables are drawn. tables: tables to draw from instead of the shared pool.
    """
    few = row.devices > MOST_JUDGED
    pool = [table for table in pool_half(half, tables) if not few or table.features[0].pooling_factor <= FEW_IDS]
    if not pool:
        raise UsageError(
            f"row {row} is of tables with at most {FEW_IDS:g} ids a bag, and none of the tables that are drawn has so "
            f"few; give sizes of up to {MOST_JUDGED} devices"
        )
    pooling = np.array([table.features[0].pooling_factor for table in pool])
    dims = np.array([table.embedding_dim for table in pool])
    narrow = few or half == TRAINING
    judged = np.minimum(dims, WIDTH_STEP) if narrow else dims
    if not narrow and row.devices > 1 < row.tables and row.tables * LARGEST_SHARE <= row.devices:
        raise UsageError(
            f"row {row} has no task that is not degenerate: one of {row.tables} tables always takes {LARGEST_SHARE} of "
            f"the mean load of {row.devices} devices; give {int(row.devices / LARGEST_SHARE) + 1} tables or more"
        )
    tasks: list[PlacementTask] = []
    for attempt in range(MOST_ATTEMPTS):
        if len(tasks) == number:
            return PlacementTasks(row=row, tasks=tuple(tasks), degenerate=attempt - number)
        drawn = _draw(row, seed, attempt, len(pool), mixed=half == TRAINING)
        ids = pooling[drawn.ids]
        share = _load(ids, judged[drawn.dim]).max() * row.devices / _load(ids, dims[drawn.dim]).sum()
        if share < LARGEST_SHARE or row.devices == 1 or row.tables == 1:
            tasks.append(_task(row, attempt, _tables(pool, drawn), device, global_batch))
    raise UsageError(
        f"row {row} has {len(tasks)} of {number} tasks that are not degenerate among the first {MOST_ATTEMPTS:,}; give "
        "more tables a device"
    )


class _Drawn(NamedTuple):
    """Indices of the pool's tables (N,) that give columns, rows and access law, and ids to a task's tables."""

    dim: Ints
    rows: Ints
    ids: Ints


def _draw(row: SizeRow, seed: int, attempt: int, pool: int, *, mixed: bool) -> _Drawn:
    rng = np.random.default_rng([seed, row.devices, row.tables, attempt])
    chosen = np.sort(rng.choice(pool, row.tables, replace=row.tables > pool))
    if not mixed:
        return _Drawn(chosen, chosen, chosen)
    other = rng.integers(0, pool, (3, row.tables))
    return _Drawn(*np.where(rng.random((3, row.tables)) < MIXED, other, chosen))


def _tables(pool: Sequence[Table], drawn: _Drawn) -> list[Table]:
    """The tables, each under a name of its own."""
    dims, rows, ids = (each.tolist() for each in drawn)
    places: Iterator[tuple[int, int, int]] = zip(dims, rows, ids, strict=True)
    return [_mixed(i, pool[dim], pool[rows], pool[ids]) for i, (dim, rows, ids) in enumerate(places)]


def _mixed(number: int, dim: Table, rows: Table, ids: Table) -> Table:
    """A table with the columns of one, the rows and access law of another, and the ids of a third."""
    return replace(
        rows, name=f"{rows.name}_{number}", embedding_dim=dim.embedding_dim, features=ids.features,
        num_embeddings=min(rows.num_embeddings, MOST_ROWS),
    )  # fmt: skip


@cache
def pool_half(half: str, own: tuple[Table, ...] | None = None) -> tuple[Table, ...]:
    """The tables of the shared pool that train, those that judge, or both. own: tables in place of that pool."""
    tables = shared_pool().tables if own is None else own
    order = np.random.default_rng(HALVES_SEED).permutation(len(tables))
    middle = len(tables) // 2
    chosen = {TESTING: order[middle:], BOTH: order}.get(half, order[:middle])
    places: list[int] = np.sort(chosen).tolist()
    return tuple(tables[i] for i in places)


def _load(pooling: Floats, columns: Ints) -> Floats:
    return (pooling + 1) * (1 + columns / 64) / 2


def _task(row: SizeRow, attempt: int, tables: list[Table], device: str, global_batch: int) -> PlacementTask:
    """The task with its memory."""
    if device == "cpu":
        tables = [replace(t, num_embeddings=min(t.num_embeddings, CPU_ELEMENTS // t.embedding_dim)) for t in tables]
    workload = Workload(
        batch_size=max(1, global_batch // row.devices), optimizer="sgd", tables=tuple(tables)
    )  # fmt: skip
    per_host, hosts = min(row.devices, PER_HOST), -(-row.devices // PER_HOST)
    roomy = load_cluster(f"{device}:{per_host}" + (f"x{hosts}" if hosts > 1 else ""))
    problem = build_problem(workload, roomy, SPACE)
    modes = np.array([problem.find_mode(t, "table_wise", "fused") for t in range(len(problem.tables))])
    size = problem.memory(modes, problem.demand.dim)[0].device
    room = max(SLACK * float(size.sum()) / row.devices, ROOM * float(size.max()))
    return PlacementTask(row=row, attempt=attempt, workload=workload, cluster=roomy.with_memory(int(room)))
