"""Hot rows of tables split by rows: what they cost a step, on which tables, and what a reader is told."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.build import cluster, placed, plan_of, table, workload
from support.printed import text_of

from recsmith.analyses.explain import explain
from recsmith.analyses.hot_rows import row_blocks_of
from recsmith.costs import COST_MODELS, price
from recsmith.plans import Plan, StepCost
from recsmith.problems import footprint_of, problem_of
from recsmith.reports.explanations import explanation_report, explanation_to_raw
from recsmith.reports.plan_words import hot_rows_words
from recsmith.workloads import AccessProfile, Table
from recsmith.workloads.scattered_rows import scattered_blocks

MODELS = ("analytic", "torchrec")
RANKS = (0, 1, 2, 3)


def _table(name: str, **access: Any) -> Table:
    return table(name, 100_000, 64, pooling_factor=20.0, access=AccessProfile(**access) if access else None)


def _plan(*tables: Table, kind: str = "row_wise", **rest: Any) -> Plan:
    where = RANKS if kind in ("row_wise", "table_row_wise") else (0,)
    return plan_of(
        workload(*tables, batch_size=1024, **rest),
        cluster(local=4),
        *(placed(each.name, kind, where) for each in tables),
    )


def _cost(plan: Plan, model: str) -> StepCost:
    problem = problem_of(plan)
    return price(COST_MODELS[model].compile(problem), footprint_of(problem, plan.placements))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("kind", ["row_wise", "table_row_wise"])
def test_a_step_is_longer_and_memory_fuller_the_more_its_first_block_is_read(model: str, kind: str):
    steps, sizes = [], []
    for zipf in (0.0, 0.5, 0.8, 1.0):
        plan = _plan(_table("a", zipf=zipf, hot_rows="in_front"), kind=kind)
        cost = _cost(plan, model)
        steps.append(cost.total_s)
        sizes.append(max(device.hbm_bytes for device in cost.per_device))
    assert steps == sorted(steps)
    assert steps[-1] > 1.3 * steps[0]
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0]
    even = _plan(_table("a", zipf=1.0), kind=kind)
    assert _cost(even, model).total_s < steps[-1]


@pytest.mark.parametrize("model", MODELS)
def test_what_is_not_split_by_rows_costs_the_same_wherever_hot_rows_lie(model: str):
    plain, told = (_plan(_table("a", **access), kind="table_wise") for access in ({}, {"hot_rows": "in_front"}))
    assert _cost(plain, model) == _cost(told, model)
    assert row_blocks_of(told) == ()
    assert hot_rows_words(told) == []


@pytest.mark.parametrize("model", MODELS)
def test_scattered_hot_rows_cost_what_blocks_of_equal_counts_do(model: str):
    plain, stated, counted = (
        _plan(_table("a", **access), hot_rows=hot)
        for access, hot in (({}, None), ({}, "scattered"), ({"block_lookups": (1.0,) * 8}, None))
    )
    assert _cost(plain, model) == _cost(stated, model)
    assert _cost(counted, model).total_s == pytest.approx(_cost(plain, model).total_s, rel=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_explain_names_the_table_whose_hot_rows_bind_the_step(model: str, capsys: pytest.CaptureFixture[str]):
    even, uneven = _table("even"), _table("uneven", block_lookups=(1.0, 9.0, 1.0, 1.0))
    plan = _plan(even, uneven)
    (found,) = explain(plan, cost_model=model).hot_rows
    assert (found.table, found.times) == ("uneven", 3.0)
    as_even = _plan(even, replace(uneven, access=None))
    saved = _cost(plan, model).total_s - _cost(as_even, model).total_s
    assert found.seconds == pytest.approx(saved, rel=1e-6)
    text = text_of(explanation_report(explain(plan, cost_model=model)), capsys)
    assert "the busiest block of 'uneven' has 3.00 times the mean lookups" in text
    assert explanation_to_raw(explain(plan, cost_model=model))["hot_rows"][0]["table"] == "uneven"
    assert "hot_rows" not in explanation_to_raw(explain(as_even, cost_model=model))


def test_a_plan_says_what_it_takes_for_granted_of_hot_rows():
    (note,) = hot_rows_words(_plan(_table("a"), _table("b")))
    assert note.startswith(
        "hot rows scattered (assumed, for 2 tables split by rows): all blocks of rows are equally busy"
    )
    (note,) = hot_rows_words(_plan(_table("a"), hot_rows="scattered"))
    assert note.startswith("hot rows scattered (as stated, for 1 table split by rows)")
    notes = hot_rows_words(
        _plan(_table("a", zipf=0.0, hot_rows="in_front"), _table("b", block_lookups=(3.0, 1.0)), _table("c"))
    )
    beginnings = [note.split(":")[0] for note in notes]
    assert beginnings == [
        "hot rows scattered (assumed, for 1 table split by rows)",
        "hot rows in front (as stated)",
        "hot rows as counted",
    ]
    assert "'b' has 1.50 times the mean lookups" in notes[2]


def test_ranks_are_priced_as_the_busiest_block_of_torchrec_s():
    """10 rows on 4 ranks are blocks of 3, 3, 3 and 1; the busiest has rows 3 to 5."""
    lookups = tuple(float(row in (3, 4, 5, 9)) for row in range(10))
    small = replace(_table("a"), num_embeddings=10, access=AccessProfile(block_lookups=lookups))
    problem = problem_of(_plan(small))
    (mode,) = [problem.find_mode(0, "row_wise", "fused")]
    assert mode is not None
    assert problem.modes.spread[mode] == pytest.approx(4 / 3)
    assert problem.modes.ids[mode] == pytest.approx(4 * 1024 * 20 * 3 / 4)
    assert np.array(problem.modes.head_rows)[mode] == 3


@pytest.mark.parametrize("model", MODELS)
def test_explain_prices_what_a_table_could_be_instead_of_blocks(model: str, capsys: pytest.CaptureFixture[str]):
    """Scattered rows as the plan of scattered ids costs, and each sharding type as the changed plan does."""
    hot, other = _table("hot", zipf=1.05, hot_rows="in_front"), _table("other", zipf=0.0)
    plan = _plan(hot, other)
    (found,) = explain(plan, cost_model=model).hot_rows
    ways = {each.way: each for each in found.instead}
    assert {"rows scattered", "table_wise", "column_wise", "data_parallel"} <= ways.keys()
    assert "row_wise" not in ways, "which it is"
    changes = [each.change for each in found.instead if each.change is not None]
    assert changes == sorted(changes)
    assert hot.access is not None
    scattered = _plan(
        replace(hot, access=replace(hot.access, hot_rows=None, block_lookups=scattered_blocks(hot))), other
    )
    assert ways["rows scattered"].total_s == pytest.approx(_cost(scattered, model).total_s, rel=1e-9)
    assert (ways["rows scattered"].change or 0) < 0
    whole = ways["table_wise"]
    moved = plan_of(
        plan.workload, plan.cluster, placed("hot", "table_wise", whole.ranks), placed("other", "row_wise", RANKS)
    )
    assert whole.total_s == pytest.approx(_cost(moved, model).total_s, rel=1e-9)
    text = " ".join(text_of(explanation_report(explain(plan, cost_model=model)), capsys).split())
    assert "rows scattered whole 0-3" in text
    assert "TorchRec cuts rows into blocks in their order alone, and replicates whole tables alone" in text
    told = explanation_to_raw(explain(plan, cost_model=model))["hot_rows"][0]["instead"]
    assert {each["way"] for each in told} == ways.keys()
