"""The cases on which RecSmith's own planners keep the contract of planners."""

from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from itertools import count, islice
from typing import Any

from support.cases import BOTH, LOOSE, TIGHT, Case, impossible, medium_case, seeded, small_case

from recsmith.planning import PLANNERS
from recsmith.testing.planners import PlannerCase

MEDIUM, SMALL = 3, 8  # contract cases that no count of bytes rules out; one that it does rule out is added
PROVERS, PROVABLE = {"exact"}, 16  # planners that prove get cases of few tables times devices
WORDS = ("dreamshard?splits=4",)  # planners of another kind than the name alone
NEED_SOLVER = {"exact"}
ALIKE = {"dim_greedy", "size_greedy", "lookup_greedy", "size_lookup_greedy"}  # cost_greedy with another score
FEW_TABLES = 4  # on one device
FEW_GROUPS = 10  # every law prices every case anew, and bounds of convex models branch over fusion groups


@cache
def contract_cases() -> dict[PlannerCase, Case]:
    """Cases of every kind, under every cost model in turn: some with memory to spare, most with hardly any."""
    ruled_out = next(case for case in map(_small, count()) if impossible(case))
    every = (*_light(_medium, MEDIUM), *_light(_small, SMALL), ruled_out)
    return {PlannerCase(c.workload, c.cluster, c.space, c.constraints, c.cost_model): c for c in every}


def cases_of(planner: str) -> list[PlannerCase]:
    """The cases of a planner."""
    every = list(contract_cases())
    few = [case for case in every if len(case.workload.tables) * case.cluster.world_size <= PROVABLE]
    return few if planner in PROVERS else every[:: 3 if planner in ALIKE else 1]


def planners_here() -> list[str]:
    """The planners that run with what is installed."""
    return [*(planner for planner in PLANNERS if planner not in NEED_SOLVER or find_spec("ortools")), *WORDS]


def _light(make: Callable[[int], Case], number: int) -> Iterator[Case]:
    every = (make(seed) for seed in count())
    light = (case for case in every if _is_light(case))
    return islice((case for case in light if not impossible(case)), number)


def _is_light(case: Case) -> bool:
    """Whether its bound takes tenths of a second at most: that of many tables on one device is tightened for longer."""
    few = case.evaluator.additive or case.evaluator.groups <= FEW_GROUPS
    return few and (case.cluster.world_size > 1 or len(case.workload.tables) <= FEW_TABLES)


def _medium(seed: int) -> Case:
    return medium_case(seeded(seed), LOOSE if seed % 2 else TIGHT, (BOTH[seed // 2 % len(BOTH)],))


def _small(seed: int) -> Case:
    return small_case(seeded(seed), models=(BOTH[seed % len(BOTH)],))


def digest(case: PlannerCase, planner: str, **options: Any) -> str:
    """The digest of the plan, or the name of the error."""
    found = case.plan(planner, **options)
    return found if isinstance(found, str) else found.plan.digest
