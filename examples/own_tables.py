"""A table module of one's own: vectors of unit length. Run: python examples/own_tables.py.

A run names it as `model: {table_module: {name: own_tables:UnitTables}}`; nothing else of RecSmith knows of it.
"""

import tempfile

import torch
from torch import nn
from torchrec import EmbeddingBagCollection, KeyedTensor

from recsmith.training import Run, RunData, RunModel, train
from recsmith.training.tables.features import Features
from recsmith.training.tables.protocol import TableModule

CLICKS = {"format": "generator", "dense": 2, "features": [{"name": "item", "num_embeddings": 100}]}


class UnitTables(nn.Module, TableModule):
    """To a model, a collection whose pooled vectors have length 1, or `scale`."""

    def __init__(self, configs, device, is_weighted: bool = False, *, scale: float = 1.0) -> None:
        super().__init__()
        self.scale, self.configs = scale, list(configs)
        self.tables = EmbeddingBagCollection(tables=self.configs, device=device, is_weighted=is_weighted)

    def embedding_bag_configs(self):
        """Those that it was given: to the model nothing has changed."""
        return self.configs

    def forward(self, features):
        """Pooled vectors, scaled feature by feature."""
        pooled = self.tables(features)
        keys, widths = pooled.keys(), pooled.length_per_key()
        units = [self.scale * nn.functional.normalize(pooled[key], dim=1) for key in keys]
        return KeyedTensor(keys, widths, torch.cat(units, dim=1))

    def features(self) -> Features:
        """All features of its tables."""
        return Features(tuple(name for config in self.configs for name in config.feature_names))

    def stored(self):
        """The tables as they are."""
        return self.configs

    def names(self):
        """Of its tables."""
        return [config.name for config in self.configs]

    def vectors(self, name: str):
        """Rows as a bag of one id returns them."""
        if name not in self.names():
            return None
        weights = self.tables.get_parameter(f"embedding_bags.{name}.weight")
        return self.scale * nn.functional.normalize(weights.detach(), dim=1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        data = RunData(
            train={**CLICKS, "num_samples": 8000}, test={**CLICKS, "first_sample": 8000, "num_samples": 2000}
        )
        for module in (None, {"name": "own_tables:UnitTables", "scale": 2.0}):
            run = Run(data=data, output=f"{folder}/{module!s:.4}", model=RunModel(table_module=module))
            print(module, f"log loss {train(run)['test']['logloss']:.4f} on data.test")
