"""Inputs beyond the trained range are named, with the factor."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.cases import table
from support.learned import write_model
from support.learned_cases import case_of

from recsmith.costs import cost_model
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.neural.files import Range
from recsmith.planning.simulate import simulate
from recsmith.plans import plan_from_raw, plan_to_raw


def test_inputs_beyond_the_trained_range_are_said_with_the_factor(tmp_path: Path) -> None:
    case = case_of(table("a", 1000, 128, 5.0), batch_size=8)
    most = {"rows": 250.0, "device ids": 32.0, "columns": 128.0}
    ranges = {name: Range(least=1.0, most=value) for name, value in most.items()}
    name = write_model(tmp_path / "m.safetensors", ranges=ranges)
    with pytest.warns(UserWarning, match=r"extrapolates .* rows 4 times, device ids 1\.25 times$"):
        found = cost_model(name).compile(case.problem)
    assert isinstance(found, NeuralEvaluator)
    assert found.extrapolated == {"rows": 4.0, "device ids": 1.25}


@pytest.mark.filterwarnings("ignore:cost model .* extrapolates")
def test_a_plan_says_where_its_price_extrapolates(tmp_path: Path) -> None:
    name = write_model(tmp_path / "m.safetensors", ranges={"rows": Range(least=1.0, most=250.0)})
    found = replace(case_of(), cost_model=name).plan("size_greedy").plan
    assert found.extrapolated == {"rows": 4.0}
    again = plan_from_raw(plan_to_raw(found), "plan.json")
    assert (again.extrapolated, simulate(again).extrapolated) == ({"rows": 4.0}, {"rows": 4.0})
    assert simulate(found, "analytic").extrapolated == {}
    assert "extrapolated" not in plan_to_raw(simulate(found, "analytic"))
