"""Jobs that save and load plain checkpoints of torch.distributed.checkpoint, and what such checkpoints hold.

A job of another world size trains on the same global batches: samples are drawn one by one and dealt to the ranks.
"""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsmith import Cluster, Placement, Plan, Table, Workload
from recsmith.plans import Bound, plan_from_raw, sorted_by_name
from recsmith.workloads.optimizers import OptimizerName
from support.build import table
from support.exactness import cpu_cluster, no_cost

BATCH = 12  # samples of a step, over all ranks
ROWS, DIM = 41, 32
TYPES = (
    "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard", "data_parallel",
)  # fmt: skip


def turned(cluster: Cluster, turn: int, optimizer: str = "adagrad", rows: int = ROWS) -> Plan:
    """Seven tables with seven sharding types; each turn gives every table the next type, and other columns."""
    tables = [table(f"t{i}", rows, DIM) for i in range(len(TYPES))]
    placements = [placement(each, TYPES[(i + turn) % len(TYPES)], cluster, turn) for i, each in enumerate(tables)]
    return hand_made(tables, placements, cluster, optimizer)


def own_optimizers(cluster: Cluster, turn: int) -> Plan:
    """The same under Adagrad, but for a table with an optimizer of its own."""
    plan = turned(cluster, turn)
    own: dict[str, OptimizerName] = {"t2": "rowwise_adagrad"}
    tables = [replace(each, optimizer=own.get(each.name)) for each in plan.workload.tables]
    return hand_made(tables, list(plan.placements), cluster, "adagrad")


def placement(of: Table, kind: str, cluster: Cluster, turn: int) -> Placement:
    world, local = cluster.world_size, cluster.local_world_size
    ranks: list[int] = list(range(world))
    widths: tuple[int, ...] = ()
    if kind == "table_wise":
        ranks = [turn % world]
    elif kind == "column_wise":
        widths = (20, 12) if turn % 2 else (8, 16, 8)
        ranks = [(turn + i) % world for i in range(len(widths))]
        if turn % 2 == 0 and world == 2:
            ranks = [0, 1, 0]
    elif kind == "table_row_wise":
        ranks = list(range(world - local, world))
    elif kind == "table_column_wise":
        widths, ranks = (16, 16), [0, local - 1]
    elif kind == "grid_shard":
        widths, ranks = (16, 16), list(range(2 * local))
    kernel = "dense" if kind == "data_parallel" else "fused"
    return Placement(table=of.name, sharding_type=kind, compute_kernel=kernel, ranks=tuple(ranks), widths=widths)


def hand_made(tables: list[Table], placements: list[Placement], cluster: Cluster, optimizer: Any) -> Plan:
    """A plan of placements, without a price."""
    workload = Workload(batch_size=4, optimizer=optimizer, tables=tuple(tables))
    return Plan(
        workload=sorted_by_name(workload), cluster=cluster, placements=tuple(sorted(placements, key=lambda p: p.table)),
        planner="hand", cost_model="torchrec", cost=no_cost(cluster),
        bound=Bound(value_s=None, kind="none", space=""), gap=None,
    )  # fmt: skip


# --- jobs: these run on every rank --------------------------------------------------------------------------------


def train(jobs: list[dict[str, Any]]) -> list[list[float]]:
    """The losses of jobs, each with a plan, an optimizer, first and last step, and where to load from and save to."""
    return [_train(**job) for job in jobs]


def _train(
    plan: dict[str, Any], optimizer: str, steps: tuple[int, int], load: str | None = None, save: str | None = None,
    save_after: int | None = None,
) -> list[float]:  # fmt: skip
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict_loader import load as load_state
    from torch.distributed.checkpoint.state_dict_saver import save as save_state
    from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper

    from recsmith.adapters.reshard.layout import tie_checkpoint
    from recsmith.jobs.sharded_model import load_weights, optimizer_of, sharded_model, table_of

    made = plan_from_raw(plan, "job")
    model, _ = sharded_model(made, optimizer)
    load_weights(model, starting(made))
    copies = {each.table for each in made.placements if each.sharding_type == "data_parallel"}
    dense = {name: parameter for name, parameter in model.named_parameters() if table_of(name) in copies}
    cls, words = optimizer_of(optimizer)
    keyed = KeyedOptimizerWrapper(dense, lambda parameters: cls(parameters, **words))
    both = CombinedOptimizer([model.fused_optimizer, *([keyed] if dense else [])])
    if load:
        state = {"model": model.state_dict(), "optimizer": both.state_dict()}
        load_state(state, checkpoint_id=load)
        both.load_state_dict(state["optimizer"])
    losses: list[float] = []
    for step in range(*steps):
        losses.append(_step(model, both, made, step))
        if save and step + 1 == save_after:
            extra = {"step": step + 1, "lr": [0.1, "constant"]}
            state = {"model": model.state_dict(), "optimizer": both.state_dict(), "job": extra}
            save_state(state, checkpoint_id=save)
            if dist.get_rank() == 0:
                tie_checkpoint(save, made)
    return losses


def starting(plan: Plan) -> dict[str, Any]:
    """The same starting weights, whatever the plan."""
    from support.trained_exactness import starting_weights

    return starting_weights(plan)


