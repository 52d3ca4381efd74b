"""Steps whose ranks enter the forward all-to-all one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exchanged import tensors

from recsmith.costs.collectives import latency
from recsmith.costs.neural_comm_files import comm_model_of
from recsmith.errors import UsageError
from recsmith.hardware import load_links
from recsmith.hardware.simulated_links import ALL_TO_ALL
from recsmith.measuring.exchanges import Exchange
from recsmith.measuring.statistics import draw_visits
from recsmith.verifying import steps as room
from recsmith.verifying.steps import by_links, by_model, median_step, resampled_steps, step_seconds, step_with_skew


def test_a_step_waits_for_the_last_to_be_ready_and_for_the_slowest_forward_exchange():
    kernels = np.array([[[1.0, 2.0], [2.0, 3.0]], [[4.0, 2.0], [2.0, 3.0]]])  # two visits, two ranks
    comm = np.array([[0.5, 4.0], [0.25, 1.0]])
    assert step_seconds(kernels, comm).tolist() == [7.5, 10.5]


def test_what_slows_a_whole_visit_falls_out_of_paired_differences():
    kernels = np.array([1.0, 3.0, 1.5, 1.0, 2.0, 1.2, 1.1])[:, None, None] * np.array([[1.0, 2.0], [0.5, 1.0]])
    none, drawn = np.zeros((7, 2, 2)), draw_visits(7)
    first, second = resampled_steps(1.03 * kernels, none, drawn), resampled_steps(kernels, none, drawn)
    assert first / second == pytest.approx(np.full(len(drawn), 1.03))
    assert second.min() < second.max()


def test_resampled_steps_are_those_of_the_drawn_visits(monkeypatch: pytest.MonkeyPatch):
    draw = np.random.default_rng(0)
    kernels, comm = draw.uniform(1, 2, (5, 3, 2)), draw.uniform(0, 1, (5, 3, 2))
    drawn = draw_visits(5, seed=4, resamples=50)
    expected = [median_step(kernels[visits], comm[visits]) for visits in drawn]
    assert resampled_steps(kernels, comm, drawn) == pytest.approx(expected)
    monkeypatch.setattr(room, "MOST_AT_ONCE", 100)
    assert resampled_steps(kernels, comm, drawn) == pytest.approx(expected)


LINKS = load_links("simulated:h100")
MODEL = comm_model_of(tensors(), 8, "a test")


def forward(*width: int, batch_size: int = 8192) -> Exchange:
    return Exchange(number=0, forward=True, batch_size=batch_size, width=width, skew_s=(0.0,) * len(width))


def test_ranks_that_are_ready_together_take_the_exchange_on_top() -> None:
    exchange = forward(256, 512, 256, 128)
    for seconds in (by_links(LINKS), by_model(MODEL)):
        plain = float(seconds(exchange).max())
        assert step_with_skew(np.full(4, 0.01), exchange, seconds) == pytest.approx(0.01 + plain)


def test_a_last_rank_that_sends_little_waits_for_less() -> None:
    """The wide rank has sent to all others before the last is ready; what is left is between those two and the rest."""
    ready = np.array([0.0, 0.0, 0.0, 0.01])
    wide, narrow = (
        step_with_skew(ready, forward(*width), by_links(LINKS)) for width in ((8, 8, 8, 2048), (2048, 8, 8, 8))
    )
    assert narrow < wide
    rest = narrow - 0.01 - latency(ALL_TO_ALL, LINKS.cluster(4))
    assert rest == pytest.approx((2048 + 8 + 8) * 8192 * 4 / (0.75 * 450e9), rel=0.01)  # into the last


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([2, 3, 8, 16]))
def test_a_step_ends_after_its_last_rank_is_ready_and_not_after_all_began_with_it(seed: int, ranks: int) -> None:
    draw = np.random.default_rng(seed)
    exchange = forward(*(4 * draw.integers(1, 500, ranks)).tolist())
    ready = draw.uniform(0, 0.005, ranks)
    seconds = by_links(LINKS)
    found = step_with_skew(ready, exchange, seconds)
    assert ready.max() < found <= ready.max() + float(seconds(exchange).max()) + 1e-12


def test_as_many_ranks_are_ready_as_exchange() -> None:
    with pytest.raises(UsageError, match="3 ranks are ready for an exchange of 2; give one time each"):
        step_with_skew(np.zeros(3), forward(4, 4), by_links(LINKS))
