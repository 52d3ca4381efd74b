"""Reference samples: the same on every machine, and the factor that they give."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.build import cluster, placed, plan_of, table, workload
from support.measured import Stub, answer, group
from support.verified import WORK, named_plans
from support.verified import planned as made

from recsmith import Plan
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.costs.neural_comm_files import load_comm_model
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.errors import UsageError
from recsmith.hardware import SCALES, Case, Measurement, load_links
from recsmith.hardware.loads import loads_of
from recsmith.measuring.cases import Cases
from recsmith.measuring.statistics import Interval
from recsmith.planning.simulate import price_plan, simulate
from recsmith.verifying import kernels as room
from recsmith.verifying.collectives import exchanges_of
from recsmith.verifying.kernels import factor_of, reference_cases, verify_kernels
from recsmith.verifying.steps import by_links, by_model, step_with_skew
from recsmith.verifying.visits import open_hardware

SMALL = WORK.with_batch_size(256)


@pytest.fixture(autouse=True)
def _few_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "REFERENCES", 6)


PLANS = named_plans()
GREEDY, RANDOM, SIZES = (plan for _, plan in PLANS)


def test_simulated_kernels_of_the_model_itself_are_as_predicted():
    """The simulation is the analytic model and what crowds it: the order of ranks and plans is the model's."""
    found = verify_kernels(PLANS, "simulated:h100", visits=3)
    assert found.cost_model == "analytic"
    assert found.tau == 1
    assert found.factor.samples == 6
    assert [len(each.steps_s) for each in found.plans] == [3, 3, 3]
    for each in found.plans:
        assert len(each.ranks) == 4
        assert each.collectives == ""
        assert each.step.low == each.step.value == each.steps_s[0]
        assert abs(each.error) < 0.5


def test_a_step_is_ready_ranks_and_the_slowest_forward_exchange(monkeypatch: pytest.MonkeyPatch):
    """Where the collectives are the cost model's."""
    monkeypatch.setattr(room, "not_measured", lambda plan, hardware: "told so")
    found = verify_kernels(PLANS[:1], "simulated:h100", visits=1).plans[0]
    assert found.collectives == "told so"
    assert found.exchanges == ()
    parts = price_plan(GREEDY).per_device
    ready = [part.backward_comm_s + rank.measured_s for part, rank in zip(parts, found.ranks, strict=True)]
    assert found.steps_s[0] == pytest.approx(max(ready) + max(part.forward_comm_s for part in parts))
    ready = [part.backward_comm_s + rank.predicted_s for part, rank in zip(parts, found.ranks, strict=True)]
    assert found.predicted_s == pytest.approx(max(ready) + max(part.forward_comm_s for part in parts))


def test_simulated_ranks_begin_the_forward_exchange_when_they_are_ready():
    forward, backward = exchanges_of(RANDOM)
    found = verify_kernels([("random", RANDOM)], "simulated:h100", visits=1).plans[0]
    back = by_links(load_links("simulated:h100"))(backward)
    ready = back + [rank.measured_s for rank in found.ranks]
    assert [each.ready_s for each in found.exchanges] == pytest.approx(ready)
    assert found.steps_s[0] == pytest.approx(step_with_skew(ready, forward, by_links(load_links("simulated:h100"))))
    assert found.steps_s[0] == pytest.approx(max(each.ready_s + each.forward_s for each in found.exchanges))
    model = by_model(load_comm_model("comm-simulated-h100")[0])
    ready = model(backward) + [rank.predicted_s for rank in found.ranks]
    assert found.predicted_s == pytest.approx(step_with_skew(ready, forward, model))
    for each in found.exchanges:
        assert abs(each.error) < 0.1
        assert each.predicted_backward_s == pytest.approx(each.backward_s, rel=0.1)


def test_without_a_learned_model_of_the_links_the_cost_model_predicts():
    found = verify_kernels([("random", made("random", "a100-80:4"))], "simulated:a100-80", visits=1)
    one = found.plans[0]
    assert (one.collectives, one.exchanges) == ("", ())


def test_prices_without_a_bound_are_those_of_simulate():
    assert price_plan(SIZES, "torchrec") == simulate(SIZES, "torchrec").cost


