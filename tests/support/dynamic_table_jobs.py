"""Jobs with raw ids, of few rows and many parts, and a watcher that spoils all rows after each step."""

from pathlib import Path
from typing import Any

import numpy as np

from recsmith.clusters import load_cluster
from recsmith.planning.simulate import price
from recsmith.plans import Placement, save_plan
from recsmith.training.systems.dynamic import id_rows
from recsmith.training.systems.dynamic.settings import DynamicRule
from recsmith.workloads import Feature, Table, Workload

id_rows.LEAST_ROWS = 32  # several parts in few rows, in every process of these tests
ROWS = {"a": 128, "b": 160, "c": 30}  # c is a plain table
IDS = {"a": 600, "b": 500, "c": 30}
RULES = (DynamicRule(tables="a", rows=128, evict="lru"), DynamicRule(tables="b", rows=160, evict="lfu", admit=2))
DIM, BATCH, SPOILT = 8, 48, 2.0
_KNOWN: set[tuple[str, str, int]] = set()  # rows that an id had in a step before


def features(**ids: int) -> list[dict[str, Any]]:
    return [{"name": name, "num_embeddings": count, "zipf": 0.7} for name, count in (IDS | ids).items()]


def data(samples: int, first: int = 0, **ids: int) -> dict[str, Any]:
    return {
        "format": "generator",
        "num_samples": samples,
        "first_sample": first,
        "dense": 2,
        "features": features(**ids),
    }


def a_plan(folder: Path, ranks: int, optimizer: str) -> str:
    """Table a cut by columns, b by rows, c whole."""
    tables = tuple(
        Table(name=name, num_embeddings=rows, embedding_dim=DIM, features=(Feature(name=name, pooling_factor=1.0),))
        for name, rows in ROWS.items()
    )
    workload: Any = Workload(batch_size=BATCH // ranks, optimizer=optimizer, tables=tables)  # type: ignore[arg-type]
    placed = [
        Placement(table="a", sharding_type="column_wise", compute_kernel="fused", ranks=(0, ranks - 1), widths=(4, 4)),
        Placement(table="b", sharding_type="row_wise", compute_kernel="fused", ranks=tuple(range(ranks))),
        Placement(table="c", sharding_type="table_wise", compute_kernel="fused", ranks=(ranks - 1,)),
    ]  # fmt: skip
    save_plan(price(workload, load_cluster(f"cpu:{ranks}"), placed), folder / f"plan-{ranks}.json")
    return str(folder / f"plan-{ranks}.json")


def a_run(folder: Path, *, ranks: int = 2, optimizer: Any = "rowwise_adagrad", steps: int = 12, **changed: Any) -> Any:
    """A job with raw ids in tables a and b."""
    from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, RunOptimizers, SparseOptimizer

    folder.mkdir(exist_ok=True)
    of: dict[str, Any] = {
        "plan": a_plan(folder, ranks, optimizer), "output": str(folder / "out"), "ranks": ranks,
        "data": RunData(train=data(BATCH * steps), test=data(50, BATCH * steps), global_batch_size=BATCH),
        "model": RunModel(embedding_dim=DIM, bottom=(8,), top=(8,), dynamic=RULES),
        "optimizers": RunOptimizers(sparse=SparseOptimizer(name=optimizer, learning_rate=0.2)),
    }  # fmt: skip
    watched = {"watchers": ("support.dynamic_table_jobs:looks_on",), "metrics": RunMetrics(every=1)}
    return Run(checkpoint=Checkpointing(every=4, keep=3), **watched | of | changed)


def looks_on(step: int, loss: float, samples: Any) -> None:
    """A watcher that does nothing: the run names this module, so that its ranks have as many parts."""


def __getattr__(name: str) -> Any:
    """`Spoils`, whose base class needs torch."""
    if name != "Spoils":
        raise AttributeError(name)
    from recsmith.training.watchers.protocol import Watcher

    class Spoils(Watcher):
        """A watcher: rows that were given anew in a step are as drawn, and then all rows and their state are spoilt."""

        def look(self, seen: Any) -> None:
            _spoil(seen.job, seen.step)

    return Spoils


def _spoil(job: Any, step: int) -> None:
    import torch

    from recsmith.training.systems.dynamic.fresh import shards_in

    looked, given = 0, _given(job, step)
    for table, shards in shards_in(job.sharded.model).items():
        for shard in shards:
            looked += _as_drawn(job, step, table, shard, given.get(table, []))
            shard.kernel.split_embedding_weights()[shard.number].fill_(SPOILT)
            shard.kernel.split_optimizer_states()[shard.number][0].fill_(1e6)
    with Path(job.run.output, f"looked-{torch.distributed.get_rank()}").open("a") as file:
        file.write(f"{step} {looked}\n")


def _as_drawn(job: Any, step: int, table: str, shard: Any, given: list[tuple[int, int]]) -> int:
    """How many rows of a shard were given anew, each of which is looked at."""
    import torch

    from recsmith.training.systems.dynamic.fresh import drawn
    from recsmith.training.systems.dynamic.tables import maps_in

    weights = shard.kernel.split_embedding_weights()[shard.number]
    state = shard.kernel.split_optimizer_states()[shard.number][0]
    here = [(row - shard.first_row, each) for row, each in given if 0 <= row - shard.first_row < shard.rows]
    columns = range(shard.first_column, shard.first_column + shard.columns)
    for at, each in here:
        fresh = drawn(maps_in(job.sharded.model)[0].start[table], job.run.seed, table, np.array([each]), columns)[0]
        assert torch.equal(weights[at], fresh), f"step {step}: row {at} of {table} serves another id's values"
        assert float(state[at].max()) < 1.0, f"step {step}: row {at} of {table} keeps another id's state"
    return len(here)


def _given(job: Any, step: int) -> dict[str, list[tuple[int, int]]]:
    """(row, id) of all rows that were given in a step, over all ranks, but those that nobody had before."""
    import torch.distributed as dist

    from recsmith.training.systems.dynamic.tables import maps_in

    mine = [
        (name, int(first + at), int(ids[at]))
        for maps in maps_in(job.sharded.model)
        for name, table in maps.tables.items()
        for number, (first, ids) in enumerate(table.id_of_rows())
        for at in np.flatnonzero((table.born[number * table.size :][: len(ids)] == step) & (ids >= 0))
    ]
    told: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(told, mine)
    given: dict[str, list[tuple[int, int]]] = {}
    for name, row, each in sorted(entry for rank in told for entry in rank):
        if (job.run.output, name, row) in _KNOWN:
            given.setdefault(name, []).append((row, each))
        _KNOWN.add((job.run.output, name, row))
    return given
