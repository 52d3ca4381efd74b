"""What the owner of tables could switch on: each is priced under the job's plan, or under one of its own."""

from dataclasses import replace
from typing import Any

import pytest

from recsmith.analyses import table_prices, table_switches
from recsmith.analyses.advice import Advice, Advised
from recsmith.analyses.aims import Aim
from recsmith.analyses.table_changes import switches_of
from recsmith.analyses.table_prices import PlanSearch, fullest
from recsmith.analyses.table_switches import advise
from recsmith.clusters import load_cluster, sharding_group
from recsmith.costs.published import error_of
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


def test_each_switch_is_what_the_plan_costs_with_it():
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
    first = found["fp16 and bf16 between devices"]
    assert first.price is not None
    assert first.price.step_s <= kept.cost.step_s  # a search from where they are kept
    assert first.gain == pytest.approx(1 - first.price.step_s / base.cost.step_s)
    groups = found["2D groups of 2 devices"].price
    assert groups is not None
    assert groups.devices == 4
    assert groups.step_s == pytest.approx(
        plan(work, sharding_group(load_cluster("h100:2x2"), 2), **SEARCH).plan.cost.step_s
    )
    assert first.verdict == "tie"  # formulas cannot tell steps apart that are this close
    row_wise = found["optimizer rowwise_adagrad"].price
    assert row_wise is not None
    assert row_wise.memory_bytes < 0.7 * advice.base.memory_bytes  # a state of a number a row
    double = found["twice the batch"].price
    assert double is not None
    assert double.samples == 8192


