"""When tables on servers pay: rows and bytes by hand, rates of trainers by hand, and what is said."""

import pytest
from support.plans import two_tables

from recsmith.prediction.servers import (
    SlowTrainer,
    pays_from,
    remote_cost,
    remote_lines,
    servers_line,
    slow_trainer,
)


def test_what_servers_cost() -> None:
    """Rows are at most the lookups and the table; leases pay from a slower trainer on, and that one is the least."""
    plan = two_tables()
    cost = remote_cost(plan, 64, 2)
    assert 0 < cost.rows <= 2 * 64 * 5
    assert cost.trainer_bytes == pytest.approx(cost.rows * (8 * 64 + 8))
    assert remote_cost(plan, 64, 2, servers=4).seconds < cost.seconds
    assert remote_cost(plan, 64, 2, backend="rpc").seconds > 5 * cost.seconds
    assert pays_from(1, 0.1, 0.1) is None
    assert pays_from(2, 0.1, 0.0) == pytest.approx(1.0)
    factor = pays_from(2, 0.1, 0.05)
    assert factor is not None
    assert 1 < factor < 2
    assert any("at least" in line for line in remote_lines(plan, 64, 2, embeddings_s=0.01, step_s=0.1))


def test_a_slow_trainer_by_hand() -> None:
    """Three trainers, of which the last is slow: 0.5 s of a step of 0.7 s more than the others, 0.1 s for servers."""
    found = slow_trainer(0.7, [0.05, 0.07, 0.56], 0.1)
    assert found is not None
    assert (found.rank, found.trainers) == (2, 3)
    assert (found.others_s, found.own_s) == (pytest.approx(0.2), pytest.approx(0.7))
    assert found.times == pytest.approx(3.5)
    rate = 2 / 0.3 + 1 / 0.8  # batches a second
    assert found.gain() == pytest.approx(rate / (3 / 0.7))
    assert found.gain(1) == pytest.approx(4 / 0.8 / (3 / 0.7))  # at most three batches beside the slow one's
    assert found.staleness == 2
    assert found.gain(2) == pytest.approx(found.gain())
    served = slow_trainer(0.8, [0.05, 0.07, 0.56], 0.1, served=True)
    assert served is not None
    assert (served.others_s, served.own_s) == (pytest.approx(found.others_s), pytest.approx(found.own_s))
    assert served.gain() == pytest.approx(rate / (3 / 0.8))
    assert str(found) == (
        "trainer 2 is 3.5 times as slow as the others, which wait: a step takes 700 ms there and 200 ms elsewhere, "
        "beside 100 ms for servers; remote with staleness 2 would bring 1.85 times the samples/s, predicted of these "
        "times"
    )


def test_nobody_is_slow() -> None:
    assert slow_trainer(0.7, [0.56], 0.1) is None
    assert slow_trainer(0.7, [0.3, 0.4], 0.1) is None  # less than a quarter of a step
    assert slow_trainer(0.0, [0.0, 0.1], 0.1) is None
    assert slow_trainer(0.2, [0.0, 0.3], 0.0) is None  # times that do not fit together
    slow = SlowTrainer(trainers=2, rank=1, others_s=0.1, own_s=0.15, servers_s=1.0)
    assert str(slow).endswith("of these times, so it does not pay")


def test_what_is_said_of_a_predicted_step() -> None:
    plan = two_tables()
    told = servers_line(plan, 3, batch_size=64, step_s=0.5, exchanges_s=0.2, own_s=[0.3, 0.3])
    assert told.startswith("3 servers: a trainer pulls and pushes about ")
    assert "instead of 500 ms, 1.6" in told
    assert "predicted; with a staleness it pays where one trainer is at least 1.0 times as slow" in told
    assert "trainer 1 is" in servers_line(plan, 1, batch_size=64, step_s=0.5, exchanges_s=0.0, own_s=[0.1, 0.4])
