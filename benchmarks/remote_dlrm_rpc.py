"""A DLRM whose tables lie on a parameter server, written by hand over PyTorch RPC.

    python benchmarks/remote_dlrm_rpc.py

Trainers name functions of the server, and tensors cross as they are.
Its lines are counted by remote_lines.py.
"""

import os
import threading
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import rpc
from torch.multiprocessing.spawn import spawn
from torchrec.models.dlrm import DenseArch, InteractionArch, OverArch

from recsmith.jobs.machine import free_port
from recsmith.training.sources import open_data

# --- model and data -----------------------------------------------------------------------------------------------

FEATURES = {"user": 100_000, "item": 20_000, "shop": 1_000}
DENSE, WIDTH, TRAINERS, BATCH, STEPS, RATE = 4, 16, 2, 256, 20, 0.05
DATA = {
    "format": "generator", "seed": 7, "num_samples": TRAINERS * BATCH * STEPS, "dense": DENSE,
    "features": [{"name": name, "num_embeddings": rows} for name, rows in FEATURES.items()],
}  # fmt: skip


class Dlrm(nn.Module):
    """All of a DLRM but its tables."""

    def __init__(self) -> None:
        super().__init__()
        pairs = len(FEATURES) * (len(FEATURES) + 1) // 2
        self.bottom = DenseArch(DENSE, [64, WIDTH])
        self.pairs = InteractionArch(len(FEATURES))
        self.top = OverArch(WIDTH + pairs, [64, 32, 1])

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Logits (B, 1) of dense values and of a row of each table."""
        return self.top(self.pairs(self.bottom(dense), pooled))


# --- server -------------------------------------------------------------------------------------------------------


class Tables:
    """Tables with row-wise Adagrad; an update waits for all trainers, and sums what they sent in their order."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.weights = {name: torch.empty(rows, WIDTH).uniform_(-(rows**-0.5), rows**-0.5)
                        for name, rows in FEATURES.items()}  # fmt: skip
        self.sums = {name: torch.zeros(rows) for name, rows in FEATURES.items()}
        self.pushed: dict[int, Any] = {}
        self.steps = 0
        self.all_pushed = threading.Condition()

    def pull(self, ids: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Rows of each table."""
        return {name: self.weights[name][rows] for name, rows in ids.items()}

    def push(self, trainer: int, gradients: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> int:
        """The step that it belongs to."""
        with self.all_pushed:
            step = self.steps
            self.pushed[trainer] = gradients
            if len(self.pushed) < TRAINERS:
                if not self.all_pushed.wait_for(lambda: self.steps > step, TIMEOUT_S):
                    raise TimeoutError(f"trainer {trainer} waits for another one, which pushed nothing")
                return step
            for name in FEATURES:
                self.update(name, [self.pushed[each][name] for each in range(TRAINERS)])
            self.pushed, self.steps = {}, step + 1
            self.all_pushed.notify_all()
            return step

    def update(self, name: str, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """One step of the optimizer of a table."""
        ids, place = torch.cat([rows for rows, _ in parts]).unique(return_inverse=True)
        total = torch.zeros(len(ids), WIDTH).index_add_(0, place, torch.cat([each for _, each in parts]))
        self.sums[name][ids] += total.square().mean(1)
        self.weights[name][ids] -= RATE * total / (self.sums[name][ids, None].sqrt() + 1e-8)


# --- transport ----------------------------------------------------------------------------------------------------

TIMEOUT_S = 30.0
tables: Any = None  # of the server's process


def pull(ids: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return tables.pull(ids)


def push(trainer: int, gradients: dict[str, tuple[torch.Tensor, torch.Tensor]]) -> int:
    return tables.push(trainer, gradients)


def run(rank: int, ports: tuple[int, int]) -> None:
    global tables
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(ports[1]), TP_SOCKET_IFNAME="lo")
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=TIMEOUT_S)
    if rank == TRAINERS:
        tables = Tables()
    name = "server" if rank == TRAINERS else f"trainer{rank}"
    rpc.init_rpc(name, rank=rank, world_size=TRAINERS + 1, rpc_backend_options=options)
    if rank < TRAINERS:
        train(rank, ports)
    rpc.shutdown()


# --- training -----------------------------------------------------------------------------------------------------


def train(rank: int, ports: tuple[int, int]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=TRAINERS)
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(Dlrm())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with open_data(DATA, "data").batches(rank=rank, world_size=TRAINERS, batch_size=BATCH, seed=0) as batches:
        for number, batch in enumerate(batches):
            used, places = {}, {}
            for name, bags in batch.ids.items():
                used[name], places[name] = torch.from_numpy(bags.values).unique(return_inverse=True)
            rows = {name: each.requires_grad_() for name, each in rpc.rpc_sync("server", pull, (used,)).items()}
            pooled = torch.stack([rows[name][places[name]] for name in FEATURES], dim=1)
            logits = model(torch.from_numpy(batch.dense), pooled).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.labels[:, 0]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            gradients = {name: (used[name], rows[name].grad / TRAINERS) for name in FEATURES}
            rpc.rpc_sync("server", push, (rank, gradients))
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {number + 1} loss {mean.item() / TRAINERS:.7f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ports = free_port(), free_port()
    spawn(run, args=(ports,), nprocs=TRAINERS + 1)