def _step(model: Any, optimizer: Any, plan: Plan, step: int) -> float:
    """One step on this rank's samples; the mean loss of all samples."""
    import torch.distributed as dist

    from support.trained_exactness import loss

    rank, world = dist.get_rank(), dist.get_world_size()
    mine = range(rank * BATCH // world, (rank + 1) * BATCH // world)
    optimizer.zero_grad()
    found = loss(model(_batch(plan, [step * BATCH + sample for sample in mine]))) / len(mine)
    found.backward()
    optimizer.step()
    total = found.detach().clone().double()
    dist.all_reduce(total)
    return float(total) / world


def _batch(plan: Plan, seeds: list[int]) -> Any:
    """A batch of samples that are each drawn by a seed of their own."""
    import torch
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    from recsmith.jobs.workload_model import CollectionBatch, random_batch

    samples = [random_batch(plan.workload, 1, torch.Generator().manual_seed(seed)) for seed in seeds]
    merged: list[Any] = []
    for group in zip(*(sample.features for sample in samples), strict=True):
        keys = group[0].keys()
        values = torch.cat([each[key].values() for key in keys for each in group])
        lengths = torch.cat([each[key].lengths() for key in keys for each in group])
        merged.append(KeyedJaggedTensor(keys=keys, values=values, lengths=lengths))
    return CollectionBatch(merged)


# --- what a checkpoint holds, as PyTorch reads it ------------------------------------------------------------------


def contents(folder: Path) -> dict[str, Any]:
    """Every entry, whole, as torch.distributed.checkpoint loads it: tensors and objects by key."""
    import torch
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    metadata = FileSystemReader(folder).read_metadata()
    state: dict[str, Any] = {
        key: torch.empty(each.size, dtype=each.properties.dtype) if isinstance(each, TensorStorageMetadata) else None
        for key, each in metadata.state_dict_metadata.items()
    }
    load(state, checkpoint_id=folder, no_dist=True)
    return state


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of weights and element-wise state by table and meaning, whatever the optimizer calls it."""
    found: dict[str, str] = {}
    for key, value in contents(folder).items():
        words = key.split(".")
        if tuple(getattr(value, "shape", ())) == (ROWS, DIM):
            name = words[words.index("weight") - 1]
            meaning = "weight" if words[-1] == "weight" else "first"
            found[f"{name} {meaning}"] = hashlib.sha256(value.numpy().tobytes()).hexdigest()
    return found


# --- checkpoints without a job ------------------------------------------------------------------------------------


def whole(optimizer: str = "adagrad", rows: int = ROWS) -> Plan:
    """The tables of `turned`, each on rank 0 of 2."""
    cluster = cpu_cluster(1, 2)
    tables = [table(f"t{i}", rows, DIM) for i in range(len(TYPES))]
    placements = [
        Placement(table=each.name, sharding_type="table_wise", compute_kernel="fused", ranks=(0,)) for each in tables
    ]
    return hand_made(tables, placements, cluster, optimizer)


def name_of(table_name: str) -> str:
    """The parameter of a table, as WorkloadModel calls it."""
    return f"collections.0.embedding_bags.{table_name}.weight"


def write_whole(folder: Path, optimizer: str = "adagrad", rows: int = ROWS) -> dict[str, Any]:
    """A checkpoint of `whole`, written by PyTorch alone, with dense parameters and objects; what was written."""
    import torch
    from torch.distributed.checkpoint.state_dict_saver import save

    drawn = torch.Generator().manual_seed(7)
    names = [f"t{i}" for i in range(len(TYPES))]
    shape = (rows,) if optimizer == "rowwise_adagrad" else (rows, DIM)
    weights = {name_of(name): torch.rand(rows, DIM, generator=drawn) for name in names}
    fused = {name_of(name): {f"{name}.momentum1": torch.rand(shape, generator=drawn)} for name in names}
    dense = {"over.weight": {"sum": torch.rand(3, 5, generator=drawn), "step": torch.tensor(9.0)}}
    if optimizer == "rowwise_adagrad":
        dense = {}
    over = {"over.weight": torch.rand(3, 5, generator=drawn).to(torch.bfloat16), "over.bias": torch.rand(3)}
    state = {"model": weights | over, "optimizer": {"state": fused | dense}, "job": {"step": 9, "lr": [0.1, "cosine"]}}
    save(state, checkpoint_id=folder, no_dist=True)
    return state


def columns_kept(cluster: Cluster, turn: int, optimizer: str = "rowwise_adagrad") -> Plan:
    """Six tables that change type, ranks and rows with the turn, but not their columns."""
    world, local, hosts = cluster.world_size, cluster.local_world_size, cluster.hosts
    one = ("table_wise", "row_wise", "table_row_wise", "data_parallel")
    two = ("column_wise", "table_column_wise", "grid_shard")
    tables = [table(f"t{i}", ROWS, DIM) for i in range(len(one) + len(two))]
    ranks = {
        "table_wise": [turn % world], "row_wise": range(world), "data_parallel": range(world),
        "table_row_wise": range((hosts - 1) * local, hosts * local), "column_wise": [turn % world, (turn + 1) % world],
        "table_column_wise": [0, local - 1], "grid_shard": range(2 * local),
    }  # fmt: skip
    placements: list[Placement] = []
    for number, each in enumerate(tables):
        kinds, widths = (one, ()) if number < len(one) else (two, (16, 16))
        kind = kinds[(number + turn) % len(kinds)]
        kernel = "dense" if kind == "data_parallel" else "fused"
        placements.append(
            Placement(
                table=each.name, sharding_type=kind, compute_kernel=kernel, ranks=tuple(ranks[kind]), widths=widths
            )
        )
    return hand_made(tables, placements, cluster, optimizer)
