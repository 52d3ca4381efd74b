"""All-to-alls of simulated GPUs: alpha-beta where it holds, and the three effects that it does not know."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsmith._types import Floats
from recsmith.clusters import load_cluster
from recsmith.costs.collectives import latency, ranks_per_host, seconds_per_byte
from recsmith.errors import UsageError
from recsmith.hardware import load_links
from recsmith.hardware.simulated_links import ALL_TO_ALL, INCAST
from recsmith.measuring.exchanges import GPU, draw_exchange

H100 = load_links("simulated:h100")
FEW = settings(max_examples=30, deadline=None)


def even(ranks: int, size: float) -> Floats:
    """As many bytes from each rank to each."""
    return np.full((ranks, ranks), size)


def alpha_beta(ranks: int, held: float) -> float:
    """What costs/collectives.py says of ranks that hold so many bytes each."""
    cluster = H100.cluster(ranks)
    return latency(ALL_TO_ALL, cluster) + held * seconds_per_byte(ALL_TO_ALL, cluster)


@pytest.mark.parametrize("ranks", [2, 5, 8])
def test_one_host_that_starts_together_takes_alpha_and_the_most_bytes(ranks: int) -> None:
    assert H100.seconds(even(ranks, 1e7), np.zeros(ranks)) == pytest.approx([alpha_beta(ranks, ranks * 1e7)] * ranks)
    sent = np.repeat(np.linspace(1e6, 3e7, ranks)[:, None], ranks, axis=1)
    for traffic in (sent, sent.T):
        assert H100.seconds(traffic, np.zeros(ranks)).max() == pytest.approx(alpha_beta(ranks, ranks * 3e7))


def test_cards_that_receive_from_many_take_longer() -> None:
    found = H100.seconds(even(16, 1e7), np.zeros(16))
    start = latency(ALL_TO_ALL, H100.cluster(16))
    plain = alpha_beta(16, 16e7) - start
    assert found - start == pytest.approx([plain * (1 + INCAST * (1 - 1 / 8))] * 16)


def test_one_message_across_hosts_has_the_card_for_itself() -> None:
    traffic = np.zeros((16, 16))
    traffic[0, 8] = 1e8
    cluster = H100.cluster(16)
    alone = latency(ALL_TO_ALL, cluster) + 1e8 / (0.94 * cluster.links.inter_host_bandwidth)
    assert H100.seconds(traffic, np.zeros(16))[[0, 8]] == pytest.approx([alone] * 2)


def test_early_ranks_wait_for_the_last_and_have_the_rest_done_by_then() -> None:
    latest, per_byte = 1.0, 1 / (0.75 * load_cluster("h100").links.intra_host_bandwidth)
    found = H100.seconds(even(4, 1e8), np.array([0.0, 0.0, 0.0, latest]))
    alpha = alpha_beta(4, 0.0)
    assert found[:3] == pytest.approx([latest + alpha + 3e8 * per_byte] * 3)  # one third each from and to the last
    assert found[3] == pytest.approx(alpha + 3e8 * per_byte)
    others = H100.seconds(np.diag([1e8, 1e8, 1e8], 1), np.array([0.0, latest, 0.0, 0.0]))
    assert others[3] < latest  # it has nothing for, or of, the last one


def test_a_rank_that_exchanges_nothing_takes_the_call() -> None:
    assert H100.seconds(np.zeros((3, 3)), np.array([0.0, 0.5, 0.1])) == pytest.approx([alpha_beta(3, 0.0)] * 3)


@FEW
@given(st.integers(0, 10**6), st.sampled_from([2, 3, 8, 10, 16]))
def test_laws(number: int, ranks: int) -> None:
    exchange = draw_exchange(1, number, ranks, GPU)
    skew = np.array(exchange.skew_s)
    found = H100.seconds(exchange.traffic, skew)
    cluster = H100.cluster(ranks)
    wait = skew.max() - skew
    assert (found >= wait + latency(ALL_TO_ALL, cluster) - 1e-15).all()
    slower = seconds_per_byte(ALL_TO_ALL, cluster) * (1 + INCAST)
    most = max(exchange.traffic.sum(axis=1).max(), exchange.traffic.sum(axis=0).max())
    assert (found <= wait + latency(ALL_TO_ALL, cluster) + 2.1 * most * slower).all()
    assert H100.seconds(exchange.traffic, skew + 3.0) == pytest.approx(found, rel=1e-6, abs=1e-12)
    assert H100.seconds(2 * exchange.traffic, skew).max() >= found.max() * (1 - 1e-9)
    order = np.random.default_rng(number).permutation(ranks) if cluster.hosts == 1 else np.arange(ranks)[::-1]
    assert H100.seconds(exchange.traffic[order][:, order], skew[order]) == pytest.approx(found[order], rel=1e-9)


def test_noise_follows_from_its_key_and_leaves_the_wait_alone() -> None:
    noisy, skew = load_links("simulated:h100?noise=0.1"), np.array([0.0, 1.0])
    plain, *some = (links.seconds(even(2, 1e7), skew, key) for links, key in [
        (H100, (0, 1, 2)), (noisy, (0, 1, 2)), (noisy, (0, 1, 2)), (noisy, (0, 1, 3))
    ])  # fmt: skip
    assert (some[0] == some[1]).all()
    assert (some[0] != some[2]).all()
    factor = (some[0] - [1, 0]) / (plain - [1, 0])
    assert factor[0] == pytest.approx(factor[1])
    assert factor[1] != 1
    assert (noisy.name, noisy.device) == ("simulated:h100?noise=0.1", "h100, simulated")


@pytest.mark.parametrize(("ranks", "local"), [(2, 2), (8, 8), (9, 3), (11, 1), (12, 6), (16, 8), (20, 5), (64, 8)])
def test_hosts_are_filled_evenly(ranks: int, local: int) -> None:
    assert ranks_per_host(ranks, 8) == local
    assert (H100.cluster(ranks).local_world_size, H100.cluster(ranks).world_size) == (local, ranks)


@pytest.mark.parametrize(
    ("traffic", "skew", "rule"),
    [
        (np.zeros((1, 1)), np.zeros(1), "at least 2 ranks"),
        (np.zeros((2, 3)), np.zeros(2), "at least 2 ranks"),
        (-np.ones((2, 2)), np.zeros(2), "must be finite and 0 or more"),
        (np.ones((2, 2)), np.array([0.0, np.nan]), "starts finite"),
    ],
)
def test_what_is_no_exchange_is_refused(traffic: Floats, skew: Floats, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        H100.seconds(traffic, skew)


@pytest.mark.parametrize("name", ["cpu", "simulated:", "simulated"])
def test_other_hardware_has_no_links(name: str) -> None:
    with pytest.raises(UsageError, match="has no simulated links; give for example simulated:h100"):
        load_links(name)


def test_noise_is_a_deviation() -> None:
    with pytest.raises(UsageError, match="at least 0 and below 1"):
        load_links("simulated:h100?noise=1.5")
