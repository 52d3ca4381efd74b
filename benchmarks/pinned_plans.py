"""Asks planners for pinned, partial and replanned plans, and checks what they keep: docs/constraints.md.

    python benchmarks/pinned_plans.py --count 10000                # docs/reliability.md; --seed N for other cases
    python benchmarks/pinned_plans.py --count 100 --planners auto,ldm

A case is a plan drawn at random, whose pieces are in any order of columns, and constraints that it keeps, so that there
is always a plan. It is planned anew under the constraints (pinned), with tables pinned to the drawn plan and others new
(partial), and replanned for changed tables within a limit of bytes (replanned). Every plan is judged as its file has
it, by a check that was written from docs/constraints.md and asks nothing of the sources (tests/support/pinned.py):
  plans     kept everything        broken    broke a constraint
  moved     moved more bytes than was allowed, or other ones than was said
  refused   proved to have no plan, or none was found
"""

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from itertools import count, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import numpy as np
from support.pinned import Drawn, broken, drawn_plan, moved_bytes, with_other_tables

import recsmith
from recsmith.errors import RecSmithError
from recsmith.plans import Plan, plan_to_raw

QUICK = ("cost_greedy", "size_greedy", "dim_greedy", "lookup_greedy", "size_lookup_greedy", "random", "ldm")
SLOW = ("auto", "neuroshard", "dreamshard", "autoshard", "surco?steps=4", "rnn?episodes=32", "exact")
MODELS = ("analytic", "torchrec", "torchrec", "torchrec")  # bounds of `analytic` take most of the time
MOVED = ("0%", "1%", "5%", "30%", "100%")


class Counts:
    """How many plans of each kind and planner kept their constraints, and what the others did."""

    def __init__(self) -> None:
        self.kinds, self.planners = Counter[tuple[str, str]](), Counter[tuple[str, str]]()

    @property
    def plans(self) -> int:
        """Plans that were checked."""
        return sum(number for (_, outcome), number in self.kinds.items() if outcome != "refused")

    @property
    def bad(self) -> int:
        """Plans that broke something."""
        return sum(number for (_, outcome), number in self.kinds.items() if outcome in ("broken", "moved"))

    def note(self, kind: str, planner: str, outcome: str, what: str) -> None:
        """Count an outcome, and print what is bad."""
        self.kinds[kind, outcome] += 1
        self.planners[planner, outcome] += 1
        if outcome in ("broken", "moved"):
            print(f"{what} {planner}: {outcome}", flush=True)


def pinned(drawn: Drawn, folder: Path, planner: str, model: str) -> tuple[str, Plan | None]:
    """A plan under the constraints of the case, from a file."""
    made = _planned(drawn.plan.workload, drawn.plan, _write(folder, drawn.limits), planner, model)
    return _judged(made, drawn.limits), made


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
    try:
        return recsmith.plan(work, old.cluster, planner=planner, cost_model=model, constraints=limits).plan
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
    parser.add_argument(
        "--planners", help="with commas between; quick ones, and a slow one for every third, by default"
    )
    options = parser.parse_args()
    quick = options.planners.split(",") if options.planners else QUICK
    turn, slow = cycle(quick), cycle(() if options.planners else SLOW)
    counts, begun = Counts(), time.process_time()
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as name:
        for seed in count(options.seed):
            if counts.plans >= options.count:
                break
            drawn, model = drawn_plan(seed), MODELS[seed % len(MODELS)]
            planners = [next(turn), next(turn) if options.planners or seed % 3 else next(slow), next(turn)]
            outcome, made = pinned(drawn, Path(name), planners[0], model)
            counts.note("pinned", planners[0], outcome, f"seed {seed} pinned")
            outcome = partial(drawn, Path(name), planners[1], model, seed)
            counts.note("partial", planners[1], outcome, f"seed {seed} partial")
            outcome = replanned(drawn, made, Path(name), planners[2], seed)
            counts.note("replanned", planners[2], outcome, f"seed {seed} replanned")
    print(f"{counts.plans} plans, {counts.bad} broken, {time.process_time() - begun:.0f} CPU seconds")
    for counted in (counts.kinds, counts.planners):
        for each in sorted({key for key, _ in counted}):
            outcomes = sorted((outcome, number) for (key, outcome), number in counted.items() if key == each)
            print(f"{each:20} " + ", ".join(f"{outcome} {number}" for outcome, number in outcomes))
    sys.exit(bool(counts.bad))


if __name__ == "__main__":
    main()
