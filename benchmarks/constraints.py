"""Asks planners for plans under random constraints, and brute force whether there are any.

    python benchmarks/constraints.py --count 1000                 # docs/constraints.md
    python benchmarks/constraints.py --count 50 --seed 7 --planners exact

A case has two to four tables on two to four ranks and one to four constraints. It is counted as
  planned   the planner's own plan keeps the constraints; proved: 'Infeasible', and brute force agrees
  helped    the planner found none, and the search that asks only for constraints did
  broken    a plan that breaks a constraint, or does not fit the memory
  missed    brute force has a plan, the planner none
  false     'Infeasible', though brute force has a plan
  open      brute force has none, and the planner did not prove it
  loose     the constraints said to contradict each other do not, or still do once one is left out
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.cases import Case, fits, seeded
from support.constrained import constrained_case, is_small, keeps, some_plan

from recsmith.errors import Infeasible, NoPlanFound, UsageError
from recsmith.planning import PLANNERS
from recsmith.planning.contradictions import Question, find_conflict

ALWAYS = ("auto", "cost_greedy")
BAD = ("broken", "missed", "false", "open", "loose", "refused")


def outcome(case: Case, planner: str, exists: bool) -> str:
    """What becomes of a case."""
    try:
        made = case.plan(planner)
    except Infeasible:
        return "false" if exists else "proved"
    except NoPlanFound:
        return "missed" if exists else "open"
    except UsageError as error:
        print(f"  {planner}: {str(error)[:200]}")
        return "refused"
    if not (keeps(case, made.plan.placements) and fits(case, made.plan.placements)):
        return "broken"
    return "helped" if any("keeps the constraints" in words for words in made.left_out) else "planned"


def conflict_of(case: Case) -> str:
    """Whether the conflicting set that is named is one, and a minimal one, by brute force."""
    found = find_conflict(Question(case.workload, case.cluster, case.space), case.constraints)
    if found is None:
        return (
            "none without constraints"
            if not some_plan(replace(case, constraints=case.constraints.only(())))
            else "loose"
        )
    alone = some_plan(replace(case, constraints=case.constraints.only(found.parts)))
    without = [
        some_plan(replace(case, constraints=case.constraints.only(tuple(p for p in found.parts if p != part))))
        for part in found.parts
    ]
    return "minimal" if not alone and all(without) and not found.open else "loose"


def main() -> None:
    """Count outcomes, planner by planner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--planners", help="with commas between; auto, cost_greedy and another one in turn by default")
    words = parser.parse_args()
    others = [name for name in PLANNERS if name not in ALWAYS]
    counts: dict[str, Counter[str]] = {}
    begun, asked, seed = time.process_time(), 0, words.seed
    conflicts, sides = Counter[str](), Counter[bool]()
    while asked < words.count:
        case, seed = constrained_case(seeded(seed)), seed + 1
        if not is_small(case):
            continue
        exists, asked = some_plan(case), asked + 1
        sides[exists] += 1
        chosen = words.planners.split(",") if words.planners else [*ALWAYS, others[asked % len(others)]]
        for planner in chosen:
            made = outcome(case, planner, exists)
            counts.setdefault(planner, Counter())[made] += 1
            if made in BAD:
                print(f"seed {seed - 1} {planner}: {made}", flush=True)
        if not exists:
            made = conflict_of(case)
            conflicts[made] += 1
            if made in BAD:
                print(f"seed {seed - 1}: conflict {made}", flush=True)
    print(f"{asked} cases, {sides[True]} with a plan, {time.process_time() - begun:.0f} CPU seconds")
    for planner, some in counts.items():
        print(f"{planner:20} " + ", ".join(f"{name} {n}" for name, n in sorted(some.items())))
    print("conflicts            " + ", ".join(f"{name} {n}" for name, n in sorted(conflicts.items())))


if __name__ == "__main__":
    main()
