"""Files of learned weights: tensors and card together, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsmith.costs.weight_files import (
    COMM,
    card_path,
    check_tensors,
    find_weights,
    read_weights,
    shipped,
    write_weights,
)
from recsmith.errors import CorruptFile, UsageError

SHAPES = {"a": (2,), "b": (1, 2)}


def test_tensors_and_card_are_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_weights(str(path), {"a": np.arange(3.0)}, {"name": "m"})
    card, tensors = read_weights(path, "a test")
    assert card == {"name": "m"}
    assert tensors["a"].tolist() == [0, 1, 2]
    assert card_path(str(path)) == tmp_path / "m.json"
    assert card_path(str(path)).read_text().strip().startswith("{")


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"a": np.ones(2)}, "tensor 'b' is missing"),
        ({"a": np.ones(2), "b": np.ones((1, 2)), "c": np.ones(1)}, "tensor 'c' is unknown"),
        ({"a": np.ones(3), "b": np.ones((1, 2))}, r"tensor 'a' has shape \(3,\), not \(2,\)"),
        ({"a": np.array([1, np.inf]), "b": np.ones((1, 2))}, "tensor 'a' holds numbers that are not finite"),
    ],
)
def test_other_tensors_are_refused_by_name(tensors: Any, words: str) -> None:
    with pytest.raises(CorruptFile, match=f"'m': {words}; train it again with `a test`"):
        check_tensors(tensors, SHAPES, "m", "a test")


def test_tensors_of_the_right_shapes_are_accepted() -> None:
    check_tensors({"a": np.ones(2), "b": np.ones((1, 2))}, SHAPES, "m", "a test")


def test_a_signalling_nan_is_refused_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_weights(str(path), {"a": np.zeros(2), "b": np.ones((1, 2))}, {"name": "m"})
    data = path.read_bytes()
    path.write_bytes(data.replace(bytes(8), bytes.fromhex("010080ff00000000")))  # casting it would warn
    tensors = read_weights(path, "a test")[1]
    with pytest.raises(CorruptFile, match="tensor 'a' holds numbers that are not finite"):
        check_tensors(tensors, SHAPES, "m", "a test")


def test_weights_are_small_and_of_one_type(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "m.safetensors"
    save_file({"a": np.ones(2, dtype=np.float16)}, path, metadata={"card": "{}"})
    with pytest.raises(CorruptFile, match="tensor 'a' is not of type F32"):
        read_weights(path, "a test")
    with path.open("r+b") as file:
        file.truncate(400 * 2**20)  # sparse: it takes no room on the disk
    with pytest.raises(CorruptFile, match="learned weights have at most 67,108,864"):
        read_weights(path, "a test")
    for odd in (tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match="it is no file"):
            read_weights(odd, "a test")


def test_weights_are_found_by_path_and_by_name() -> None:
    assert find_weights("x/y.safetensors", "model", "a test", []) == Path("x/y.safetensors")
    costs = [name for name in shipped() if not name.startswith(COMM)]
    assert find_weights("cpu", "model", "a test", costs).is_file()
    with pytest.raises(UsageError, match="no learned model is called 'cpuu'"):
        find_weights("cpuu", "model", "a test", costs)
