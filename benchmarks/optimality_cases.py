"""Random small problems beside every plan of theirs, and random problems whose every outcome is checked.

The parts `brute` and `random` of optimality.py. Cases, the brute force and the checks are those of the tests
(tests/support/cases.py): they share no search, sum or proof with the planners.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from records import Key, Row, resumed

from recsmith.bounds import lower_bound
from recsmith.errors import Infeasible, MissingExtra, NoPlanFound, PlanMismatch, UsageError
from recsmith.planning import find_planner
from recsmith.plans import Plan, check_placements
from recsmith.problems import Space

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.cases import (
    BOTH,
    Case,
    Pick,
    all_placements,
    brute_force,
    check_plan,
    fits,
    impossible,
    large_case,
    legal,
    make_case,
    medium_case,
    random_placements,
    seeded,
    small_case,
    under,
)

MOST_PLANS = 300_000  # of a brute force
SHAPES = ((2, 1), (2, 1), (3, 1), (3, 1), (1, 2), (1, 3))  # (ranks a host, hosts)
UNSPLIT = Space(types=("table_wise", "row_wise", "data_parallel"))
NEAR, SAME = 0.01, 1e-6  # relative: a good plan, and the best but for rounding
LARGE_EVERY = 10  # one in so many random cases has up to forty tables
TRIES = 200  # random plans against a claim that there is none
WITNESSES = ("cost_greedy", "size_greedy", "random")  # planners against it
ASKED = {"bound": "bound above the optimum", "false": "infeasible, though there is a plan",
         "lost": "not found, though there is a plan", "wrong": "an invalid plan, or one below the optimum",
         "far": "over 1 % above the optimum", "off": "not the optimum"}  # fmt: skip
IN_TABLE = ("bound", "false", "lost", "wrong")


def brute(number: int, seed: int, exact: bool, output: str | None, jobs: int) -> None:
    """`auto`, and `exact`, on small problems whose every plan is listed."""
    planners = ("auto", "exact") if exact else ("auto",)
    for planner in planners:
        find_planner(planner)  # an unknown name is an error now, not later in every case
    keys = [("brute", model, each, *planners) for each in range(seed, seed + number) for model in BOTH]
    rows = list(resumed(brute_row, keys, output, jobs))
    print("| cost model | planner | cases | with a plan | optimum found | within 1 % | worst | "
          f"{' | '.join(ASKED[name] for name in IN_TABLE)} |\n|{'---|' * 11}")  # fmt: skip
    for model in BOTH:
        for planner in planners:
            _print_brute(model, planner, [row for row in rows if row["key"][1] == model])
    for planner in planners:
        for name, words in ASKED.items():
            missed = sorted((row["key"][1], row["key"][2]) for row in rows if name in row[planner]["faults"])
            if missed:
                print(f"\n{planner}: {words}: {', '.join(f'{model} {each}' for model, each in missed)}", end="")
    print()


def brute_row(key: Key) -> Row:
    """One case: the optimum, and what each planner makes of it."""
    _, model, seed, *planners = key
    case = brute_case(seed, model)
    least = brute_force(case).least_s
    sizes = {"tables": len(case.workload.tables), "ranks": case.cluster.world_size, "least": least}
    return {**sizes, **{planner: _beside(case, planner, least) for planner in planners}}


def brute_case(seed: int, model: str) -> Case:
    """Up to five tables of dims up to 16 in any space, or up to seven that stay whole; on two or three ranks.

    Of cases drawn for a seed, the first that is small enough to list.
    """
    pick = seeded(seed)
    while True:
        case = _whole(pick) if pick((True, False)) else make_case(
            pick, counts=(2, 3, 4, 5), dims=(4, 8, 12, 16), shapes=SHAPES
        )  # fmt: skip
        if np.prod([float(len(placements)) for placements in all_placements(case).values()]) <= MOST_PLANS:
            return under(pick, case, (model,))


def _whole(pick: Pick) -> Case:
    case = make_case(pick, counts=(5, 6, 7), dims=(4, 16, 64, 128), shapes=SHAPES)
    return legal(replace(case, space=UNSPLIT, constraints=replace(case.constraints, rules=())))


def _beside(case: Case, planner: str, least: float | None) -> Row:
    """The outcome of a planner, its gap to the optimum, and its faults (names of ASKED)."""
    bound_s = lower_bound(case.evaluator).bound.value_s
    faults = ["bound"] if least is not None and bound_s is not None and share_above(bound_s, least) > 1e-9 else []
    try:
        found = case.plan(planner).plan
    except (Infeasible, NoPlanFound) as error:
        fault = "false" if isinstance(error, Infeasible) else "lost"
        faults += [fault] if least is not None else []
        return {"outcome": type(error).__name__, "gap": None, "faults": faults}
    except (MissingExtra, UsageError) as error:  # OR-Tools is not there, or the case is too large for planner exact
        return {"outcome": type(error).__name__, "gap": None, "faults": faults}
    gap = None if least is None else share_above(found.cost.total_s, least)
    return {"outcome": "plan", "gap": gap, "faults": sorted({*faults, *_faults(case, found, least, gap)})}


def _faults(case: Case, found: Plan, least: float | None, gap: float | None) -> list[str]:
    if least is None or gap is None or gap < -1e-9 or not is_valid(case, found):
        return ["wrong"]
    above = found.bound.value_s is not None and share_above(found.bound.value_s, least) > 1e-9
    faults = ["bound"] if above else []
    return faults + [name for name, limit in (("far", NEAR), ("off", SAME)) if gap > limit]


def is_valid(case: Case, found: Plan) -> bool:
    """Whether a plan is one of its case: complete, legal and within memory."""
    try:
        check_plan(case, found)
    except (AssertionError, PlanMismatch):
        return False
    return True


def share_above(total: float, least: float) -> float:
    """By which share of the least a total is above it."""
    return total / least - 1 if least else float(total > 0)


def _print_brute(model: str, planner: str, rows: Sequence[Row]) -> None:
    outcomes = Counter(row[planner]["outcome"] for row in rows)
    answered = [row for row in rows if row[planner]["outcome"] in ("plan", "Infeasible", "NoPlanFound")]
    gaps = [row[planner]["gap"] for row in answered if row[planner]["gap"] is not None]
    faults = Counter(name for row in answered for name in row[planner]["faults"])
    possible = sum(row["least"] is not None for row in answered)
    shares = [sum(gap <= limit for gap in gaps) / max(possible, 1) for limit in (SAME, NEAR)]
    refused = [f"{outcomes[name]} {name}" for name in outcomes if name in ("MissingExtra", "UsageError")]
    cells = [model, planner, ", ".join([str(len(answered)), *refused]), str(possible)]
    cells += [*(f"{share:.1%}" for share in shares), f"{max(gaps, default=0):+.2%}"]
    print(f"| {' | '.join([*cells, *(str(faults[name]) for name in IN_TABLE)])} |")


def random(number: int, first: int, output: str | None, jobs: int) -> None:
    """Every outcome of `auto` on random problems, checked."""
    seen: Counter[tuple[str, str]] = Counter()
    seeds: dict[str, list[int]] = {}
    for row in resumed(random_row, [("random", seed) for seed in range(first, first + number)], output, jobs):
        seen[row["kind"], row["outcome"]] += 1
        seeds.setdefault(row["outcome"], []).append(row["key"][1])
    outcomes = ("plan", "invalid plan", "infeasible", "infeasible, not confirmed", "false infeasible", "not found",
                "not found, though there is a plan", "not found, and impossible")  # fmt: skip
    print(f"seeds {first} to {first + number - 1}\n\n| cases | all | {' | '.join(outcomes)} |\n|{'---|' * 10}")
    for kind in ("small", "medium", "large"):
        counts = [seen[kind, outcome] for outcome in outcomes]
        print(f"| {kind} | {sum(counts)} | {' | '.join(map(str, counts))} |")
    for outcome in outcomes:
        if outcome in seeds and outcome not in ("plan", "infeasible", "not found"):
            print(f"\n{outcome}: seeds {', '.join(map(str, sorted(seeds[outcome])))}", end="")
    print()


def random_row(key: Key) -> Row:
    """One case: what came out, and whether it is so."""
    seed = key[1]
    pick = seeded(seed)
    kind = "large" if seed % LARGE_EVERY == 0 else ("small", "medium")[seed % 2]
    make = {"small": partial(small_case, models=BOTH), "medium": partial(medium_case, models=BOTH), "large": large_case}
    case = make[kind](pick)
    case = under(pick, case, BOTH) if kind == "large" else case
    return {"kind": kind, "model": case.cost_model, "outcome": _outcome(case, pick)}


def _outcome(case: Case, pick: Pick) -> str:
    try:
        found = case.plan().plan
    except Infeasible:
        if _witness(case, pick):
            return "false infeasible"
        return "infeasible" if impossible(case) else "infeasible, not confirmed"
    except NoPlanFound:
        if _witness(case, pick):
            return "not found, though there is a plan"
        return "not found, and impossible" if impossible(case) else "not found"
    return "plan" if is_valid(case, found) else "invalid plan"


def _witness(case: Case, pick: Pick) -> bool:
    """Whether some planner, or one of many random plans, fits after all."""
    for name in WITNESSES:
        try:
            find_planner(name).plan(case.problem, case.evaluator)
        except NoPlanFound:
            continue
        return True
    return any(_stands(case, pick) for _ in range(TRIES))


def _stands(case: Case, pick: Pick) -> bool:
    placements = random_placements(pick, case)
    try:
        check_placements(placements, case.workload, case.cluster)
    except PlanMismatch:
        return False
    return fits(case, placements)
