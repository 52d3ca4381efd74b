"""Both planners keep the contract of planners, by the tests that RecSmith ships for any package's planners."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from per_problem_cases import BY_COLUMNS, cluster, drawn_problem, problem_of_room, table, workload

from recsmith import NoPlanFound, Space
from recsmith.costs import cost_model, step_seconds
from recsmith.planners.placing import WHOLE, items_of
from recsmith.planning import find_planner
from recsmith.problems import Problem, build_problem
from recsmith.testing import PlannerCase, PlannerContract, sample_problems
from recsmith_per_problem import Rnn, SurCo
from recsmith_per_problem.surco import is_installed

KINDS = {"rnn?episodes=32": Rnn, "surco?steps=4": SurCo}  # few steps: the laws hold for them too
WORDS = tuple(word for word in KINDS if KINDS[word] is Rnn or is_installed())
MODELS = ("analytic", "torchrec")


def problems() -> tuple[Problem, ...]:
    """With much and with hardly any memory."""
    tight = (problem_of_room(1.05), problem_of_room(1.2, 9, 4, BY_COLUMNS), drawn_problem(0, count=10))
    return (*sample_problems(), *tight)


CASES = tuple(PlannerCase.of(each, MODELS[i % 2]) for i, each in enumerate(problems()))
PLANNERS = {word: find_planner(word) for word in WORDS}


class TestOfThisPackage(PlannerContract):
    cases = CASES

    @pytest.fixture(autouse=True, params=WORDS)
    def _each(self, request: pytest.FixtureRequest) -> None:
        self.planner = PLANNERS[request.param]
        assert isinstance(self.planner, KINDS[request.param])


PLANS = f"""
from recsmith.costs import cost_model
from recsmith.planning import find_planner
from test_contract import problems
for problem in problems()[::3]:
    for word in {WORDS}:
        found = find_planner(word).plan(problem, cost_model("analytic").compile(problem), seed=1)
        print(found.total_s.hex(), found.footprint.target.tolist())
"""


def test_neither_hash_seed_nor_threads_change_a_plan() -> None:
    running = [_print_plans(hash_seed, threads) for hash_seed, threads in (("0", "1"), ("1", "8"))]
    printed = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert len(printed[0].splitlines()) == 3 * len(WORDS)
    assert printed[0] == printed[1]


def _print_plans(hash_seed: str, threads: str) -> subprocess.Popen[str]:
    counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    here = str(Path(__file__).parent)
    environment = {
        **os.environ,
        **counts,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join([here, *sys.path]),
    }
    return subprocess.Popen([sys.executable, "-c", PLANS], env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("word", WORDS)
def test_no_plan_is_better_than_the_best_of_all(word: str) -> None:
    """Six tables on two devices: all placements are priced."""
    for room in (3.0, 1.1):
        problem = problem_of_room(room, 6, 2)
        evaluator = cost_model("analytic").compile(problem)
        items = items_of(problem, evaluator, WHOLE[0])
        assert items is not None
        every = np.array(list(product(range(2), repeat=6)))
        held = (every[:, :, None] == np.arange(2)) * items.bytes[:, None]
        fit = every[(held.sum(axis=1) <= items.free).all(axis=1)]
        totals = [step_seconds(evaluator, items.assignment(each).footprint(problem)) for each in fit]
        found = find_planner(word).plan(problem, evaluator)
        assert min(totals) <= found.total_s <= 1.1 * min(totals)
        assert found.total_s in totals


@pytest.mark.parametrize("word", WORDS)
def test_where_nothing_fits_there_is_one_sentence(word: str) -> None:
    problem = problem_of_room(0.99)
    with pytest.raises(NoPlanFound, match="found no room for every table"):
        find_planner(word).plan(problem, cost_model("analytic").compile(problem))


@pytest.mark.parametrize("word", WORDS)
def test_tables_are_split_until_they_find_room(word: str) -> None:
    """One table, and devices of five and one eighths of it: neither halves nor quarters fit, eighths do."""
    one = workload(table("a", 1000, 32, 0.0), batch_size=1)
    problem = build_problem(one, cluster(3, hbm=(80_500, 32_300, 16_100)), Space(types=("column_wise",)))
    found = find_planner(word).plan(problem, cost_model("analytic").compile(problem))
    assert len(found.footprint.width) > 4


@pytest.mark.skipif(not is_installed(), reason="needs OR-Tools")
def test_what_is_too_wide_for_cuda_is_split() -> None:
    work = workload(table("a", 5000, 64), table("wide", 2000, 4096), table("half", 2000, 1536), batch_size=64)
    problem = build_problem(work, cluster(2))
    found = find_planner("surco?steps=2").plan(problem, cost_model("analytic").compile(problem))
    assert found.footprint.width.max() <= 2048


PINNED = {"rnn?episodes=32": "11230212311202333302", "surco?steps=4": "03023021210332102131"}


@pytest.mark.parametrize("word", WORDS)
def test_the_same_plans_as_ever(word: str) -> None:
    """The first drafts, which no last bit of a processor decides."""
    problem = drawn_problem(0, 2.0)
    found = find_planner(word).plan(problem, cost_model("analytic").compile(problem))
    assert "".join(map(str, found.footprint.target)) == PINNED[word]
