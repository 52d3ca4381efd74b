"""One fusion group on one device costs what a plan of its tables costs there."""

import pytest
from support.bounds import priced
from support.cases import BOTH, Case, cluster, table, workload

from recsmith.costs import COST_MODELS
from recsmith.costs.groups import group_seconds, one_device
from recsmith.plans import Placement


@pytest.mark.parametrize("model", BOTH)
def test_a_group_costs_what_its_plan_costs(model: str) -> None:
    work = workload(table("a", 1000, 64), table("b", 100, 8, 10.0), batch_size=64)
    device = one_device(cluster(4, 2, hbm=10))
    assert device.world_size == 1
    placements = tuple(
        Placement(table=name, sharding_type="table_wise", compute_kernel="fused", ranks=(0,)) for name in "ab"
    )
    (found,) = priced(Case(work, device, cost_model=model), placements).per_device
    forward, backward = group_seconds(COST_MODELS[model], work, device).tolist()
    assert forward == pytest.approx(found.forward_compute_s, rel=1e-12)
    assert backward == pytest.approx(found.backward_compute_s, rel=1e-12)
