"""AutoShard's network: an LSTM like PyTorch's, that reads items in order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsmith.planners.autoshard.files import AUTOSHARD
from recsmith.planners.autoshard.network import LAYERS, READ, STATE, AutoShardNetwork


def drawn(seed: int, scale: float = 0.3) -> AutoShardNetwork:
    random = np.random.default_rng(seed)
    return AutoShardNetwork({name: scale * random.normal(size=shape) for name, shape in AUTOSHARD.shapes.items()})


def test_states_are_those_of_pytorchs_lstm() -> None:
    torch = pytest.importorskip("torch")
    network, read = drawn(0), np.random.default_rng(1).normal(size=(9, READ))
    lstm = torch.nn.LSTM(READ, STATE, LAYERS, dtype=torch.float64)
    ours = {"weight_ih": "read{}", "weight_hh": "kept{}", "bias_ih": "gate{}_bias"}
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            which, _, layer = name.rpartition("_l")
            parameter.copy_(torch.as_tensor(network.tensors[ours[which].format(layer)]) if which in ours else 0.0)
        wanted = lstm(torch.as_tensor(read))[0].numpy()
    np.testing.assert_allclose(network.states(read), wanted, rtol=1e-9, atol=1e-12)


@given(seed=st.integers(0, 2**16), count=st.integers(1, 12), data=st.data())
def test_a_state_knows_the_items_before_and_none_behind(seed: int, count: int, data: st.DataObject) -> None:
    network, read = drawn(seed), np.random.default_rng(seed).normal(size=(count, READ))
    changed, i = read.copy(), data.draw(st.integers(0, count - 1))
    changed[i] += 1.0
    differs = (network.states(read) != network.states(changed)).any(axis=1)
    assert not differs[:i].any()
    assert differs[i:].all()


def test_scores_meet_the_state_and_prefer_devices_that_are_done_sooner() -> None:
    network, shipped = drawn(3), AUTOSHARD.load(AUTOSHARD.find("simulated-h100"))[0]
    assert isinstance(shipped, AutoShardNetwork)
    seen, states = np.random.default_rng(4).random((2, 5, 39)), np.eye(2, STATE)
    assert (network.score(states[0], seen) != network.score(states[1], seen)).all()
    seen[..., 32] = np.linspace(0.5, 1.5, 5)
    for state in states:
        assert (np.diff(shipped.score(0 * state, seen * np.eye(39)[32]), axis=-1) < 0).all()
