"""Every registered planner keeps the contract; a new one is covered as soon as it is registered."""

import os
import subprocess
import sys

import pytest
from planners.contract import ALIKE, cases_of, contract_cases, planners_here
from support.cases import check_plan
from support.shared_problems import BuiltOnce

from recsmith.planning import find_planner
from recsmith.plans import Plan
from recsmith.testing.planners import PlannerCase, PlannerContract

PLANNERS_HERE = {planner: find_planner(planner) for planner in planners_here()}
DIGESTS = """
from support.quick_plans import tighten
tighten(0)
from planners.contract import contract_cases, digest
for case in list(contract_cases())[{cases}]:
    print(*(digest(case, planner, seed=1) for planner in {planners}))
"""


@pytest.fixture(scope="module")
def built_once() -> BuiltOnce:
    return BuiltOnce()


class TestRegisteredPlanners(PlannerContract):
    @pytest.fixture(autouse=True, params=planners_here())
    def _each(self, request: pytest.FixtureRequest, built_once: BuiltOnce) -> None:
        self.planner, self.cases = PLANNERS_HERE[request.param], cases_of(request.param)
        built_once.use_for_laws(request)

    def check(self, case: PlannerCase, made: Plan) -> None:
        super().check(case, made)
        check_plan(contract_cases()[case], made)


@pytest.mark.parametrize("cases", [slice(0, None, 12), pytest.param(slice(0, None, 4), marks=pytest.mark.soak)])
def test_neither_hash_seed_nor_threads_change_a_plan(cases: slice) -> None:
    planners = [planner for planner in planners_here() if planner not in ALIKE]
    running = [_print_digests(planners, cases, hash_seed, threads) for hash_seed, threads in (("0", "1"), ("1", "8"))]
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert len(printed[0].split()) == len(list(contract_cases())[cases]) * len(planners)
    assert printed[0] == printed[1]


def _print_digests(planners: list[str], cases: slice, hash_seed: str, threads: str) -> subprocess.Popen[str]:
    counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    environment = {**os.environ, **counts, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    program = DIGESTS.format(planners=planners, cases=f"::{cases.step}")
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
