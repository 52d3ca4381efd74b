"""Many random problems: every outcome is a valid plan, 'not found', or 'infeasible' with a true proof.

`CASES=3000 pytest tests/planners/test_soak.py` runs more of them; so does benchmarks/optimality.py random.
"""

import os

import pytest
from support.cases import check_plan, impossible, large_case, seeded

from recsmith.errors import Infeasible, NoPlanFound
from recsmith.planning import PLANNERS
from recsmith.planning.simulate import simulate

CASES = int(os.environ.get("CASES", "64"))
CHUNKS = 8
FIRST_SEED = 10_000


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_outcome_is_valid(chunk: int) -> None:
    names = [name for name in PLANNERS if name != "exact"]  # for problems smaller than these
    for seed in range(FIRST_SEED + chunk, FIRST_SEED + CASES, CHUNKS):
        case = large_case(seeded(seed))
        planner = "auto" if seed % 4 else names[seed // 4 % len(names)]
        try:
            result = case.plan(planner, seed=seed)
        except Infeasible:
            assert impossible(case)
        except NoPlanFound:
            assert not impossible(case)
        else:
            check_plan(case, result.plan)
            assert simulate(result.plan) == result.plan
