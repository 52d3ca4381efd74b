"""Planners side by side: every price is the one of `simulate`, failures stay alone, and judges may disagree."""

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.build import placed
from support.cases import LOOSE, Case, cluster, medium_case, seeded, table, workload

from recsmith.analyses.compare import (
    Comparison,
    Judgement,
    PlannerRow,
    compare,
    published_error_of,
    ranked,
    ties,
    verdict_on,
)
from recsmith.analyses.sensitivity import sensitivity
from recsmith.errors import Infeasible, NoPlanFound, PlanMismatch, UsageError
from recsmith.planning import PLANNERS
from recsmith.planning.simulate import simulate
from recsmith.plans import Plan, save_plan
from recsmith.problems import Constraints, Space, TableRule

WORK = workload(
    table("hot", 3000, 64, 20.0), table("wide", 20_000, 128, 1.0), table("small", 50, 16, 1.0), batch_size=64
)  # fmt: skip
MACHINES = cluster(local=2)
GREEDIES = ("cost_greedy", "size_greedy", "random")


TORCHREC: dict[str, Any] = {"cost_model": "torchrec", "judges": ()}  # one judge, and the fast one


def compared(**words: Any) -> Comparison:
    """A comparison of fast planners."""
    asked: dict[str, Any] = {"planners": GREEDIES, **words}
    return compare(WORK, MACHINES, **asked)


both = cache(compared)


# --- prices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [2, 3])  # of cases that have plans; the second's baseline is outside of its space
def test_every_judgement_is_that_of_simulate(seed: int):
    case = medium_case(seeded(seed), LOOSE)
    other = replace(case, space=replace(case.space, types=("row_wise", "table_wise", "column_wise")))
    running = other.plan("random").plan
    words: dict[str, Any] = {"constraints": case.constraints, "space": case.space}
    found = compare(case.workload, case.cluster, planners=("cost_greedy",), baseline=running, **words)
    assert [row.judgements[0].gap is None for row in found.rows] == [False, seed == 3]
    for row in found.rows:
        for judgement in row.judgements:
            priced = simulate(found.plans[row.name], judgement.cost_model)
            assert judgement.total_s == pytest.approx(priced.cost.total_s, rel=1e-12)
            assert judgement.bound_s == priced.bound.value_s
            assert (judgement.gap is None) == (priced.gap is None)
            assert judgement.gap is None or judgement.gap == pytest.approx(priced.gap, rel=1e-9, abs=1e-12)
            assert row.overfull == len(priced.cost.overfull)


def test_a_row_holds_the_plan_that_its_planner_makes_alone():
    made = Case(WORK, MACHINES).plan("size_greedy").plan
    found = compared(**TORCHREC)
    assert found.plans["size_greedy"] == made
    assert found.row("size_greedy").digest == made.digest
    assert (found.row("size_greedy").search_s or 0) > 0


def test_rows_go_from_cheap_to_dear_under_the_model_of_the_search():
    for model, found in (("best", both()), ("torchrec", both(cost_model="torchrec"))):
        totals = [row.judgements[0].total_s for row in found.rows]
        assert found.judges[0] == model
        assert set(found.judges) == {"best", "torchrec"}
        assert totals == sorted(totals)
        for judge in range(2):
            column = [row.judgements[judge] for row in found.rows]
            least = min(each.total_s for each in column)
            assert [each.over_best for each in column] == [each.total_s / least - 1 for each in column]


def test_the_model_of_the_search_judges_even_if_it_is_not_named():
    assert compared(planners=(), baseline=running(), judges=("torchrec",)).judges == ("best", "torchrec")
    assert compared(judges=("torchrec",), cost_model="torchrec").judges == ("torchrec",)


def test_sensitivity_is_of_the_first_judge():
    row = both().row("cost_greedy")
    assert row.sensitivity is not None
    assert row.sensitivity.median_s == pytest.approx(row.judgements[0].total_s, rel=0.2)
    assert row.sensitivity.p95_s >= row.sensitivity.median_s


def test_sensitivities_that_are_priced_together_are_those_of_each_plan_alone():
    """One of the plans is outside the space, so it is of a wider problem."""
    narrow = Space(types=("row_wise",))
    found = compared(planners=("cost_greedy", "size_greedy"), baseline=running(), space=narrow)
    assert len(found.plans) == 3
    for name, plan in found.plans.items():
        assert found.row(name).sensitivity == sensitivity(plan, "best")


# --- failures -----------------------------------------------------------------------------------------------------


class Lost:
    """A planner that finds nothing."""

    name = "lost"

    def plan(self, *_: object, **__: object) -> Any:
        raise NoPlanFound("it is dark here")


