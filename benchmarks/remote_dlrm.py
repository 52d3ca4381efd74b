"""A DLRM whose tables lie on a parameter server, as a run of RecSmith.

    python benchmarks/remote_dlrm.py

Its lines are counted by remote_lines.py.
"""

from typing import Any

from recsmith.training import Run, RunData, RunMetrics, RunModel, RunOptimizers, SparseOptimizer, train
from recsmith.training.systems.remote.settings import RunRemote

# --- model and data -----------------------------------------------------------------------------------------------

FEATURES = {"user": 100_000, "item": 20_000, "shop": 1_000}
DATA = {
    "format": "generator", "seed": 7, "num_samples": 2 * 256 * 20, "dense": 4,
    "features": [{"name": name, "num_embeddings": rows} for name, rows in FEATURES.items()],
}  # fmt: skip
MODEL = RunModel(embedding_dim=16, bottom=(64,), top=(64, 32))

# --- training -----------------------------------------------------------------------------------------------------


def tell(message: dict[str, Any]) -> None:
    if "scores" in message:
        print(f"step {message['step']} loss {message['scores']['logloss']:.7f}")


if __name__ == "__main__":
    train(Run(
        data=RunData(train=DATA, batch_size=256), output="remote", model=MODEL, ranks=2, metrics=RunMetrics(every=1),
        optimizers=RunOptimizers(sparse=SparseOptimizer(learning_rate=0.05)), remote=RunRemote(servers=1),
    ), on_progress=tell)  # fmt: skip
