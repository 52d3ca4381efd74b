"""Cost model `best`: learned where the device was measured with such tables, formulas elsewhere, continuous between."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import table, workload
from support.learned import write_model
from support.learned_cases import case_of

from recsmith import simulate
from recsmith._types import Floats
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model
from recsmith.costs.analytic import AnalyticEvaluator
from recsmith.costs.fitted import FittedCostModel
from recsmith.costs.fitted_kernels import FittedKernels
from recsmith.costs.neural.evaluator import OTHER_BACKWARD, OTHER_FORWARD, NeuralEvaluator
from recsmith.costs.neural.files import Weights
from recsmith.costs.neural.model import NeuralCostModel
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.errors import UsageError
from recsmith.planning import plan
from recsmith.problems import Space, build_problem
from recsmith.workloads import AccessProfile, Table

H100 = load_cluster("h100:4")
TRAINED = table("a", 100_000, 64, 10.0, access=AccessProfile(zipf=0.8))
GIANT = table("z", 4 * 10**11, 64, 10.0, access=AccessProfile(zipf=0.8))


def evaluator_of(*tables: Table, on: str = "h100:4", model: str = "best", **fields: Any) -> Evaluator:
    work = workload(*tables, batch_size=4096, **fields)
    space = Space(types=("table_wise", "column_wise"), kernels=("fused",))
    return cost_model(model).compile(build_problem(work, load_cluster(on), space))


def replace_rows(found: Table, rows: int) -> Table:
    return table(found.name, rows, found.embedding_dim, 10.0, access=found.access)


def terms_of(evaluator: Evaluator, name: str, width: int = 64) -> Floats:
    """Work terms of a whole table on one device, without those of collectives, which depend on the links."""
    number = [each.name for each in evaluator.problem.tables].index(name)
    mode = evaluator.problem.find_mode(number, "table_wise", "fused")
    return evaluator.terms(np.array([mode]), np.array([width]))[0, :-2]


def test_tables_that_were_measured_have_the_learned_price_whatever_stands_beside_them():
    """One giant table does not throw the model away."""
    learned = terms_of(evaluator_of(TRAINED, model="neural:h100"), "a")
    assert terms_of(evaluator_of(TRAINED), "a").tolist() == learned.tolist()
    assert terms_of(evaluator_of(TRAINED, GIANT), "a").tolist() == learned.tolist()
    assert terms_of(evaluator_of(TRAINED, GIANT), "z")[1] == 0


def test_a_table_far_from_all_that_was_measured_has_the_formulas_price_and_no_less_than_the_models():
    best = evaluator_of(GIANT)
    assert isinstance(best, NeuralEvaluator)
    mode = best.problem.find_mode(0, "table_wise", "fused")
    terms = best.terms(np.array([mode]), np.array([64]))[0]
    formula = FittedCostModel().compile(best.problem).terms(np.array([mode]), np.array([64]))[0]
    assert terms[1 : 1 + len(best.weights.base)].tolist() == [0.0] * len(best.weights.base)
    alone = replace(best, share=None).terms(np.array([mode]), np.array([64]))[:, : 1 + len(best.weights.base)]
    learned = best.weights.head.seconds(alone)[:, 0]
    assert terms[[OTHER_FORWARD, OTHER_BACKWARD]] == pytest.approx(
        np.maximum([max(formula[1], formula[2]), max(formula[3], formula[4])], learned)
    )


def test_the_price_is_continuous_between():
    device, prices = one_device(load_cluster("h100")), list[float]()
    for rows in np.rint(10 ** np.arange(7, 12, 0.1)).astype(int).tolist():  # a jump shows at any distance
        work = workload(replace_rows(GIANT, rows), batch_size=4096)
        prices.append(float(group_seconds(cost_model("best"), work, device).sum()))
    steps = np.abs(np.diff(np.log(prices)))
    assert len(prices) == 50
    assert np.isfinite(prices).all()
    assert steps.max() < 0.05


@pytest.mark.parametrize(("device", "optimizer"), [("a100-80:4", "sgd"), ("h100:4", "lamb")])
def test_without_measurements_it_is_the_fitted_formula(device: str, optimizer: str):
    best = evaluator_of(TRAINED, on=device, optimizer=optimizer)
    assert isinstance(best, AnalyticEvaluator)
    assert isinstance(best.kernels, FittedKernels)


def test_a_table_of_a_type_that_was_not_measured_has_the_formulas_price_alone(tmp_path: Path):
    case = case_of(table("a", 1000, 128, 5.0), table("b", 1000, 128, 5.0, data_type="fp16"))
    model = NeuralCostModel(write_model(tmp_path / "m.safetensors", data_types=("fp32",)))
    with pytest.raises(UsageError, match="trained on data types fp32, not fp16"):
        model.compile(case.problem)
    mixed = model.mixed(case.problem)
    modes, problem = np.flatnonzero(mixed.covered), mixed.problem
    assert {problem.tables[int(t)].name for t in problem.modes.table[modes]} == {"a"}
    assert np.isfinite(mixed.terms(np.arange(len(mixed.covered)), problem.demand.dim[problem.modes.table])).all()


@pytest.mark.filterwarnings("error:cost model best")
def test_plans_have_bounds_and_are_priced_again_by_its_name():
    work = workload(TRAINED, replace_rows(GIANT, 10**10), table("c", 5000, 128, 40.0), batch_size=1024)
    found = plan(work, load_cluster("h100:8x8"), cost_model="best", iterations=20).plan
    assert found.cost_model == "best"
    assert found.bound.value_s is not None
    assert 0 < found.bound.value_s <= found.cost.total_s
    assert simulate(found).cost.total_s == found.cost.total_s


def test_a_name_beside_it_is_told():
    with pytest.raises(UsageError, match="no cost model is called 'bets'"):
        cost_model("bets")


def test_what_is_remembered_of_pieces_is_what_they_cost(monkeypatch: pytest.MonkeyPatch):
    """Pieces asked for again, by types that send otherwise, and beside new ones: to the last bit, asked for once."""
    half_known = replace_rows(GIANT, 3 * 10**9)
    problem = build_problem(workload(TRAINED, half_known, batch_size=4096), load_cluster("h100:2x2"), Space())
    evaluator, asked = cost_model("best").compile(problem), list[int]()
    assert isinstance(evaluator, NeuralEvaluator)
    network, every = Weights.terms, np.flatnonzero(evaluator.covered)
    monkeypatch.setattr(Weights, "terms", lambda w, work, inputs: asked.append(len(work)) or network(w, work, inputs))
    for modes, width in ((every, 32), (every[::-1], 32), (np.append(every, every), 64)):
        widths = np.full(len(modes), width)
        fresh = cost_model("best").compile(problem)
        np.testing.assert_array_equal(evaluator.terms(modes, widths), fresh.terms(modes, widths))
        assert sum(asked) < 2 * len(every)  # types that read alike are asked for together
        asked.clear()
    evaluator.terms(every, np.full(len(every), 32))
    assert not asked


def test_equal_tables_are_asked_for_once_and_others_apart(monkeypatch: pytest.MonkeyPatch):
    """Others read as much, and differ in their type, their optimizer, or in which rows are hot."""
    others = [
        replace(TRAINED, name="b"), replace(TRAINED, name="c", data_type="fp16"),
        replace(TRAINED, name="d", optimizer="sgd"), replace(TRAINED, name="e", access=AccessProfile(zipf=0.7)),
    ]  # fmt: skip
    asked, network = list[int](), Weights.terms
    monkeypatch.setattr(Weights, "terms", lambda w, work, inputs: asked.append(len(work)) or network(w, work, inputs))
    evaluator = evaluator_of(TRAINED, *others)
    modes = [evaluator.problem.find_mode(t, "table_wise", "fused") for t in range(5)]
    evaluator.terms(np.array(modes), np.full(5, 64))
    assert asked == [4]
    for each in (TRAINED, *others):
        np.testing.assert_allclose(terms_of(evaluator, each.name), terms_of(evaluator_of(each), each.name), rtol=1e-6)
