"""Features come in the order of a collection's configs under every plan: values and keys of the unsharded model."""

from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("torchrec") is None, reason="torchrec is not installed")


@pytest.mark.parametrize("turned", [False, True])
def test_a_model_that_reads_values_sees_what_the_unsharded_one_sees(turned: bool) -> None:
    from recsmith.jobs.launch import launch

    for found in launch("support.feature_orders:differences", {"turned": turned}, ranks=2):
        assert found["with"] < 1e-6
        assert found["piped"] < 1e-6
        assert found["without"] > 1e-2  # TorchRec's own order is another one: when it is not, this file can go


@pytest.mark.usefixtures("torchrec")
def test_what_is_in_order_is_not_copied() -> None:
    import torch
    from torchrec import KeyedTensor

    from recsmith.adapters.feature_order import in_order

    pooled = KeyedTensor(["b", "a"], [1, 2], torch.tensor([[1.0, 2.0, 3.0]]))
    assert in_order(["b", "a"], pooled) is pooled
    turned = in_order(["a", "b"], pooled)
    assert turned.keys() == ["a", "b"]
    assert turned.length_per_key() == [2, 1]
    assert turned.values().tolist() == [[2.0, 3.0, 1.0]]
