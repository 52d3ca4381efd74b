"""Files of learned all-to-alls: what is written is read, and nothing else is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.exchanged import card, tensors, write_comm_model
from support.learned import write_model

from recsmith.costs import cost_model
from recsmith.costs.neural_comm_files import comm_card_from_raw, load_comm_model, save_comm_model
from recsmith.costs.weight_files import COMM, shipped
from recsmith.errors import CorruptFile, UsageError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    model, found = load_comm_model(write_comm_model(tmp_path / "m.safetensors"))
    assert found == card()
    assert model.base == pytest.approx(tensors()["base"], rel=1e-6)
    assert (model.per_host, len(model.ranks), len(model.joint)) == (8, 2, 3)
    beside = json.loads((tmp_path / "m.json").read_text())
    assert beside["schema"] == "recsmith/comm-model-card/1"
    assert comm_card_from_raw(beside, "m.json") == found


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"base": np.full(9, np.nan)}, "tensor 'base' holds numbers that are not finite"),
        ({"alpha": -np.ones(1)}, "tensor 'alpha' holds numbers below 0"),
        ({"spread": np.zeros(12)}, "tensor 'spread' holds numbers that are not above 0"),
        ({"base": np.ones(3)}, r"tensor 'base' has shape \(3,\), not \(9,\)"),
        ({"joint_weight0": np.ones((7, 4))}, r"tensor 'joint_weight0' has shape \(7, 4\), not \(7, 15\)"),
        ({"more": np.ones(3)}, "tensor 'more' is unknown"),
    ],
)
def test_weights_that_no_training_writes_are_refused(tmp_path: Path, fields: Any, words: str) -> None:
    save_comm_model(str(tmp_path / "m.safetensors"), tensors(**fields), card())
    with pytest.raises(CorruptFile, match=words):
        load_comm_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("fields", "words"), [({"per_host": 0}, "0 ranks a host"), ({"ranks": (1, 2)}, r"exchanges of \[1, 2\] ranks")]
)
def test_cards_that_no_training_writes_are_refused(tmp_path: Path, fields: Any, words: str) -> None:
    with pytest.raises(CorruptFile, match=words):
        load_comm_model(write_comm_model(tmp_path / "m.safetensors", **fields))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    some = tensors()
    del some["alpha"]
    save_comm_model(str(tmp_path / "m.safetensors"), some, card())
    with pytest.raises(CorruptFile, match=r"tensor 'alpha' is missing; train it again with `recsmith learn comm`"):
        load_comm_model(tmp_path / "m.safetensors")


@pytest.mark.parametrize("kept", [0, 7, 100, -1])
def test_a_cut_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = write_comm_model(tmp_path / "m.safetensors")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CorruptFile, match="no whole safetensors file"):
        load_comm_model(path)


def test_cost_models_and_all_to_alls_are_not_taken_for_each_other(tmp_path: Path) -> None:
    write_model(tmp_path / "cost.safetensors")
    with pytest.raises(CorruptFile, match="expected `recsmith/comm-model-card/1`"):
        load_comm_model(tmp_path / "cost.safetensors")
    with pytest.raises(CorruptFile, match="expected `recsmith/cost-model-card/1`"):
        cost_model(f"neural:{write_comm_model(tmp_path / 'comm.safetensors')}")


def test_names_that_lead_nowhere_say_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no learned model of all-to-alls is called 'cpu'.*recsmith learn comm"):
        load_comm_model("cpu")
    with pytest.raises(UsageError, match=r"cannot read '.*none\.safetensors': No such file"):
        load_comm_model(tmp_path / "none.safetensors")


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith(COMM)])
def test_what_ships_beats_alpha_beta(name: str) -> None:
    model, found = load_comm_model(name)
    off, simple = np.array([[(each.mean, each.alpha_beta_mean) for each in found.held_out]])[0].T
    assert off.mean() < simple.mean()
    assert model.seconds(np.ones(2), np.ones(2), np.zeros(2), forward=True).min() > 0
