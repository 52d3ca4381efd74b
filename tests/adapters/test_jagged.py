"""KeyedJaggedTensors found in batches, with the expressions that reach them."""

from types import SimpleNamespace
from typing import Any

import pytest

from recsmith.errors import UsageError

pytestmark = pytest.mark.usefixtures("torchrec")


def tensor() -> Any:
    """Two keys of two samples: bags of 1 and 2 ids, and of 0 and 1."""
    import torch
    from torchrec import KeyedJaggedTensor

    return KeyedJaggedTensor(keys=["a", "b"], values=torch.tensor([5, 6, 7, 8]), lengths=torch.tensor([1, 2, 0, 1]))


def test_each_key_has_its_ids_and_bags():
    from recsmith.adapters.jagged import find_jagged

    (found,) = find_jagged(tensor(), 0)
    assert (found.place, found.samples, found.weighted, found.bags) == ("batch", 2, False, [2, 2])
    assert [found.ids(key).tolist() for key in ("a", "b")] == [[5, 6, 7], [8]]


@pytest.mark.parametrize(
    ("hold", "place"),
    [
        (lambda one: [0, one], "batch[1]"),
        (lambda one: {"x": (one,)}, "batch['x'][0]"),
        (lambda one: SimpleNamespace(sparse=one, again=one), "batch.sparse"),
    ],
)
def test_a_tensor_is_found_once_and_named_by_how_it_is_reached(hold: Any, place: str):
    from recsmith.adapters.jagged import find_jagged

    assert [each.place for each in find_jagged(hold(tensor()), 0)] == [place]


def test_batches_are_searched_two_levels_deep_and_no_deeper():
    from recsmith.adapters.jagged import find_jagged

    with pytest.raises(UsageError, match="batch 7 holds no KeyedJaggedTensor at its top or 2 levels deep; types seen"):
        find_jagged([[[tensor()]]], 7)


def test_long_lists_of_words_are_cut():
    from recsmith.adapters.jagged import listed

    assert listed(["a", "b"]) == "a, b"
    assert listed(["a"] * 23).endswith("a, a and 3 more")
