"""Random problems as large as real ones: every outcome is a valid plan, 'not found', or 'infeasible' with a true proof.

A sample of them by default, a thousand with `make soak` (`CASES=3000 make soak` asks more); so does
benchmarks/optimality.py random.
"""

import os
from collections.abc import Iterable

import pytest
from support.cases import check_plan, impossible, large_case, seeded

from recsmith.errors import Infeasible, NoPlanFound
from recsmith.planning import PLANNERS
from recsmith.planning.simulate import simulate

FIRST_SEED = 10_000
# Several hosts, every kernel, up to 40 tables and 16 ranks, both accountings, sequences, all planners for large
# problems, one problem that auto finds no plan for and one that has none; none of them takes long.
SAMPLE = [FIRST_SEED + i for i in (0, 3, 4, 6, 7, 12, 13, 16, 21, 24, 28, 32, 37, 43, 47, 48, 55)]
CASES = int(os.environ.get("CASES", "1000"))
CHUNKS = 8
MORE = [range(FIRST_SEED + chunk, FIRST_SEED + CASES, CHUNKS) for chunk in range(CHUNKS)]


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(SAMPLE, id="sample"),
        *(pytest.param(chunk, marks=pytest.mark.soak, id=f"soak{chunk.start}") for chunk in MORE),
    ],
)
def test_every_outcome_is_valid(seeds: Iterable[int]) -> None:
    names = [name for name in PLANNERS if name != "exact"]  # for problems smaller than these
    outcomes: set[str] = set()
    for seed in seeds:
        case = large_case(seeded(seed))
        planner = "auto" if seed % 4 else names[seed // 4 % len(names)]
        try:
            result = case.plan(planner, seed=seed)
        except Infeasible:
            outcomes.add("infeasible")
            assert impossible(case)
        except NoPlanFound:
            outcomes.add("not found")
            assert not impossible(case)
        else:
            outcomes.add("a plan")
            check_plan(case, result.plan)
            assert simulate(result.plan) == result.plan
    assert "a plan" in outcomes
    assert seeds is not SAMPLE or outcomes == {"a plan", "not found", "infeasible"}
