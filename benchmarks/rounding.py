"""Why losses of one training part when sums are taken in another order: rounding, and which optimizers amplify it.

python benchmarks/rounding.py             # some minutes
python benchmarks/rounding.py --quick     # 20 steps

A DLRM trains twice on the same batches in one process, the second time with the samples of every batch in another
order, so that only the order of sums differs: it is what sharding and deduplication change too. Both are done in
float32 and in float64. What is rounding becomes 2^29 times smaller at step 1 in float64, and what comes of it in later
steps likewise, as long as it is small; a difference in the mathematics would stay.

B samples, D columns, F features, U distinct ids of a batch
"""

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from recsmith.data import Batch
from recsmith.training.sources import open_data

BAG, FEATURES, DIM, BATCH, STEPS, RATE = 20, 4, 16, 256, 100, 0.05
ROWS = (1_000, 200_000)


@dataclass(frozen=True)
class Case:
    """An optimizer of tables, and the rows of each table."""

    optimizer: str
    rows: int
    eps: float = 1e-8

    def update(self, weights: torch.Tensor, sums: torch.Tensor, gradient: torch.Tensor) -> None:
        """Change the rows of a batch (U, D) in place, by the formulas of torch.optim and torchrec.optim."""
        if self.optimizer == "sgd":
            weights.sub_(RATE * gradient)
            return
        squares = gradient.square()
        sums.add_(squares.mean(dim=1, keepdim=True) if self.optimizer == "rowwise_adagrad" else squares)
        weights.sub_(RATE * gradient / (sums.sqrt() + self.eps))


CASES = [
    Case(optimizer, rows, eps)
    for rows in ROWS
    for optimizer, eps in (("sgd", 0.0), ("rowwise_adagrad", 1e-8), ("adagrad", 1e-8), ("adagrad", 1e-4))
]


class Dlrm(nn.Module):
    """Dense columns and pooled vectors, the products of every two, and layers on top."""

    def __init__(self, dense: int) -> None:
        super().__init__()
        count = FEATURES + 1
        self.bottom = nn.Sequential(nn.Linear(dense, 64), nn.ReLU(), nn.Linear(64, DIM), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear(DIM + count * (count - 1) // 2, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )
        self.pairs = torch.triu_indices(count, count, offset=1)

    def forward(self, dense: torch.Tensor, pooled: list[torch.Tensor]) -> torch.Tensor:
        """Logits (B,) of dense columns and pooled vectors (B, D) of each feature."""
        first = self.bottom(dense)
        vectors = torch.stack([first, *pooled], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([first, products], dim=1)).squeeze(1)


def losses(case: Case, kind: torch.dtype, *, reorder: bool, steps: int) -> np.ndarray:
    """Losses of every step. reorder: take the samples of each batch in another order."""
    torch.manual_seed(0)
    model, rng = Dlrm(4).to(kind), np.random.default_rng(1)
    dense = torch.optim.Adam(model.parameters(), lr=1e-3)
    tables = [(torch.rand(case.rows, DIM) * 2 - 1).mul_(case.rows**-0.5).to(kind) for _ in range(FEATURES)]
    sums = [torch.zeros(case.rows, 1 if case.optimizer == "rowwise_adagrad" else DIM, dtype=kind) for _ in tables]
    data: dict[str, Any] = {
        "format": "generator", "seed": 7, "num_samples": BATCH * steps, "dense": 4,
        "features": [{"name": f"f{i}", "num_embeddings": case.rows, "pooling_factor": BAG} for i in range(FEATURES)],
    }  # fmt: skip
    found: list[float] = []
    with open_data(data, "data").batches(rank=0, world_size=1, batch_size=BATCH, seed=0) as batches:
        for batch in batches:
            order = rng.permutation(len(batch)) if reorder else np.arange(len(batch))
            found.append(step(case, model, dense, tables, sums, batch.take(order)))
    return np.array(found)


def step(
    case: Case, model: Dlrm, dense: Any, tables: list[torch.Tensor], sums: list[torch.Tensor], batch: Batch
) -> float:
    """One step: only the rows that the batch looks up are touched, as in FBGEMM."""
    kind, used, rows, pooled = tables[0].dtype, [], [], []
    for table, ids in zip(tables, batch.ids.values(), strict=True):
        distinct, place = torch.from_numpy(ids.values).unique(return_inverse=True)
        offsets = torch.from_numpy(np.cumsum(ids.lengths, dtype=np.int64) - ids.lengths)
        used.append(distinct)
        rows.append(table[distinct].requires_grad_())
        pooled.append(nn.functional.embedding_bag(place, rows[-1], offsets, mode="sum"))
    logits = model(torch.from_numpy(batch.dense).to(kind), pooled)
    loss = nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.labels[:, 0]).to(kind))
    dense.zero_grad()
    loss.backward()
    dense.step()
    with torch.no_grad():
        for table, total, distinct, each in zip(tables, sums, used, rows, strict=True):
            weights, state = table[distinct], total[distinct]
            case.update(weights, state, each.grad)
            table[distinct], total[distinct] = weights, state
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    torch.set_num_threads(1)
    parser.add_argument("--quick", action="store_true", help="20 steps")
    steps = 20 if parser.parse_args().quick else STEPS
    print(f"{FEATURES} tables, bags of {BAG} ids, {DIM} columns, {BATCH} samples a step, rate {RATE}, {steps} steps")
    print(f"{'relative difference of losses':44}{'step 1':>10}{'10':>10}{'most':>10}{'loss':>18}")
    for case in CASES:
        for kind in (torch.float32, torch.float64):
            one, other = (losses(case, kind, reorder=reorder, steps=steps) for reorder in (False, True))
            parted = np.abs(other / one - 1)
            name = f"{case.rows:>8,} rows  {case.optimizer:16}eps {case.eps:<8g}{str(kind).removeprefix('torch.'):8}"
            print(f"{name:44}{parted[0]:10.1e}{parted[:10].max():10.1e}{parted.max():10.1e}"
                  f"{one[0]:10.4f} -> {one[-10:].mean():.4f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
