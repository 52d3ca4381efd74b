"""The programme that finds prices of two hosts: what it says that its selections cost at least is what they do."""

import numpy as np
import pytest
from support.cases import Case, cluster, table, workload

from recsmith._compiled import compiled
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.host_branching import HostBranching
from recsmith.bounds.host_prices import (
    CODE,
    DISCOUNT,
    HOST_LIMITS,
    HOSTS,
    LATER,
    OF_HOST,
    OF_HOSTS,
    OF_RANKS,
    READY,
    REST,
    STEP,
    STEPPED,
    TIMES,
    WHOLE,
)
from recsmith.bounds.host_programme import HostProgramme
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_nodes import least_product

pytestmark = pytest.mark.skipif(compiled(CODE) is None, reason="built without a C compiler")


@pytest.mark.parametrize("seed", range(6))
def test_its_prices_bound_what_is_known_by_its_value(seed: int) -> None:
    """By strong duality: no prices do better, as long as nothing else is known."""
    tables = [table(f"t{i}", 1_000_000, 64, length) for i, length in enumerate((300.0, 220.0, 160.0, *[100.0] * 6))]
    case = Case(workload(*tables, batch_size=4096), cluster(4, HOSTS), cost_model="analytic")
    search = PhaseBranching(
        case.evaluator, dominated=groups_dominated_by_type(case.evaluator), below=0.01, byte_price=0.0
    )
    hosts, rng = HostBranching(search), np.random.default_rng(seed)
    node = hosts.heap[0]
    ready, rest = (0.004, 0.006), (0.001, 0.003) if seed < 4 else (0.0001, 0.0002)
    node.node.ranges = type(node.node.ranges)(ready, rest)
    node.seconds = ((0.0, 0.002), (0.001, 0.005)) if seed % 2 else ((0.0, 0.006), (0.0, 0.006))
    lists = rng.uniform(0, 2, (30, HOSTS, 4)) * (1, 1, 0.5, 0.5)
    _, known = hosts.prices.evaluate([node], np.zeros(30, dtype=np.int64), lists, np.zeros(30, dtype=np.int64))
    limits = hosts.prices.limits(node)
    programme = HostProgramme(node, limits, search.prices.world // HOSTS, steps=seed % 3 > 0)
    programme.solve(known.of(slice(10)))
    before = programme.value
    programme.solve(known.of(slice(10, None)))
    assert programme.value <= before * (1 + 1e-9)
    prices, costs = programme.prices, known.worldwide.copy()
    for host in range(HOSTS):
        used, times = known.used[:, host], limits[OF_HOSTS + HOST_LIMITS * host + TIMES]
        seconds = prices[host, READY] * (times * used[:, OF_RANKS] + used[:, OF_HOST])
        costs += (
            seconds + prices[host, REST] * used[:, LATER] - prices[host, DISCOUNT] * used[:, OF_HOST]
            + prices[host, STEP] * used[:, WHOLE]
        ) / search.prices.world  # fmt: skip
    mean = prices.mean(axis=0)
    value = costs.min() - mean[STEP] * limits[STEPPED]
    for factor, ends in ((1 - mean[READY], ready), (1 - mean[REST], rest),
                         *((prices[host, DISCOUNT] / HOSTS, node.seconds[host]) for host in range(HOSTS))):  # fmt: skip
        value += least_product(np.array([factor]), np.array([ends]))[0]
    assert value == pytest.approx(programme.value, rel=1e-4)
    assert (prices[:, [READY, REST, STEP]] >= 0).all()
    assert seed % 3 > 0 or not prices[:, STEP].any()
