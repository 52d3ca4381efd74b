"""Reference samples: the same on every machine, and the factor that they give."""

import pytest
from support.build import cluster, placed, plan_of, table, workload
from support.measured import group

from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.hardware import SCALES
from recsmith.measuring.compute.cases import Cases
from recsmith.verifying.kernels.machine_factor import factor_of, reference_cases


def test_references_are_of_the_plans_optimizer_and_data_types():
    work = workload(table("a"), table("b", data_type="fp16"), optimizer="adagrad")
    plan = plan_of(work, cluster(), placed("a", "table_wise", (0,)), placed("b", "table_wise", (1,)))
    cases = reference_cases([plan], "cpu")
    assert {case.workload.optimizer for case in cases} == {"adagrad"}
    assert {case.data_type for case in cases} == {"fp32", "fp16"}
    assert cases == reference_cases([plan], "cpu")
    for case in cases:
        case.check(SCALES["cpu"])
    assert cases[0] == Cases(seed=1, scale=SCALES["cpu"], optimizers=("adagrad",)).case(0)


def test_a_machine_that_takes_three_times_as_long_has_the_factor_three():
    model, h100 = cost_model("analytic"), load_cluster("h100:8")
    cases = [group((1000 * i, 64, 5.0, 0.5), batch_size=4096) for i in range(1, 6)]
    seconds = [group_seconds(model, case.workload, one_device(h100)) * 3 for case in cases]
    found = factor_of(model, h100, cases, [(float(f), float(b)) for f, b in seconds], seed=0)
    assert (found.median.value, found.median.low, *found.quartiles) == pytest.approx((3, 3, 3, 3))
    assert found.samples == 5
    slow = [(float(f) * i, float(b) * i) for i, (f, b) in zip((1, 1, 2), seconds, strict=False)]
    found = factor_of(model, h100, cases, slow, seed=0)
    assert (found.median.value, found.median.high, found.samples) == pytest.approx((3, 6, 3))
