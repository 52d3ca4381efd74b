"""The contract of table modules: for your own (write `make`), and for RecSmith's."""

from typing import Any

import numpy as np
import torch
from torchrec import EmbeddingBagConfig
from torchrec.modules.embedding_configs import PoolingType

from recsmith.data import Batch, JaggedIds
from recsmith.training.tables.plain import configs_of, features_of, initial_weights_of, table_modules, vectors_of

SAMPLES, COLUMNS = 24, 8


def configs(pooling: PoolingType = PoolingType.SUM) -> list[EmbeddingBagConfig]:
    """Two tables; the first one is read by two features."""
    return [
        EmbeddingBagConfig(
            name="t", num_embeddings=90, embedding_dim=COLUMNS, feature_names=["f", "g"], pooling=pooling
        ),
        EmbeddingBagConfig(name="u", num_embeddings=30, embedding_dim=COLUMNS, feature_names=["h"], pooling=pooling),
    ]


def batch(longest: int = 3) -> Batch:
    """Bags of 0 to `longest` ids, possibly repeated; every third sample equals the one before."""
    rng = np.random.default_rng(4)
    ids: dict[str, JaggedIds] = {}
    for name, rows in (("f", 90), ("g", 90), ("h", 30)):
        bags = [rng.integers(0, rows, rng.integers(0, longest + 1)) for _ in range(SAMPLES)]
        for i in range(2, SAMPLES, 3):
            bags[i] = bags[i - 1]
        ids[name] = JaggedIds(
            values=np.concatenate(bags).astype(np.int64), lengths=np.array([len(bag) for bag in bags], np.int32)
        )
    return Batch(
        dense=np.zeros((SAMPLES, 0), np.float32),
        ids=ids,
        labels=np.zeros((SAMPLES, 1), np.float32),
        label_names=("label",),
        sample_ids=np.arange(SAMPLES),
    )


class TableModuleContract:
    """The contract of table modules. Subclass it as a test class; `make` builds the module for configs on the CPU."""

    longest = 3  # ids in a bag

    def make(self, configs: list[EmbeddingBagConfig]) -> Any:
        """The module for some configs."""
        raise NotImplementedError

    def made(self, pooling: PoolingType = PoolingType.SUM) -> Any:
        """The module with random weights."""
        torch.manual_seed(0)
        module = self.make(configs(pooling))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.normal_()
        return module

    def test_a_model_finds_one_table_module(self) -> None:
        """A model that contains it has exactly one table module."""
        (found,) = table_modules(self.made())
        assert sorted(found.names()) == ["t", "u"]

    def test_to_the_model_it_is_a_collection_of_the_logical_tables(self) -> None:
        """Its `embedding_bag_configs` are those of the logical tables."""
        made = self.made().embedding_bag_configs()
        assert [(config.name, config.num_embeddings, config.embedding_dim) for config in made] == [
            ("t", 90, COLUMNS), ("u", 30, COLUMNS),
        ]  # fmt: skip

    def test_a_bag_is_the_sum_or_mean_of_the_vectors_of_its_ids(self) -> None:
        """A bag is the sum or mean of the vectors of its ids."""
        for pooling in (PoolingType.SUM, PoolingType.MEAN):
            self._check_bags(pooling)

    def _check_bags(self, pooling: PoolingType) -> None:
        module, samples = self.made(pooling), batch(self.longest)
        found = module(features_of(module).tensors(samples)).to_dict()
        for table, features in (("t", "fg"), ("u", "h")):
            rows = vectors_of(module, table)
            for feature in features:
                ids = samples.ids[feature]
                parts = torch.split(rows[torch.from_numpy(ids.values)], ids.lengths.tolist())
                mean = pooling == PoolingType.MEAN
                wanted = torch.stack([part.mean(0) if mean and len(part) else part.sum(0) for part in parts])
                seen = [name for name in found if name == feature or name.startswith(f"{feature}@")]
                vector = torch.cat([found[name] for name in seen], dim=1)
                torch.testing.assert_close(vector.detach(), wanted, rtol=1e-5, atol=1e-5)

    def test_batches_hold_what_stored_tables_look_up_and_each_starts_somewhere(self) -> None:
        """Batches have the features of the stored tables, and each stored table has initial weights."""
        module = self.made()
        stored = configs_of(module)
        assert sorted(features_of(module).names) == sorted(name for each in stored for name in each.feature_names)
        initial = initial_weights_of(module)
        assert {each.name: (each.num_embeddings, each.embedding_dim) for each in stored} == {
            name: (each.rows, each.columns) for name, each in initial.items()
        }
        assert all(each.reach >= 0 for each in initial.values())

    def test_an_unknown_table_has_no_vectors(self) -> None:
        """An unknown table has no vectors (None)."""
        (found,) = table_modules(self.made())
        assert found.vectors("tt") is None

    def test_exported_names_are_unique_and_others_stay(self) -> None:
        """Exported names are unique, and names of other parameters stay unchanged."""
        module = self.made()
        (found,) = table_modules(module)
        names = [found.exported(f"model.{name}") for name in module.state_dict()]
        assert len(set(names)) == len(names)
        assert found.exported("model.over_arch.0.weight") == "model.over_arch.0.weight"
