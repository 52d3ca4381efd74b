"""The all-to-alls of a seed: what ranks send others receive, and they reach all corners."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recsmith.measuring.exchanges import draw_exchange


@given(st.integers(0, 10**6), st.integers(2, 16))
def test_what_ranks_send_is_what_ranks_receive(number: int, ranks: int):
    exchange = draw_exchange(0, number, ranks)
    assert exchange == draw_exchange(0, number, ranks)
    assert sum(exchange.sent_bytes) == sum(exchange.received_bytes)
    steady = exchange.received_bytes if not exchange.forward else exchange.sent_bytes
    assert steady == [(ranks - 1) * 4 * exchange.batch_size * width for width in exchange.width]
    assert min(exchange.skew_s) == 0
    assert max(exchange.skew_s) < 0.02
    assert all(width % 4 == 0 and width > 0 for width in exchange.width)


def test_exchanges_reach_all_corners():
    drawn = [draw_exchange(0, number, 4) for number in range(400)]
    assert 0.4 < np.mean([exchange.forward for exchange in drawn]) < 0.6
    assert 0.4 < np.mean([max(exchange.skew_s) > 0 for exchange in drawn]) < 0.6
    uneven = [max(exchange.width) / min(exchange.width) for exchange in drawn]
    assert 0.2 < np.mean(np.array(uneven) == 1) < 0.5
    assert max(uneven) > 5
    sent = np.array([np.mean(exchange.sent_bytes) for exchange in drawn])
    assert sent.min() < 5_000
    assert sent.max() > 10_000_000
