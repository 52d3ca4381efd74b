"""Asks planners for pinned, partial and replanned plans, and checks what they keep: docs/constraints.md.

    python benchmarks/pinned_plans.py --count 10000 --jobs 4       # --seed N for other cases
    python benchmarks/pinned_plans.py --count 100 --jobs 1

A case is a plan drawn at random, whose pieces are in any order of columns, and constraints that it keeps, so that there
is always a plan. It is planned anew under the constraints by the quick planners and one of the others (pinned), planned
with tables pinned to the drawn plan and others new (partial), and replanned for changed tables within a limit of bytes
(replanned). Every plan is judged as its file has it, by a check that was written from docs/constraints.md and asks
nothing of the sources (tests/support/pinned.py):
  plans     kept everything        broken    broke a constraint
  moved     moved more bytes than was allowed, or other ones than was said
  refused   proved to have no plan, or none was found
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
from support.pinned import Drawn, broken, drawn_plan, moved_bytes, with_other_tables

import recsmith
from recsmith.costs import cost_model
from recsmith.errors import RecSmithError
from recsmith.planning import find_planner, make_plan
from recsmith.plans import Plan, plan_to_raw
from recsmith.problems import build_problem

QUICK = ("cost_greedy", "size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy", "random", "ldm")
SLOW = ("auto", "neuroshard", "dreamshard", "autoshard", "surco?steps=4", "rnn?episodes=32", "exact")
MODELS = ("analytic", "torchrec", "torchrec", "torchrec")  # bounds of `analytic` take most of the time
MOVED = ("0%", "1%", "5%", "30%", "100%")
BAD = ("broken", "moved")
AT_ONCE = 200  # cases between two looks at the count


Outcome = tuple[str, str, str]  # (kind of plan, planner, what became of it)


def case(seed: int) -> list[Outcome]:
    """What becomes of one case."""
    warnings.simplefilter("ignore")
    drawn, model = drawn_plan(seed), MODELS[seed % len(MODELS)]
    slow, quick = SLOW[seed % len(SLOW)], QUICK[seed % len(QUICK)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        made = _planned(drawn.plan.workload, drawn.plan, _write(folder, drawn.limits), slow, model)
        found = [("pinned", slow, _judged(made, drawn.limits))]
        found += [("pinned", each, outcome) for each, outcome in pinned(drawn, folder, model)]
        found.append(("partial", quick, partial(drawn, folder, quick, model, seed)))
        found.append(("replanned", quick, replanned(drawn, made, folder, quick, seed)))
    return found


def pinned(drawn: Drawn, folder: Path, model: str) -> Iterator[tuple[str, str]]:
    """Plans of the quick planners under the constraints of the case, for one evaluator that knows its bound."""
    limits = recsmith.load_constraints(_write(folder, drawn.limits))
    evaluator = cost_model(model).compile(build_problem(drawn.plan.workload, drawn.plan.cluster, constraints=limits))
    for planner in QUICK:
        try:
            solution = find_planner(planner).plan(evaluator.problem, evaluator)
        except RecSmithError:
            yield planner, "refused"
            continue
        made = make_plan(evaluator, solution.footprint, planner=planner, cost_model=model)
        yield planner, _judged(made, drawn.limits)


def partial(drawn: Drawn, folder: Path, planner: str, model: str, seed: int) -> str:
    """A plan of other tables, most of which are pinned to the drawn plan."""
    old, names = drawn.raw, [each["table"] for each in drawn.raw["placements"]]
    some = [{"plan": "old.json", "but": [names[seed % len(names)]]}, {"plan": "old.json", "tables": ["t[0-4]"]}]
    limits = {"schema": "recsmith/constraints/1", "pin_to": [some[seed % 2]]}
    (folder / "old.json").write_text(json.dumps(old), "utf-8")
    made = _planned(with_other_tables(drawn, seed), drawn.plan, _write(folder, limits), planner, model)
    return _judged(made, limits, old)


def replanned(drawn: Drawn, made: Plan | None, folder: Path, planner: str, seed: int) -> str:
    """The plan under constraints replanned for other tables, or the drawn plan for the same ones under constraints."""
    random = np.random.default_rng(seed)
    limit = str(random.choice(MOVED))
    given = None if made is not None and random.random() < 0.6 else _write(folder, drawn.limits)
    old = made if made is not None and given is None else drawn.plan
    work = with_other_tables(drawn, seed) if given is None else drawn.plan.workload
    try:
        found = recsmith.replan(old, work, max_moved=limit, planner=planner, constraints=given)
    except RecSmithError:
        return "refused"
    raw = plan_to_raw(found.result.plan)
    moved = moved_bytes(plan_to_raw(old), raw)
    if moved != found.moved_bytes or moved > found.staying_bytes * float(limit[:-1]) / 100:
        return "moved"
    return "broken" if broken(raw, drawn.limits) else "plans"


def _planned(work: Any, old: Plan, limits: str, planner: str, model: str) -> Plan | None:
    iterations = 2 if planner == "exact" else None
    try:
        return recsmith.plan(
            work, old.cluster, planner=planner, cost_model=model, constraints=limits, iterations=iterations
        ).plan
    except RecSmithError:
        return None


def _judged(made: Plan | None, limits: dict[str, Any], old: dict[str, Any] | None = None) -> str:
    if made is None:
        return "refused"
    return "broken" if broken(plan_to_raw(made), limits, old) else "plans"


def _write(folder: Path, limits: dict[str, Any]) -> str:
    (folder / "limits.json").write_text(json.dumps(limits), "utf-8")
    return str(folder / "limits.json")


def main() -> None:
    """Count outcomes until enough plans were checked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000, help="plans to check")
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    kinds, planners, plans = Counter[tuple[str, str]](), Counter[tuple[str, str]](), 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for first in count(options.seed, AT_ONCE):
            for seed, outcomes in enumerate(pool.map(case, range(first, first + AT_ONCE)), first):
                for kind, planner, outcome in outcomes if plans < options.count else ():
                    kinds[kind, outcome] += 1
                    planners[planner, outcome] += 1
                    plans += outcome != "refused"
                    if outcome in BAD:
                        print(f"seed {seed} {kind} {planner}: {outcome}", flush=True)
            if plans >= options.count:
                break
    bad = sum(number for (_, outcome), number in kinds.items() if outcome in BAD)
    print(f"{plans} plans, {bad} broken")
    for counted in (kinds, planners):
        for each in sorted({key for key, _ in counted}):
            some = sorted((outcome, number) for (key, outcome), number in counted.items() if key == each)
            print(f"{each:20} " + ", ".join(f"{outcome} {number}" for outcome, number in some))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
