"""What the owner of tables could switch on: each is priced under the job's plan, or under one of its own."""

from dataclasses import replace
from typing import Any

import pytest

from recsmith.analyses import table_switches
from recsmith.analyses.table_switches import advise, switches_of
from recsmith.clusters import load_cluster, sharding_group
from recsmith.errors import Infeasible, PlanMismatch, UsageError
from recsmith.planning import plan
from recsmith.planning.simulate import price
from recsmith.workloads import Feature, Table, Workload

SEARCH: dict[str, Any] = {"planner": "cost_greedy", "cost_model": "analytic"}


def tables(**changes: Any) -> Workload:
    """Four tables whose embeddings mostly wait for links."""
    made = tuple(
        Table(
            name=f"t{i}",
            num_embeddings=500_000,
            embedding_dim=128,
            features=(Feature(name=f"f{i}", pooling_factor=10),),
        )
        for i in range(4)
    )
    return Workload(**{"batch_size": 4096, "optimizer": "adagrad", "tables": made, **changes})


@pytest.mark.parametrize("searched", [0, 2000])
def test_each_switch_is_what_the_plan_costs_with_it(searched: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_switches, "SEARCHED", searched)
    work = tables()
    advice = advise(work, "h100:2x2", **SEARCH)
    found = {each.switch.name: each for each in advice.switches}
    assert set(found) == {
        "fp16 and bf16 between devices", "tables in fp16", "optimizer rowwise_adagrad", "2D groups of 2 devices",
        "twice the batch",
    }  # fmt: skip
    base = plan(work, "h100:2x2", **SEARCH).plan
    short = tables(comm_dtype="fp16", backward_comm_dtype="bf16")
    kept = price(short, "h100:2x2", base, cost_model="analytic")
    sent = plan(short, "h100:2x2", **SEARCH).plan if searched else kept
    first = found["fp16 and bf16 between devices"]
    assert first.gain == pytest.approx(1 - sent.cost.step_s / base.cost.step_s)
    assert any("keep the job's placements" in each for each in advice.about) == (not searched)
    groups = found["2D groups of 2 devices"].price
    assert groups is not None
    group = sharding_group(load_cluster("h100:2x2"), 2)
    assert groups.step_s == pytest.approx(plan(work, group, **SEARCH).plan.cost.step_s)
    assert first.verdict == "tie"  # formulas cannot tell steps apart that are this close
    row_wise = found["optimizer rowwise_adagrad"].price
    assert row_wise is not None
    assert row_wise.memory_bytes < 0.7 * advice.base.memory_bytes  # a state of a number a row
    double = found["twice the batch"].price
    assert double is not None
    assert double.samples == 8192


def test_the_rest_of_a_step_makes_gains_smaller():
    alone = advise(tables(), "h100:2x2", **SEARCH)
    whole = advise(tables(), "h100:2x2", step_s=10 * alone.base.step_s, **SEARCH)
    gains = [{each.switch.name: each.gain for each in one.switches} for one in (alone, whole)]
    name = "fp16 and bf16 between devices"
    assert gains[1][name] == pytest.approx(gains[0][name] / 10)
    assert gains[1]["twice the batch"] == pytest.approx(gains[0]["twice the batch"] / 10)
    assert whole.base.error == pytest.approx(alone.base.error / 10)


def test_the_plan_that_runs_is_the_base_and_a_new_one_is_a_switch():
    work = tables()
    running = plan(work, "h100:4", planner="random", cost_model="analytic", seed=3).plan
    advice = advise(work, "h100:4", running=running, **SEARCH)
    assert advice.base.step_s == pytest.approx(running.cost.step_s)
    assert "a new plan" in [each.switch.name for each in advice.switches]
    assert advice.about[0].startswith("the plan that runs: ")


def test_what_is_on_already_is_not_offered():
    work = tables(comm_dtype="bf16", optimizer="sgd")
    names = [each.switch.name for each in switches_of(work, load_cluster("h100:1"))]
    assert names == ["tables in fp16", "twice the batch"]
    first, *others = work.tables
    work = replace(work, tables=(replace(first, pooling="none"), *others))
    for setting, offered in (("off", True), ("on", False)):
        names = [each.switch.name for each in switches_of(replace(work, index_dedup=setting), load_cluster("h100:1"))]
        assert ("equal ids once" in names) == offered


def test_wrong_questions_are_refused():
    with pytest.raises(UsageError, match=r"a whole step is said to take 1 µs, and its embeddings alone .* measure"):
        advise(tables(), "h100:2", step_s=1e-6, **SEARCH)
    with pytest.raises(Infeasible):
        advise(tables(), load_cluster("h100:2").with_memory(100 * 2**20, None), **SEARCH)
    with pytest.raises(PlanMismatch, match="name the cluster that the job runs on"):
        advise(tables(), "h100:4", running=plan(tables(), "h100:2", **SEARCH).plan, **SEARCH)
