"""A job of two tables, one of them whole on a rank and one split by rows, for stores that keep rows in other ways."""

from pathlib import Path
from typing import Any

from recsmith.clusters import load_cluster
from recsmith.planning.simulate import price
from recsmith.plans import Placement, save_plan
from recsmith.workloads import Feature, Table, Workload

ROWS = {"a": 3000, "b": 2000}


def a_plan(folder: Path, ranks: int, optimizer: str, widths: tuple[int, ...] = ()) -> str:
    """Table a on rank 0, by columns where it has widths; b split by rows."""
    tables = tuple(
        Table(name=name, num_embeddings=rows, embedding_dim=8, features=(Feature(name=name, pooling_factor=1.0),))
        for name, rows in ROWS.items()
    )
    workload: Any = Workload(batch_size=64 // ranks, optimizer=optimizer, tables=tables)  # type: ignore[arg-type]
    kind = "column_wise" if widths else "table_wise"
    placed = [
        Placement(table="a", sharding_type=kind, compute_kernel="fused", ranks=(0,) * max(1, len(widths)),
                  widths=widths),
        Placement(table="b", sharding_type="row_wise", compute_kernel="fused", ranks=tuple(range(ranks))),
    ]  # fmt: skip
    save_plan(price(workload, load_cluster(f"cpu:{ranks}"), placed), folder / "plan.json")
    return str(folder / "plan.json")


def a_run(folder: Path, *, ranks: int = 1, optimizer: Any = "rowwise_adagrad", **changed: Any) -> Any:
    """A job of two tables under such a plan."""
    from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, RunOptimizers, SparseOptimizer

    folder.mkdir(exist_ok=True)
    features = [{"name": name, "num_embeddings": rows} for name, rows in ROWS.items()]
    data = {"format": "generator", "num_samples": 64 * 12, "dense": 2, "features": features}
    of: dict[str, Any] = {"plan": a_plan(folder, ranks, optimizer), "output": str(folder / "out"), "ranks": ranks}
    return Run(
        data=RunData(train=data, global_batch_size=64), model=RunModel(embedding_dim=8, bottom=(8,), top=(8,)),
        metrics=RunMetrics(every=2), checkpoint=Checkpointing(every=5),
        optimizers=RunOptimizers(sparse=SparseOptimizer(name=optimizer, learning_rate=0.5)), **of | changed,
    )  # fmt: skip