def test_a_planner_without_a_plan_does_not_lose_the_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PLANNERS.places, "lost", Lost())
    found = compare(WORK, MACHINES, planners=("lost", "cost_greedy"), **TORCHREC)
    assert [row.name for row in found.rows] == ["cost_greedy", "lost"]
    row = found.row("lost")
    assert (row.error, row.judgements, row.digest, row.sensitivity) == ("it is dark here", (), None, None)
    assert set(found.plans) == {"cost_greedy"}
    assert found.verdict == "cost_greedy has the only plan that fits"


def test_no_plan_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(PLANNERS.places, "lost", Lost())
    with pytest.raises(NoPlanFound, match="it is dark here"):
        compare(WORK, MACHINES, planners=("lost",), **TORCHREC)


def test_what_cannot_be_is_said_to_be_so():
    with pytest.raises(Infeasible):
        compare(WORK, replace(MACHINES, hbm_bytes=2**20), planners=GREEDIES, **TORCHREC)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"planners": ("autp",)}, "did you mean 'auto'"),
        ({"judges": ("torchrek",)}, "did you mean 'torchrec'"),
        ({"cost_model": "torchrek"}, "did you mean 'torchrec'"),
        ({"planners": ()}, "nothing to compare"),
    ],
)
def test_unknown_names_are_refused(words: dict[str, Any], said: str):
    with pytest.raises(UsageError, match=said):
        compare(WORK, MACHINES, **words)


def test_a_name_given_twice_counts_once():
    found = compared(planners=("random", "random"), judges=("torchrec", "torchrec"), cost_model="torchrec")
    assert [row.name for row in found.rows] == ["random"]


# --- the baseline -------------------------------------------------------------------------------------------------

RUNNING = (
    placed("hot", "row_wise", [0, 1]),
    placed("small", "data_parallel", [0, 1], kernel="dense"),
    placed("wide", "column_wise", [0, 1], [64, 64]),
)


def running(**changes: Any) -> Plan:
    """The plan that runs, as a plan of this workload."""
    return replace(both().plans["cost_greedy"], placements=RUNNING, **changes)


def test_the_baseline_is_judged_alike():
    found = compared(baseline=running())
    row = found.row("baseline")
    assert (row.search_s, row.error, row.fits) == (None, None, True)
    assert found.plans["baseline"].placements == RUNNING
    assert found.plans["baseline"].planner == "baseline"
    assert simulate(found.plans["baseline"], "best") == found.plans["baseline"]
    assert row.judgements[0].gap is not None
    assert row.sensitivity is not None


def test_a_baseline_alone_needs_no_planner():
    found = compare(WORK, MACHINES, planners=(), baseline=running(), **TORCHREC)
    assert [row.name for row in found.rows] == ["baseline"]
    assert found.verdict == "baseline has the only plan that fits"


@pytest.mark.parametrize(
    "words",
    [
        {"space": Space(types=("table_wise",))},
        {"space": Space(kernels=("fused",))},
        {"constraints": Constraints(rules=(TableRule(tables="hot", sharding_types=("table_wise",)),))},
    ],
)
def test_a_baseline_outside_of_the_space_has_a_price_and_no_gap(words: dict[str, Any]):
    found = compare(WORK, MACHINES, planners=("cost_greedy",), baseline=running(), **TORCHREC, **words)
    inside = compared(baseline=running(), **TORCHREC).row("baseline")
    for judgement, same in zip(found.row("baseline").judgements, inside.judgements, strict=True):
        assert judgement.gap is None
        assert judgement.total_s == pytest.approx(same.total_s, rel=1e-12)
    assert found.row("cost_greedy").judgements[0].gap is not None


def test_a_baseline_without_room_is_not_the_best():
    tight = replace(MACHINES, hbm_bytes=21 * 2**19)
    on_one = tuple(placed(name, "table_wise", [0]) for name in ("hot", "small", "wide"))
    found = compare(WORK, tight, planners=("cost_greedy",), baseline=replace(running(), placements=on_one), **TORCHREC)
    row = found.row("baseline")
    assert (row.fits, row.overfull, row.judgements[0].gap) == (False, 1, None)
    assert found.row("cost_greedy").judgements[0].over_best == 0.0
    assert found.verdict == "cost_greedy has the only plan that fits"


def test_a_baseline_of_other_tables_or_ranks_is_refused(tmp_path: Path):
    with pytest.raises(PlanMismatch, match="'baseline' is for 1 host of 2 devices, the cluster has 1 of 4"):
        compare(WORK, cluster(local=4), baseline=running())
    with pytest.raises(PlanMismatch, match="'baseline': 1 table without a place, the first is 'hot'"):
        compare(WORK, MACHINES, baseline=replace(running(), placements=RUNNING[1:]))
    with pytest.raises(UsageError, match="cannot read"):
        compare(WORK, MACHINES, baseline=str(tmp_path / "absent"))


