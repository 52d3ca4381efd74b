"""Whole jobs for benchmarks/memory.py: real TorchRec models with dense layers, planned, sharded and trained on CPU.

Each job builds its model on the meta device, lets RecSmithPlanner plan it with an estimated reserve, and trains it as
jobs do: fused optimizers for tables, DDP and an optimizer of torch.optim for the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor
from torchrec.datasets.utils import Batch
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.planner import ParameterConstraints
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.models.deepfm import SimpleDeepFMNN
from torchrec.models.dlrm import DLRM, DLRM_DCN, DLRM_Projection
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.optimizers import in_backward_optimizer_filter

from recsmith._process import proc_bytes, return_freed_memory, settle
from recsmith.plans import Plan
from recsmith.torchrec import RecSmithPlanner, to_sharding_plan

META = torch.device("meta")
STEPS = 3
FEATURES = 13  # dense features of a sample
SMALL_ROWS, SMALL_WIDTH = 512, 64  # of the copy that trains first, so that libraries and threads count as there before
HISTORY = 10  # items in a sample's history

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "sgd_momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.001),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.001),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.001),
}


Tables = dict[str, tuple[int, int, int]]  # (rows, dim, ids of a sample) by name
Width = Callable[[int], int]  # from the wanted width of a dense layer to the one that it gets


@dataclass(frozen=True)
class Job:
    """A job on CPU ranks. types: of single tables; RecSmith chooses the others'."""

    model: Callable[[Tables, Width], nn.Module]
    tables: Tables
    cluster: str
    optimizer: str
    batch_size: int
    types: dict[str, str]


def bags(tables: Tables) -> EmbeddingBagCollection:
    return EmbeddingBagCollection(
        tables=[
            EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=dim, feature_names=[name])
            for name, (rows, dim, _) in tables.items()
        ],
        device=META,
    )


def dlrm(tables: Tables, width: Width) -> nn.Module:
    layers = [width(1024), width(512), 64]
    return DLRM(bags(tables), FEATURES, layers, [width(2048), width(2048), width(1024), 1], dense_device=META)


def dcn(tables: Tables, width: Width) -> nn.Module:
    layers, over = [width(512), 128], [width(2048), width(1024), 1]
    return DLRM_DCN(
        bags(tables), FEATURES, layers, over, dcn_num_layers=3, dcn_low_rank_dim=width(512), dense_device=META
    )


def projection(tables: Tables, width: Width) -> nn.Module:
    over = [width(3072), width(2048), 1]
    branch = [width(1024), 16 * 64]
    return DLRM_Projection(bags(tables), FEATURES, [width(512), 64], over, branch, branch, dense_device=META)


def deepfm(tables: Tables, width: Width) -> nn.Module:
    with META:
        return SimpleDeepFMNN(FEATURES, bags(tables), hidden_layer_size=width(4096), deep_fm_dimension=width(6144))


class TwoTowers(nn.Module):
    """A history of items through a transformer, bags of a user through layers, and the product of both."""

    def __init__(self, tables: Tables, width: Width) -> None:
        super().__init__()
        rows, dim, _ = tables["history"]
        inner = width(512)
        item = EmbeddingConfig(name="history", num_embeddings=rows, embedding_dim=dim, feature_names=["history"])
        self.items = EmbeddingCollection(tables=[item], device=META)
        self.users = bags({name: table for name, table in tables.items() if name != "history"})
        with META:
            layer = nn.TransformerEncoderLayer(inner, 8, 4 * inner, batch_first=True, dropout=0.0)
            self.into = nn.Linear(dim, inner)
            self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.user = nn.Linear(
                FEATURES + sum(table.embedding_dim for table in self.users.embedding_bag_configs()), inner
            )

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:  # noqa: D102
        items = self.items(sparse)["history"].values().view(len(dense), HISTORY, -1)
        history = self.encoder(self.into(items)).mean(dim=1)
        user = self.user(torch.cat([dense, self.users(sparse).values()], dim=1))
        return (history * user).sum(dim=1, keepdim=True)


TWO_TOWERS = "two towers with a transformer over sequences, adamw, 2 ranks"
JOBS = {
    "DLRM, adam, 2 ranks": Job(
        dlrm, {f"t{i}": (200_000, 64, 1 + 2 * i) for i in range(8)}, "cpu:2", "adam", 256,
        {f"t{i}": kind for i, kind in enumerate(["row_wise", "column_wise", *["table_wise"] * 6])},
    ),
    "DLRM_DCN, adagrad, 4 ranks": Job(
        dcn, {f"t{i}": (100_000 + 20_000 * i, 128, 3) for i in range(8)}, "cpu:4", "adagrad", 128,
        {"t0": "row_wise", "t1": "column_wise"},
    ),
    "DLRM_Projection, sgd with momentum, 2 hosts of 2": Job(
        projection, {f"t{i}": (250_000, 64, 4) for i in range(12)}, "cpu:2x2", "sgd_momentum", 128,
        {f"t{i}": "table_row_wise" if i < 4 else "table_wise" for i in range(12)},
    ),
    "SimpleDeepFMNN, rmsprop, 1 rank": Job(
        deepfm, {f"t{i}": (80_000, 64, 2) for i in range(12)}, "cpu:1", "rmsprop", 64, {}
    ),
    TWO_TOWERS: Job(
        TwoTowers, {"history": (800_000, 128, HISTORY), "user": (500_000, 64, 1), "shop": (300_000, 64, 4)},
        "cpu:2", "adamw", 16, {},
    ),
}  # fmt: skip

