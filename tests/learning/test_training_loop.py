"""The training loop: the rate rises and falls, the loss bends, and the best epoch's weights win."""

import math

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from recsmith.errors import RecSmithError
from recsmith.learning.kernels import training as kernels
from recsmith.learning.training_loop import LINEAR_FROM, WARM, TrainingLoop, rate_at, relative_loss


def test_the_rate_rises_to_1_and_falls_to_nearly_0():
    rates = np.array([rate_at(done) for done in np.linspace(0, 1, 201)])
    top = int(rates.argmax())
    assert top == round(200 * WARM)
    assert rates[top] == pytest.approx(1, abs=1e-3)
    assert (np.diff(rates[: top + 1]) > 0).all()
    assert (np.diff(rates[top:]) < 0).all()
    assert 0 < rates[-1] < 1e-3


def test_small_errors_count_by_their_squares_and_large_ones_by_their_size():
    small, large = torch.tensor([LINEAR_FROM / 4]), torch.tensor([10.0])
    assert float(relative_loss(2 * small) / relative_loss(small)) == pytest.approx(4)
    assert float(relative_loss(2 * large) / relative_loss(large)) == pytest.approx(2, rel=0.01)


def test_a_network_of_kernels_is_the_one_whose_error_was_judged(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"STEPS": 1, "RATE": 100.0}.items():  # after this one step the network is far off
        monkeypatch.setattr(kernels, name, value)
    every, flow = torch.ones(4, dtype=torch.bool), torch.eye(4)
    (weight, bias), second, last = kernels._network(flow, torch.ones(4), every, every, 0)
    assert max(float(each.abs().max()) for each in (weight, bias, *second, *last)) <= 0.5, "as it was first drawn"


def _loop(errors: list[float]) -> tuple[int, float]:
    """(epochs run, weight in the end) of a network whose weight is set to the number of the epoch."""
    network, done = torch.nn.Linear(1, 1, bias=False), iter(range(len(errors)))

    def epoch() -> None:
        with torch.no_grad():
            network.weight.fill_(float(next(done)))

    run = TrainingLoop(network, len(errors), 1, None).run(epoch, lambda: errors[int(network.weight.item())], None)
    return run, network.weight.item()


def test_the_best_epoch_wins():
    assert _loop([3.0, 1.0, 2.0, math.nan]) == (4, 1.0)


def test_errors_that_are_never_finite_are_refused():
    with pytest.raises(RecSmithError, match="training diverged"):
        _loop([math.nan, math.nan])
