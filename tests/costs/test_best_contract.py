"""Cost model `best` keeps the laws of cost models and planners, and no plan costs less than its bound.

Cases mix tables that were measured with those far beyond, in part beyond, and of kernels that no measurement covers.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.cases import Case, brute_force, check_plan, seeded, small_case, table, workload
from support.shared_problems import BuiltOnce

from recsmith import simulate
from recsmith.bounds import lower_bound
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model, step_seconds
from recsmith.costs.neural.evaluator import NeuralEvaluator
from recsmith.costs.pricing import group_seconds, one_device
from recsmith.planning import find_planner
from recsmith.plans import Plan
from recsmith.problems import Space, build_problem, footprint_of
from recsmith.testing import CostModelContract, PlannerContract
from recsmith.testing.planners import PlannerCase
from recsmith.workloads import AccessProfile

BEST = cost_model("best")
OFTEN = AccessProfile(zipf=0.8)
MIXED = (
    table("measured", 100_000, 64, 10.0, access=OFTEN), table("narrow", 5_000, 8, 40.0, access=OFTEN),
    table("partly", 10**10, 64, 10.0, access=OFTEN), table("far", 4 * 10**11, 64, 10.0, access=OFTEN),
    table("sequence", 50_000, 32, 10.0, access=OFTEN, pooling="none"),
    table("halves", 20_000, 128, 5.0, access=OFTEN, data_type="fp16"),
)  # fmt: skip


def mixed_problem(types: tuple[str, ...] | None, on: str) -> Any:
    space = Space(types=types, kernels=("fused", "dense")) if types else Space(kernels=("fused", "dense", "fused_uvm"))
    machines = replace(load_cluster(on).with_memory(2**47), ddr_bytes_per_host=2**50)
    return build_problem(workload(*MIXED, batch_size=512), machines, space)


PROBLEMS = (mixed_problem(None, "h100:4"), mixed_problem(("table_wise", "column_wise", "data_parallel"), "h200:2x2"),
            mixed_problem(None, "a100-80:2"))  # fmt: skip


def small_best(seed: int) -> Case:
    """A small case on an H100; one table is read so often that it lies partly or wholly beyond what was measured."""
    case = small_case(seeded(seed), models=("analytic",))
    first, *others = case.workload.tables
    machines = case.cluster if seed % 8 == 0 else case.cluster.with_memory(2**40)
    often = tuple(replace(each, pooling_factor=each.pooling_factor * 400) for each in first.features)
    return replace(
        case, cost_model="best", workload=replace(case.workload, tables=(replace(first, features=often), *others)),
        cluster=replace(machines, device=replace(machines.device, name="h100")),
    )  # fmt: skip


SMALL = [
    PlannerCase(each.workload, each.cluster, each.space, each.constraints, BEST) for each in map(small_best, (0, 8))
]


class TestBest(CostModelContract):
    cost_model, problems = BEST, PROBLEMS


class TestBestOnSampleProblems(CostModelContract):
    cost_model = BEST


@pytest.fixture(scope="module")
def built_once() -> BuiltOnce:
    return BuiltOnce()


class TestPlannersUnderBest(PlannerContract):
    @pytest.fixture(autouse=True, params=["auto", "size_greedy"])
    def _each(self, request: pytest.FixtureRequest, built_once: BuiltOnce) -> None:
        self.planner = find_planner(request.param)
        self.cases = SMALL
        built_once.use_for_laws(request)

    def check(self, case: PlannerCase, made: Plan) -> None:
        super().check(case, made)
        again = simulate(made)
        assert (again.cost, again.error) == (made.cost, made.error)


def test_the_cases_are_mixed() -> None:
    evaluator = BEST.compile(PROBLEMS[0])
    assert isinstance(evaluator, NeuralEvaluator)
    assert evaluator.share is not None
    assert {0.0, 1.0} < set(evaluator.share.tolist())
    parts = [small_best(seed).evaluator for seed in range(12)]
    assert sum(isinstance(each, NeuralEvaluator) and each.share is not None and each.share.any() for each in parts) >= 4


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(6, 12))])
def test_no_plan_of_a_small_space_costs_less_than_the_bound(seed: int) -> None:
    case = small_best(seed)
    least, bound = brute_force(case).least_s, lower_bound(case.evaluator).bound.value_s
    assert least is not None
    assert bound is not None
    assert 0 < bound <= least * (1 + 1e-9)
    found = case.plan("auto").plan
    assert least * (1 - 1e-9) <= found.cost.total_s
    check_plan(case, found)
    placed = footprint_of(case.problem, found.placements)
    assert step_seconds(case.evaluator, placed) == pytest.approx(found.cost.total_s, rel=1e-12)
    assert simulate(found).cost == found.cost


@pytest.mark.parametrize("beside", [0, 6])
@pytest.mark.parametrize("figure", ["rows", "ids a bag"])
def test_no_table_is_cheaper_at_the_edge_than_one_that_is_less(figure: str, beside: int) -> None:
    """What is partly beyond the range takes no less than within, nor less than both of its prices."""
    device, others = one_device(load_cluster("h100")), [replace(MIXED[0], name=f"n{i}") for i in range(beside)]
    rows, ids = 10 ** np.arange(7.0, 11.6, 0.2), 2.0 ** np.arange(6, 15, 0.5)
    made = (
        [table("z", int(each), 64, 10.0, access=OFTEN) for each in rows] if figure == "rows"
        else [table("z", 100_000, 64, float(each), access=OFTEN) for each in ids]
    )  # fmt: skip
    works = [workload(each, *others, batch_size=512) for each in made]
    prices = np.array([float(group_seconds(BEST, each, device).sum()) for each in works])
    assert np.isfinite(prices).all()
    assert (prices[1:] >= prices[:-1] * (1 - 1e-3)).all()


def test_links_and_disks_do_not_take_the_factor_of_device_memory() -> None:
    problem = PROBLEMS[0]
    best, formula = BEST.compile(problem), cost_model("analytic").compile(problem)
    assert isinstance(best, NeuralEvaluator)
    mode = np.array([problem.find_mode(0, "table_wise", "fused_uvm")])
    width = problem.demand.dim[problem.modes.table[mode]]
    terms = formula.terms(mode, width)[0]
    plain = max(terms[1], terms[2]) + max(terms[3], terms[4])
    assert best.formula_seconds(mode, width)[0] == pytest.approx(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it extrapolates
        learned = cost_model("neural:h100").compile(problem)
    assert isinstance(learned, NeuralEvaluator)
    assert learned.formula_seconds(mode, width)[0] == pytest.approx(plain * learned.card.analytic_factor)


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad", "adam"])
def test_whole_copies_have_the_seconds_that_were_measured_of_them(optimizer: Any) -> None:
    """A launch, and so much for a table and for each byte of it, as the card says; the formula's forward pass."""
    tables = [table(f"t{i}", 10_000 * (i + 1), 64, 2.0) for i in range(3)]
    problem = build_problem(
        workload(*tables, batch_size=64, optimizer=optimizer), load_cluster("h100:2"),
        Space(types=("data_parallel",), kernels=("dense",)),
    )  # fmt: skip
    best = BEST.compile(problem)
    assert isinstance(best, NeuralEvaluator)
    found, modes = best.card.copies[optimizer], np.arange(3)
    widths = problem.demand.dim[problem.modes.table]
    parts = best.head(best.terms(modes, widths).sum(axis=0)[None])[0]
    seconds = 3 * found.table_s + found.byte_s * problem.workload.weight_bytes
    assert parts[1] == pytest.approx(best.weights.head.launch[1] + seconds, rel=1e-4)
    assert found.table_s > 0
    assert found.byte_s > 0
