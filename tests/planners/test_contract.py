"""Every registered planner keeps the contract; a new one is covered as soon as it is registered."""

import os
import subprocess
import sys

import pytest
from planners.contract import PlannerContract, contract_cases, planners_here

DIGESTS = """
from planners.contract import contract_cases, digest, planners_here
for case in contract_cases()[::2]:
    print(*(digest(case, planner, seed=1) for planner in planners_here()))
"""


class TestRegisteredPlanners(PlannerContract):
    @pytest.fixture(params=planners_here())
    def planner(self, request: pytest.FixtureRequest) -> str:
        return request.param


def test_neither_hash_seed_nor_threads_change_a_plan() -> None:
    settings = [("0", "1"), ("1", "2"), ("2", "8")]
    running = [_print_digests(hash_seed, threads) for hash_seed, threads in settings]
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(printed[0].split()) == len(contract_cases()[::2]) * len(planners_here())
    assert printed[0] == printed[1] == printed[2]


def _print_digests(hash_seed: str, threads: str) -> subprocess.Popen[str]:
    counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    environment = {**os.environ, **counts, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", DIGESTS], env=environment, stdout=subprocess.PIPE, text=True)