def test_a_baseline_may_be_a_file(tmp_path: Path):
    save_plan(running(digest=""), str(tmp_path / "plan.json"))
    found = compared(baseline=str(tmp_path / "plan.json"), **TORCHREC)
    assert found.row("baseline") == compared(baseline=running(), **TORCHREC).row("baseline")


def test_the_production_report_is_its_own_baseline(data: Path):
    source = str(data / "torchrec_prod1935" / "sharding_stats_example.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compare(
            source,
            "h100:8x12",
            planners=(),
            baseline=source,
            space=Space(types=("column_wise", "row_wise")),
            **TORCHREC,
        )
    row = found.row("baseline")
    assert (row.fits, len(found.plans["baseline"].placements)) == (True, 1935)
    assert row.judgements[0].gap is not None


# --- the verdict --------------------------------------------------------------------------------------------------


def row(name: str, *totals: float, fits: bool = True) -> PlannerRow:
    judgements = tuple(
        Judgement(cost_model=f"m{i}", total_s=total, bound_s=None, gap=None, over_best=None)
        for i, total in enumerate(totals)
    )
    return PlannerRow(
        name=name, digest="x", search_s=0.1, truncated=False, error=None, judgements=judgements, fits=fits,
        overfull=0 if fits else 2, sensitivity=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("a", 1.0, 1.0), row("b", 2.0, 2.0)], "a is best under m0 and m1"),
        ([row("a", 1.0, 1.003), row("b", 1.002, 1.0)], "a is best, or within 0.3% of it, under m0 and m1"),
        ([row("a", 1.0, 1.5), row("b", 2.0, 1.0)],
         "the judges disagree: b is best under m1, but under m0 it costs 100% more than a"),
        ([row("a", 1.0, 3.5), row("b", 2.0, 1.0)],
         "the judges disagree: a is best under m0, but under m1 it costs 250% more than b"),
        ([row("a", 1.0, 1.0, fits=False), row("b", 2.0, 2.0), row("c", 3.0, 3.0)], "b is best under m0 and m1"),
        ([row("a", 1.0, 1.0, fits=False)], "no plan fits the memory of the devices and hosts"),
        ([row("a", 0.0, 0.0), row("b", 0.0, 0.0)], "a is best under m0 and m1"),
    ],
)  # fmt: skip
def test_the_verdict_names_the_best_or_the_quarrel(rows: list[PlannerRow], said: str):
    assert verdict_on(ranked(rows), ("m0", "m1")) == said


def test_costs_over_the_best_count_rows_with_room():
    rows = ranked([row("b", 2.0), row("a", 1.0, fits=False), row("c", 3.0)])
    assert [(each.name, each.judgements[0].over_best) for each in rows] == [("a", -0.5), ("b", 0.0), ("c", 0.5)]
    assert ranked([row("a", 0.0)])[0].judgements[0].over_best is None


def test_a_row_is_found_by_its_name():
    with pytest.raises(KeyError):
        both().row("absent")


# --- ties ---------------------------------------------------------------------------------------------------------


def test_ties_are_plans_closer_to_the_best_than_the_published_error():
    found = compare(WORK, "h100:2", planners=GREEDIES, judges=())
    error = published_error_of(found)
    over = {row.name: row.judgements[0].over_best or 0.0 for row in found.rows[1:]}
    assert ties(found) == tuple(name for name, share in over.items() if share <= error.spread)
    near = [replace(row, judgements=(replace(row.judgements[0], over_best=error.spread),)) for row in found.rows[1:]]
    far = [replace(row, judgements=(replace(row.judgements[0], over_best=2 * error.spread),)) for row in found.rows[1:]]
    alike = [replace(row, judgements=(replace(row.judgements[0], over_best=0.0),)) for row in found.rows[1:]]
    for tied in (near, alike):
        assert ties(replace(found, rows=(found.rows[0], *tied))) == tuple(row.name for row in tied)
    assert ties(replace(found, rows=(found.rows[0], *far))) == ()


def test_judges_that_nothing_is_known_of_know_no_ties():
    found = compared(**TORCHREC)
    assert published_error_of(found).checked == {}
    assert ties(found) == ()


def test_ties_under_a_learned_model_are_plans_within_its_own_error():
    found = compare(WORK, "h100:2", planners=GREEDIES, judges=(), cost_model="best")
    error = published_error_of(found)
    assert error == found.plans[found.rows[0].name].error
    formulas = compare(WORK, "h100:2", planners=GREEDIES, judges=(), cost_model="analytic")
    assert error.spread < published_error_of(formulas).spread
    over = {row.name: row.judgements[0].over_best or 0.0 for row in found.rows[1:]}
    assert ties(found) == tuple(name for name, share in over.items() if share <= error.spread)
