"""The contract of row stores: for your own (write `make`), and for RecSmith's."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.optim.keyed import CombinedOptimizer, KeyedOptimizerWrapper


def a_model() -> nn.Module:
    """A model with one table and one dense layer."""
    torch.manual_seed(0)
    table = EmbeddingBagConfig(name="t", num_embeddings=9, embedding_dim=4, feature_names=["f"])
    return nn.ModuleDict({"tables": EmbeddingBagCollection(tables=[table]), "top": nn.Linear(4, 1)})


def an_optimizer(model: nn.Module) -> CombinedOptimizer:
    """Adagrad for all parameters."""
    parameters: Any = dict(model.named_parameters())
    return CombinedOptimizer([("dense", KeyedOptimizerWrapper(parameters, torch.optim.Adagrad))])


class RowStoreContract:
    """The contract of row stores. Subclass it as a test class, and write `make`."""

    def make(self, folder: Path) -> Any:
        """The store. folder: for its files."""
        raise NotImplementedError

    def test_shards_make_up_every_parameter(self, tmp_path: Path) -> None:
        """Shards cover every parameter exactly once."""
        store = self.make(tmp_path)
        counted = {name: np.zeros(whole.shape, int) for name, whole in store.whole().items()}
        assert counted
        for name, corner, tensor, _ in store.shards():
            assert tensor.dtype == store.whole()[name].dtype
            counted[name][tuple(slice(a, a + n) for a, n in zip(corner, tensor.shape, strict=True))] += 1
        assert all((each == 1).all() for each in counted.values())

    def test_a_walk_gives_the_same_again(self, tmp_path: Path) -> None:
        """Iterating over the shards twice gives the same shards."""
        store = self.make(tmp_path)
        first = [(name, corner, tensor.clone()) for name, corner, tensor, _ in store.shards()]
        store.flush()
        for (name, corner, tensor), again in zip(first, store.shards(), strict=True):
            assert (name, corner) == again[:2]
            assert torch.equal(tensor, again.tensor)


class TrainedStoreContract(RowStoreContract):
    """The contract of a store that a job trains with: `make` returns one of the same model each time."""

    def test_what_is_written_into_shards_is_kept(self, tmp_path: Path) -> None:
        """Values written into shards are kept."""
        store = self.make(tmp_path)
        with torch.no_grad():
            for number, shard in enumerate(store.shards()):
                shard.tensor.fill_(number)
        store.flush()
        assert all((shard.tensor == number).all() for number, shard in enumerate(store.shards()))
        assert all((value == value.flatten()[0]).all() for value in store.state_dict()["model"].values())

    def test_its_state_can_be_loaded_into_another(self, tmp_path: Path) -> None:
        """The state of one store can be loaded into another."""
        from torch.distributed.checkpoint.state_dict_loader import load
        from torch.distributed.checkpoint.state_dict_saver import save

        store, other = self.make(tmp_path), self.make(tmp_path / "other")
        assert store.state_dict()["model"].keys() == store.whole().keys()
        with torch.no_grad():
            for shard in store.shards():
                shard.tensor.uniform_()
        store.flush()
        state = store.state_to_load()
        save(state, checkpoint_id=tmp_path / "state", no_dist=True)
        loaded = other.state_to_load()
        load(loaded, checkpoint_id=tmp_path / "state", no_dist=True)
        other.load_state_dict(loaded)
        for mine, theirs in zip(store.shards(), other.shards(), strict=True):
            assert torch.equal(mine.tensor, theirs.tensor)
