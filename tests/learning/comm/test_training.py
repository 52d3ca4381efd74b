"""Training of all-to-alls, with PyTorch: what it learns, that NumPy computes the same, and how it ends."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.exchanged import exchanged

pytest.importorskip("torch")

from recsmith.costs.neural_comm_files import comm_model_of, load_comm_model
from recsmith.errors import RecSmithError, UsageError
from recsmith.learning.comm import Exchanges, read_exchanges, training
from recsmith.learning.comm.learn import learn_comm
from recsmith.learning.comm.training import CommRecipe, predict_comm, train_comm
from recsmith.learning.training_loop import Epoch


@pytest.fixture(scope="module")
def folders(tmp_path_factory: Any) -> list[Path]:
    return [exchanged(tmp_path_factory.mktemp("exchanges"), ranks, samples=200) for ranks in (2, 4)]


@pytest.fixture(scope="module")
def blocks(folders: list[Path]) -> list[Exchanges]:
    return read_exchanges(folders)[0]


def test_it_learns_and_numpy_computes_what_pytorch_does(blocks: list[Exchanges]) -> None:
    seen: list[Epoch] = []
    network, epochs = train_comm(CommRecipe(epochs=15), blocks, blocks, seen.append)
    assert [each.number for each in seen] == list(range(1, epochs + 1))
    assert seen[-1].best < seen[0].error / 3
    model = comm_model_of(network.tensors(), 8, "a test")
    for block in blocks:
        found = predict_comm(network, block)
        assert model.of_load(block.load) == pytest.approx(found, rel=1e-5)
        assert np.median(np.abs(found / block.seconds - 1)) < 0.2


def test_a_seed_gives_the_same_weights(blocks: list[Exchanges]) -> None:
    one, again, other = (train_comm(CommRecipe(epochs=1, seed=seed), blocks, blocks)[0].tensors() for seed in (1, 1, 2))
    assert all((one[name] == again[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_a_budget_ends_training(blocks: list[Exchanges]) -> None:
    assert train_comm(CommRecipe(epochs=10_000, budget_s=0.2), blocks, blocks)[1] < 10_000


def test_ctrl_c_keeps_the_best_so_far(blocks: list[Exchanges]) -> None:
    def stop(epoch: Epoch) -> None:
        if epoch.number == 2:
            raise KeyboardInterrupt

    assert train_comm(CommRecipe(epochs=50), blocks, blocks, stop)[1] == 2


def test_ctrl_c_before_anything_is_learned_is_raised(blocks: list[Exchanges], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_loss", stop)
    with pytest.raises(KeyboardInterrupt):
        train_comm(CommRecipe(epochs=2), blocks, blocks)


def test_training_that_diverges_says_so(blocks: list[Exchanges], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_mean_error", lambda *_: float("nan"))
    with pytest.raises(RecSmithError, match="training diverged"):
        train_comm(CommRecipe(epochs=2), blocks, blocks)


def test_from_folders_to_a_file(folders: list[Path], tmp_path: Path) -> None:
    target = str(tmp_path / "m.safetensors")
    other = exchanged(tmp_path, 3)
    card = learn_comm(folders, target, {"epochs": 2}, [other])
    model, found = load_comm_model(target)
    assert found == card
    assert (card.ranks, card.per_host, model.per_host) == ((2, 4), 8, 8)
    assert [(each.ranks, each.trained) for each in card.held_out] == [(2, True), (3, False), (4, True)]
    assert card.held_out[1].exchanges == 60
    assert card.exchanges == 400 == card.train + card.validation + sum(e.exchanges for e in card.held_out if e.trained)
    assert card.noise.pairs == (2 + 4) * 20  # ranks of twenty exchanges of each folder, which stand twice
    assert card.ranges["bytes"].most > 1e8


def test_what_it_refuses_leaves_what_was_there(folders: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "m.safetensors"
    target.write_bytes(b"before")
    with pytest.raises(UsageError, match="exchanges of 2 ranks are to train and to judge"):
        learn_comm(folders, str(target), {"epochs": 1}, [folders[0]])
    with pytest.raises(UsageError, match="of several devices"):
        learn_comm(folders, str(target), {"epochs": 1}, [exchanged(tmp_path, 3, hardware="simulated:a100-80")])
    with pytest.raises(UsageError, match=r"give a name that ends with \.safetensors"):
        learn_comm(folders, "m.json", {"epochs": 1})
    assert target.read_bytes() == b"before"