def test_plans_that_are_compared_are_brief_ones_unless_a_planner_is_named(monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []

    def heard(work: Workload, where: Any, **words: Any) -> Any:
        asked.append(words["planner"])
        return plan(work, where, **{**words, "planner": "cost_greedy"})

    monkeypatch.setattr(table_prices, "plan", heard)
    advise(tables(), "h100:2x2", cost_model="analytic")
    assert len(asked) > 5
    assert all(each.brief for each in asked)
    asked.clear()
    advise(tables(), "h100:2x2", **SEARCH)
    assert set(asked) == {"cost_greedy"}


def found_of(advice: Advice) -> dict[str, Advised]:
    return {each.switch.name: each for each in advice.switches}


@pytest.mark.parametrize("thorough", [True, False])
def test_every_change_is_planned_and_none_is_slower_or_fuller_than_where_its_tables_are(
    thorough: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(table_switches, "is_quick", lambda work, where: thorough)
    work, where = tables(), load_cluster("h100:4")
    by = PlanSearch(SEARCH, thorough=thorough)
    base = by.made(work, where)
    advice = advise(work, where, **SEARCH)
    assert advice.base.step_s == base.cost.step_s
    for each in switches_of(work, where):
        changed, on = each.edit(work, where)
        kept = price(changed, on, base.placements, cost_model="analytic")
        found = found_of(advice)[each.switch.name].price
        assert found is not None
        assert found.step_s <= kept.cost.step_s
        assert found.memory_bytes <= fullest(kept)


def test_under_memory_the_job_is_the_plan_that_holds_least_and_changes_are_told_beyond_it():
    """Twice and half of the batch cannot both free half of the memory."""
    advice = advise("dlrm-v2", "h100:8", aim=Aim(objective="memory"), cost_model="analytic")
    fast = plan("dlrm-v2", "h100:8", cost_model="analytic").plan
    assert advice.base.memory_bytes < 0.6 * fullest(fast)
    assert advice.base.step_s <= (1 + error_of(fast).share) * fast.cost.step_s
    gains = {name: each.gain for name, each in found_of(advice).items()}
    assert gains["twice the batch"] < 0.1
    assert gains["half the batch"] < 0.1
    assert 0.4 < gains["tables in fp16"] < 0.6


def test_a_change_has_one_value_whatever_is_asked_beside():
    aims = [Aim(), Aim(prices={"h100": 3.0}), Aim(objective="devices"), Aim(objective="cost", prices={"h100": 3.0})]
    told = [found_of(advise(tables(), "h100:2x2", aim=aim, **SEARCH)) for aim in aims]
    for name in set(told[0]) & set(told[-1]):
        prices = [each[name].price for each in told]
        assert len({(price.step_s, price.memory_bytes) for price in prices if price is not None}) == 1
    memory = [
        found_of(advise(tables(), "h100:2x2", aim=Aim(objective="memory", prices=prices), **SEARCH))
        for prices in (None, {"h100": 3.0})
    ]
    assert {name: each.gain for name, each in memory[0].items()} == {
        name: each.gain for name, each in memory[1].items() if name in memory[0]
    }


def test_beside_a_plan_that_runs_a_change_is_told_without_what_a_new_plan_brings():
    work = tables()
    running = plan(work, "h100:2x2", planner="random", cost_model="analytic", seed=3).plan
    advice = advise(work, "h100:2x2", running=running, **SEARCH)
    found = found_of(advice)
    new, groups, double = (found[name] for name in ("a new plan", "2D groups of 2 devices", "twice the batch"))
    assert new.price is not None
    assert groups.price is not None
    assert double.price is not None
    assert groups.beside == new.price
    assert groups.gain == pytest.approx(1 - groups.price.sample_s / new.price.sample_s)
    assert groups.verdict == "cannot" or "beyond a new plan" in groups.why
    assert double.beside is None
    kept = price(work.with_batch_size(8192), "h100:2x2", running, cost_model="analytic")
    assert double.price.step_s == kept.cost.step_s


def test_no_interval_is_narrower_than_the_floor_that_is_told():
    advice = advise("dlrm-v2", "h100:8", cost_model="fitted")
    assert advice.base.apart > 0
    for each in advice.switches:
        assert each.price is None or each.gain_error >= advice.base.apart


def test_a_plan_that_does_not_fit_is_said():
    running = plan(tables(), "h100:4", **SEARCH).plan
    tight = load_cluster("h100:4").with_memory(fullest(running) + 2**20, 2**21)
    about = " ".join(advise(tables(), tight, running=running.placements, **SEARCH).about)
    assert "the plan that runs does not fit beside it" in about


def test_a_limit_that_the_job_breaks_itself_is_said_with_what_keeps_it():
    base = advise(tables(), "h100:2x2", **SEARCH).base
    aim = Aim(step_under_s=0.6 * base.step_s)
    advice = advise(tables(), "h100:2x2", aim=aim, **SEARCH)
    assert {"half the batch", "8 devices in place of 4"} <= set(found_of(advice))
    assert advice.verdict.startswith("embeddings alone take ")
    assert "as the job is; " in advice.verdict
    half = found_of(advice)["half the batch"]
    assert half.price is not None
    assert (half.price.step_s <= 0.6 * base.step_s) == ("keeps the" in half.why)


def test_very_many_tables_are_drafted_by_formulas_and_searched_from_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_prices, "SEARCHED", 0)  # of tables times devices
    advice = advise(tables(), "h100:2x2", cost_model="best")
    assert any("new plans are quick ones" in each for each in advice.about)
    best = plan(tables(), "h100:2x2").plan
    assert advice.base.step_s <= 1.1 * best.cost.step_s


def test_money_and_devices_are_changed_where_they_count():
    aim = Aim(objective="cost", prices={"h100": 3.0, "h200": 2.0})
    advice = advise(tables(), "h100:4", aim=aim, **SEARCH)
    found = {each.switch.name: each for each in advice.switches}
    names = {*(f"{count} devices in place of 4" for count in (1, 2, 3, 8)), "h200 in place of h100"}
    assert names - set(found) == {"3 devices in place of 4"}  # 16,384 samples are not dealt to three alike
    half, kind = found["2 devices in place of 4"].price, found["h200 in place of h100"].price
    assert half is not None
    assert kind is not None
    assert (half.devices, half.samples, half.dollars_per_hour) == (2, 8192, 3.0)
    assert (kind.devices, kind.dollars_per_hour) == (4, 2.0)
    assert advice.base.dollars == pytest.approx(advice.base.step_s / 4096 * 1e9 / 3600 * 3.0)
    saved = found["2 devices in place of 4"]
    assert saved.gain == pytest.approx(1 - (half.dollars or 0) / (advice.base.dollars or 1))
    assert len(set(advice.together) & {"2 devices in place of 4", "1 devices in place of 4"}) <= 1


def test_a_limit_that_a_change_breaks_is_said_and_kept_by_what_is_joined():
    base = advise(tables(), "h100:4", **SEARCH).base
    aim = Aim(objective="devices", step_under_s=1.2 * base.step_s)
    advice = advise(tables(), "h100:4", aim=aim, **SEARCH)
    one = next(each for each in advice.switches if each.switch.name == "1 devices in place of 4")
    assert one.verdict == "cannot"
    assert "over the" in one.why
    assert advice.joined.step_s <= 1.2 * base.step_s
    assert any("devices that the same samples a second take is to be small, with a step of at most" in each
               for each in advice.about)  # fmt: skip


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
    assert advice.about[0].startswith("the running plan: ")


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
