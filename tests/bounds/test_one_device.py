"""One device pays the launch of each group in use, whatever else: bounds that reach the best plan, never beyond."""

from dataclasses import replace

import pytest
from support.cases import BOTH, Case, brute_force, cluster, make_table, seeded, table, workload

from recsmith.bounds import first_bound, lower_bound
from recsmith.bounds.group_branching import CLOSE  # branching ends where a split gains no more
from recsmith.problems import Space
from recsmith.workloads.optimizers import OPTIMIZERS


def one_device(seed: int, optimizer: str, model: str) -> Case:
    """Three tables, of which one is pooled and one is not, on a device with launches as long as the tables take."""
    pick = seeded(seed)
    dims, rows = (4, 8, 12, 16), (1, 30, 101, 1000, 5000)
    made = [make_table(pick, f"t{i}", dims, rows) for i in range(3)]
    made = [
        replace(made[0], pooling="none"),
        replace(made[1], pooling="sum"),
        made[2],
    ]  # no batch sizes of features, which some optimizers refuse
    made = [replace(t, data_type="fp32", features=tuple(replace(f, batch_size=None) for f in t.features)) for t in made]
    place = cluster(1)
    device = replace(place.device, launch_s=pick((1e-10, 1e-9, 1e-6)), l2_bytes=pick((None, 10**7)))
    return Case(
        workload(*made, batch_size=pick((1, 4, 64)), optimizer=optimizer), replace(place, device=device),
        Space(), cost_model=model,
    )  # fmt: skip


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_bound_is_what_the_best_plan_costs(optimizer: str, model: str) -> None:
    for seed in range(3):
        case = one_device(seed, optimizer, model)
        least = brute_force(case).least_s
        assert least is not None
        bound = lower_bound(case.evaluator).bound.value_s
        assert bound is not None
        assert least * (1 - CLOSE) <= bound <= least * (1 + 1e-9)
        found = case.plan("auto").plan
        assert found.cost.total_s == pytest.approx(least, rel=1e-9)
        assert found.gap is not None
        assert found.gap <= CLOSE


def test_pooled_tables_and_sequences_of_a_public_model_are_proved_at_once() -> None:
    """The layers of HugeCTR's sample of a behaviour transformer, which share no kernel: two launches, not one."""
    tables = (
        table("user", 192_403, 20, 1.0), table("item", 63_001, 16, 10.0, pooling="none"),
        table("target item", 63_001, 16, 1.0), table("kind", 801, 16, 10.0, pooling="none"),
        table("target kind", 801, 16, 1.0),
    )  # fmt: skip
    case = Case(workload(*tables, batch_size=64, optimizer="adam"), cluster(1), cost_model="analytic")
    auto, exact = case.plan("auto").plan, case.plan("exact").plan
    value = first_bound(case.evaluator).bound.value_s
    assert value is not None
    assert auto.cost.total_s == pytest.approx(exact.cost.total_s, rel=1e-9)
    assert value == pytest.approx(exact.cost.total_s, rel=CLOSE)
