"""The ascent of multipliers: bounds only rise, and work is counted."""

from dataclasses import replace

import numpy as np
import pytest
from support.bounds import total_of
from support.cases import Case, cluster, table, workload

from recsmith.bounds.multipliers import Multipliers, PhaseRanges
from recsmith.bounds.phase_ascent import CALL, MultiplierAscent
from recsmith.bounds.phase_nodes import PhaseNode
from recsmith.bounds.phase_prices import TablePrices
from recsmith.plans import Placement


def _start(model: str) -> tuple[Case, MultiplierAscent, PhaseNode, float]:
    """Three tables on two ranks, the root of their search, and what a plan of them costs."""
    tables = [table(f"t{i}", 5000, 8, 10.0 * (1 + i)) for i in range(3)]
    case = Case(workload(*tables, batch_size=64), cluster(2), cost_model=model)
    plan = tuple(
        Placement(table=t.name, sharding_type="table_wise", compute_kernel="fused", ranks=(i % 2,))
        for i, t in enumerate(tables)
    )
    total, evaluator = total_of(case, plan), case.evaluator
    groups, planes = evaluator.groups, len(evaluator.planes)
    rest = (0.0, total if evaluator.step_rule.several_phases else 0.0)
    node = PhaseNode(
        0.0, 0, PhaseRanges((0.0, total), rest), np.ones((3, groups), dtype=bool), np.zeros(groups, dtype=bool),
        Multipliers(0.3, 0.7, 0.0, np.full((groups, planes), 1 / planes), 0), 0.5, np.zeros((3, groups)),
    )  # fmt: skip
    return case, MultiplierAscent(TablePrices(evaluator, np.zeros(groups, dtype=bool)), 0.0), node, total


@pytest.mark.parametrize("model", ["analytic", "torchrec"])
def test_bounds_only_rise_and_stay_below_a_plan(model: str) -> None:
    _, ascent, node, total = _start(model)
    (before,), _ = ascent.evaluate([node], [node.multipliers])
    values = [before]
    for _ in range(4):
        ascent.improve([node], 1)
        values.append(node.value)
    assert values == sorted(values)
    assert values[-1] > before
    assert values[-1] <= total
    (again,), least = ascent.evaluate([node], [node.multipliers])
    assert again == pytest.approx(node.value)
    np.testing.assert_allclose(least[0], node.least, rtol=1e-12)


def test_nodes_side_by_side_are_those_one_by_one_and_work_is_counted() -> None:
    _, ascent, node, _ = _start("analytic")
    other = replace(node.multipliers, ready_multiplier=0.9)
    both, _ = ascent.evaluate([node, node], [node.multipliers, other])
    assert ascent.work == CALL + 2 * ascent.prices.numbers
    alone = [ascent.evaluate([node], [each])[0][0] for each in (node.multipliers, other)]
    assert both == pytest.approx(alone, rel=1e-12)


def test_what_raised_another_node_is_tried() -> None:
    """Multipliers that no small change leads to: they are taken where they are better, and as they were."""
    _, ascent, node, _ = _start("analytic")
    twin, far = replace(node), replace(node.multipliers, ready_multiplier=1.0, rest_multiplier=1.0)
    ascent.improve([node], 1)
    (value,), _ = ascent.evaluate([twin], [far])
    assert value > node.value
    ascent.remember(far)
    ascent.improve([twin], 1)
    assert twin.value >= value
