"""Why losses of one training part when sums are taken in another order: rounding, and which optimizers amplify it.

python benchmarks/rounding.py             # three minutes
python benchmarks/rounding.py --quick     # 20 steps

The same model trains twice on the same batches in one process, the second time with the samples of every batch in
another order, so that only the order of sums differs; it is what sharding and deduplication change. Both are done in
float32 and in float64. What is rounding shrinks by 2^29 in float64; what is a difference in the mathematics stays.

B samples, D columns, F features
"""

import argparse

import numpy as np
import torch
import torchrec.optim
from torch import nn

from recsmith.data import Batch
from recsmith.training.datasets import open_data

ROWS, BAG, FEATURES, DIM, BATCH, STEPS, RATE = 200_000, 20, 2, 8, 256, 100, 0.05
DATA = {
    "format": "generator", "seed": 7, "num_samples": BATCH * STEPS, "dense": 4,
    "features": [{"name": f"f{i}", "num_embeddings": ROWS, "pooling_factor": BAG} for i in range(FEATURES)],
}  # fmt: skip
CASES = {  # name: optimizer of tables
    "SGD": lambda tables: torch.optim.SGD(tables, lr=RATE),
    "row-wise Adagrad, eps 1e-8": lambda tables: torchrec.optim.RowWiseAdagrad(tables, lr=RATE, eps=1e-8),
    "Adagrad, eps 1e-8": lambda tables: torch.optim.Adagrad(tables, lr=RATE, eps=1e-8),
    "Adagrad, eps 1e-5": lambda tables: torch.optim.Adagrad(tables, lr=RATE, eps=1e-5),
    "Adagrad, eps 1e-3": lambda tables: torch.optim.Adagrad(tables, lr=RATE, eps=1e-3),
}


class Clicks(nn.Module):
    """Pooled vectors beside dense columns, and two layers on top."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, DIM, mode="sum") for _ in range(FEATURES))
        for table in self.tables:
            nn.init.uniform_(table.weight, -(ROWS**-0.5), ROWS**-0.5)
        self.top = nn.Sequential(nn.Linear(4 + FEATURES * DIM, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch: Batch, order: np.ndarray) -> torch.Tensor:
        """The loss, the samples taken in an order (B,)."""
        kind = self.top[0].weight.dtype
        vectors = [torch.from_numpy(batch.dense[order]).to(kind)]
        for table, ids in zip(self.tables, batch.ids.values(), strict=True):
            taken = ids.take(order)
            offsets = torch.from_numpy(np.cumsum(taken.lengths, dtype=np.int64) - taken.lengths)
            vectors.append(table(torch.from_numpy(taken.values), offsets))
        logits = self.top(torch.cat(vectors, dim=1))
        return nn.functional.binary_cross_entropy_with_logits(logits, torch.from_numpy(batch.labels[order]).to(kind))


def losses(name: str, kind: torch.dtype, *, reorder: bool, steps: int) -> np.ndarray:
    """Losses of every step. reorder: take the samples of each batch in another order."""
    torch.manual_seed(0)
    model, rng = Clicks().to(kind), np.random.default_rng(1)
    optimizers = [CASES[name](list(model.tables.parameters())), torch.optim.Adam(model.top.parameters(), lr=1e-3)]
    found: list[float] = []
    with open_data(DATA, "data").batches(rank=0, world_size=1, batch_size=BATCH, seed=0) as batches:
        for batch, _ in zip(batches, range(steps), strict=False):
            order = rng.permutation(len(batch)) if reorder else np.arange(len(batch))
            loss = model(batch, order)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            found.append(loss.item())
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 steps")
    steps = 20 if parser.parse_args().quick else STEPS
    print(f"{FEATURES} tables of {ROWS:,} rows, bags of {BAG}, {BATCH} samples a step, rate {RATE}, {steps} steps")
    print("largest relative difference of losses, at steps 1, 2 and of all")
    for name in CASES:
        for kind in (torch.float32, torch.float64):
            one, other = (losses(name, kind, reorder=reorder, steps=steps) for reorder in (False, True))
            parted = np.abs(other / one - 1)
            print(
                f"{name:28}{str(kind).removeprefix('torch.'):9}{parted[0]:10.1e}{parted[1]:10.1e}{parted.max():10.1e}"
            )


if __name__ == "__main__":
    main()