def test_noise_gives_intervals_and_the_winner_has_no_difference():
    found = verify_kernels(PLANS, "simulated:h100?noise=0.05", visits=3)
    assert [found.slower(each) is None for each in found.plans].index(True) == found.winner
    zero = Interval(value=0.0, low=0.0, high=0.0)
    assert [each.slower[place] for place, each in enumerate(found.plans)] == [zero] * 3
    assert found.plans[0].slower[1].value == pytest.approx(1 / (1 + found.plans[1].slower[0].value) - 1)
    assert found.plans[found.winner].predicted_s == min(each.predicted_s for each in found.plans)
    assert all(each.step.low < each.step.high for each in found.plans)
    assert verify_kernels(PLANS, "simulated:h100?noise=0.05", visits=3) == found


def test_a_slow_rank_of_one_visit_does_not_make_the_plan_slow(monkeypatch: pytest.MonkeyPatch):
    """In each visit another rank is disturbed: every visit's step is long, the step of the ranks' medians is not."""
    seen: list[Case] = []

    def tell(case: Case, visit: int) -> Measurement:
        if case not in seen:
            seen.append(case)
        return answer(case, seconds=3e-3 if seen.index(case) == visit else 1e-3)

    monkeypatch.setattr(room, "open_hardware", lambda name, loads: Stub(tell))
    monkeypatch.setattr(room, "reference_cases", lambda plans, hardware: [loads_of(GREEDY)[0][0]])
    found = verify_kernels(PLANS[:1], "simulated:h100", visits=3).plans[0]
    assert found.step.value + 5e-3 < min(found.steps_s)


def test_one_plan_twice_is_not_told_apart():
    found = verify_kernels([("a", GREEDY), ("b", GREEDY)], "simulated:h100?noise=0.1", visits=3)
    slower = [found.slower(each) for each in found.plans]
    assert slower == [None, Interval(value=0.0, low=0.0, high=0.0)]
    assert found.tau is None


def test_measured_exchanges_take_the_place_of_predicted_ones(monkeypatch: pytest.MonkeyPatch):
    def measured(plans: Sequence[Plan], visits: int) -> list[Any]:
        assert [each.cluster.world_size for each in plans] == [2]
        return [np.full((visits, 2, 2), 1.0)]

    monkeypatch.setattr(room, "not_measured", lambda plan, hardware: "" if plan.cluster.world_size == 2 else "many")
    monkeypatch.setattr(room, "measure_collectives", measured)
    monkeypatch.setattr(room, "open_hardware", lambda name, loads: open_hardware("simulated:h100", loads))
    found = verify_kernels([("two", made(cluster="h100:2")), ("four", GREEDY)], "cpu", visits=3)
    assert [each.collectives for each in found.plans] == ["", "many"]
    assert found.plans[0].step.value > 2 > 0.1 > found.plans[1].step.value
    assert not found.alike


def test_plans_of_two_cost_models_need_a_word():
    plans = [("a", GREEDY), ("b", replace(GREEDY, cost_model="torchrec"))]
    with pytest.raises(UsageError, match="priced by analytic and torchrec; say which predicts them: --cost-model M"):
        verify_kernels(plans, "simulated:h100")
    assert verify_kernels(plans, "simulated:h100", cost_model="torchrec", visits=1).cost_model == "torchrec"


def test_an_interrupted_run_says_so(monkeypatch: pytest.MonkeyPatch):
    def tell(case: Case, visit: int) -> Measurement:
        if visit == 4:
            raise KeyboardInterrupt
        return answer(case, seconds=1e-3)

    monkeypatch.setattr(room, "open_hardware", lambda name, loads: Stub(tell))
    found = verify_kernels(PLANS, "simulated:h100", visits=7)
    assert (found.visits, found.complete) == (4, False)
    assert found.factor.samples == 4


@pytest.mark.usefixtures("fbgemm")
def test_the_cpu_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(room, "default_scale", lambda hardware: "check")
    monkeypatch.setattr(room, "open_hardware", small)
    plans = [(name, made(name, "cpu:4", work=SMALL)) for name in ("cost_greedy", "size_greedy")]
    found = verify_kernels(plans, "cpu", cost_model="neural:cpu", visits=2)
    assert found.hardware == "cpu"
    assert found.probe_moved >= 0
    for each in found.plans:
        assert "ranks outnumber" in each.collectives or not each.collectives
        assert min(each.steps_s) > 0


def small(name: str, loads: Sequence[Any]) -> Any:
    """The CPU with a small probe."""
    from recsmith.hardware import load_hardware
    from recsmith.hardware.loads import scale_for

    return load_hardware(name, replace(scale_for(loads, name), most_work=SCALES["check"].most_work))


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