STRESS = {  # activations, which are not counted, grow with the batch
    "SimpleDeepFMNN, 256 samples": replace(JOBS["SimpleDeepFMNN, rmsprop, 1 rank"], batch_size=256),
    "two towers, 64 samples": replace(JOBS[TWO_TOWERS], batch_size=64),
}


def measure(name: str) -> dict[str, Any]:
    """Plan and train a job on this rank: what planning says of its memory, and its peak, in bytes."""
    job = (JOBS | STRESS)[name]
    limits = {
        table: ParameterConstraints(
            pooling_factors=[float(ids)], sharding_types=[job.types[table]] if table in job.types else None
        )
        for table, (_, _, ids) in job.tables.items()
    }
    planner = RecSmithPlanner(
        job.cluster, batch_size=job.batch_size, constraints=limits, optimizer="rowwise_adagrad",
        dense_optimizer=job.optimizer,
    )  # fmt: skip
    plan = _plan(planner, job.model(job.tables, lambda width: width))
    return_freed_memory()
    small = {table: (min(rows, SMALL_ROWS), dim, ids) for table, (rows, dim, ids) in job.tables.items()}
    _train(replace(job, tables=small, batch_size=8), _shrunk(plan), lambda width: min(width, SMALL_WIDTH))
    settle()
    before = proc_bytes("self/status", "VmRSS")
    peak = _train(job, plan, lambda width: width) - before
    rank = dist.get_rank()
    return {
        "shards": plan.cost.per_device[rank].hbm_bytes,
        "reserve": plan.cluster.reserve_bytes,
        "peak": peak,
    }


def _plan(planner: RecSmithPlanner, model: nn.Module) -> Plan:
    """The plan of rank 0 on every rank, which all of them need."""
    said: list[Any] = [None]
    if dist.get_rank() == 0:
        said = [planner.make(model).plan]
    dist.broadcast_object_list(said)
    return said[0]


def _shrunk(plan: Plan) -> Plan:
    tables = [replace(table, num_embeddings=min(table.num_embeddings, SMALL_ROWS)) for table in plan.workload.tables]
    return replace(plan, workload=replace(plan.workload, tables=tuple(tables)))


def _train(job: Job, plan: Plan, width: Width) -> int:
    """Train some steps; the highest resident memory of a step, in bytes."""
    model, sharders = job.model(job.tables, width), get_default_sharders()
    copies = {each.table for each in plan.placements if each.sharding_type == "data_parallel"}
    for module in model.modules():
        if isinstance(module, (EmbeddingBagCollection, EmbeddingCollection)):
            fused = [value for name, value in module.named_parameters() if name.split(".")[-2] not in copies]
            apply_optimizer_in_backward(RowWiseAdagrad, fused, {"lr": 0.01})
    made = to_sharding_plan(plan, model, sharders=sharders)
    sharded = DistributedModelParallel(model, device=torch.device("cpu"), plan=made, sharders=sharders)
    with torch.no_grad():  # fresh zeros take no memory until they are written
        for tensor in [*sharded.parameters(), *sharded.buffers()]:
            tensor.mul_(1)
    rest = [value for _, value in in_backward_optimizer_filter(sharded.named_parameters())]
    optimizer = OPTIMIZERS[job.optimizer](rest)
    draw = torch.Generator().manual_seed(dist.get_rank())
    peaks: list[int] = []
    for _ in range(STEPS):
        batch = _batch(job, draw)
        settle()
        dist.barrier()
        Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is resident
        optimizer.zero_grad()
        logits = sharded(batch.dense_features, batch.sparse_features).squeeze(1)
        nn.functional.binary_cross_entropy_with_logits(logits, batch.labels).backward()
        optimizer.step()
        peaks.append(proc_bytes("self/status", "VmHWM"))
    return max(peaks)


def _batch(job: Job, draw: torch.Generator) -> Batch:
    ids = [torch.randint(rows, (job.batch_size * n,), generator=draw) for rows, _, n in job.tables.values()]
    lengths = torch.tensor([n for _, _, n in job.tables.values()]).repeat_interleave(job.batch_size)
    return Batch(
        dense_features=torch.rand(job.batch_size, FEATURES, generator=draw),
        sparse_features=KeyedJaggedTensor(keys=list(job.tables), values=torch.cat(ids), lengths=lengths),
        labels=torch.randint(2, (job.batch_size,), generator=draw).float(),
    )
