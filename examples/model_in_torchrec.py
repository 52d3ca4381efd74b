"""Plan a TorchRec model without starting a job. Needs TorchRec. Run: python examples/model_in_torchrec.py."""

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig

from recsmith.torchrec import RecSmithPlanner


class Model(nn.Module):
    """Two tables, without memory: the meta device is enough to plan."""

    def __init__(self) -> None:
        super().__init__()
        self.ebc = EmbeddingBagCollection(
            device=torch.device("meta"),
            tables=[
                EmbeddingBagConfig(name="user", num_embeddings=2_000_000, embedding_dim=64, feature_names=["user"]),
                EmbeddingBagConfig(name="item", num_embeddings=500_000, embedding_dim=64, feature_names=["item"]),
            ],
        )


def main() -> None:
    """The ShardingPlan is TorchRec's own; DistributedModelParallel(model, plan=...) takes it."""
    planner = RecSmithPlanner("h100:8", batch_size=4096)
    print(planner.plan(Model()))


if __name__ == "__main__":
    main()
