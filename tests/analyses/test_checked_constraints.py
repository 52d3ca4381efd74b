"""Bounds by constraints have certificates, which prove nothing false."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.cases import BOTH, Case, all_placements, cluster, seeded, table, workload
from support.constrained import constrained_case, least_s
from support.proofs import assert_none_is_false

from recsmith.analyses.certificates import certified_tree
from recsmith.analyses.certified_parts import parts_by_constraints
from recsmith.analyses.checking import proven_seconds
from recsmith.bounds import lower_bound
from recsmith.bounds.constraint_bounds import confined_bound, counted_bound
from recsmith.bounds.plane_mixes import tightest_linear_bound
from recsmith.errors import CorruptFile, UsageError
from recsmith.plans.proofs import PlacesProof, ProofPart, ProofTree, RanksProof
from recsmith.problems import Apart, Constraints, PerRank, Pin, Space, TableRule, Together
from recsmith.workloads import Table

WORK = 30_000_000  # numbers of a search: a few parts
BEYOND = 1.5  # times the best plan: proofs look at plans that take up to so much, so that a false one would show
MOST_PLANS = 600  # of a case, each of which is priced
EQUAL = tuple(table(f"t{i}", 400_000, 64, 40.0) for i in range(8))
UNEQUAL = tuple(table(f"t{i}", 400_000, 64, 40.0 * (i + 1)) for i in range(4))
SPLIT = Space(types=("table_wise", "column_wise", "row_wise"), widths="any")


def ranks_case(model: str, *rules: TableRule) -> Case:
    return Case(workload(*EQUAL, batch_size=2048), cluster(4), constraints=Constraints(rules=rules), cost_model=model)


def places_case(
    model: str, tables: Sequence[Table] = UNEQUAL, local: int = 5, hosts: int = 1, **constraints: object
) -> Case:
    given = Constraints(**constraints)  # pyright: ignore[reportArgumentType]
    return Case(workload(*tables, batch_size=2048), cluster(local, hosts), SPLIT, constraints=given, cost_model=model)


PINS = tuple(TableRule(tables=f"t{i}", pin=Pin(sharding_type="table_wise", ranks=(1,))) for i in range(6))
CASES = {
    "pins": lambda model: ranks_case(model, *PINS),
    "ranks": lambda model: ranks_case(model, TableRule(tables="t[0-5]", ranks=(1,))),
    "apart": lambda model: places_case(model, apart=(Apart(tables=("t*",)),)),
    "tables": lambda model: places_case(model, per_rank=(PerRank(max_tables=1),)),
    "shards": lambda model: places_case(model, per_rank=(PerRank(max_shards=1),)),
}  # fmt: skip


@pytest.mark.parametrize("model", BOTH)
@pytest.mark.parametrize("name", CASES)
def test_what_constraints_prove_is_certified(name: str, model: str):
    case = CASES[name](model)
    printed = lower_bound(case.evaluator).bound.value_s
    free = lower_bound(replace(case, constraints=Constraints()).evaluator).bound.value_s
    assert printed is not None
    assert free is not None
    assert printed > 1.01 * free
    tree = certified_tree(case.evaluator, 2 * printed, WORK)
    assert tree.seconds >= printed * (1 - 1e-6)
    by = tree.parts[0].ranks if name in ("pins", "ranks") else tree.parts[0].places
    assert by is not None or tree.seconds > printed
    assert proven_seconds(case.evaluator, tree) == tree.seconds


@pytest.mark.parametrize("seeds", [range(200, 240), pytest.param(range(240, 2500), marks=pytest.mark.soak)])
def test_no_certificate_proves_more_than_the_best_plan_that_keeps_the_constraints(seeds: Sequence[int]):
    """Also by ranks, places, prices and seconds that nobody would ask about."""
    asked = 0
    for seed in seeds:
        pick = seeded(seed)
        case = replace(constrained_case(pick), cost_model=pick(BOTH))
        if math.prod(map(len, all_placements(replace(case, constraints=Constraints())).values())) > MOST_PLANS:
            continue
        try:
            evaluator = case.evaluator
        except UsageError:
            continue
        best = least_s(case)
        if np.isfinite(best):
            asked += 1
            assert_none_is_false(pick, evaluator, certified_tree(evaluator, BEYOND * best, WORK), best)
    assert asked > len(seeds) / 10


def one_part(case: Case, part: ProofPart, below: float = 1.0) -> float:
    return proven_seconds(case.evaluator, ProofTree(seconds=0.0, below=below, closed=(), parts=(part,)))


def mix_of(case: Case) -> tuple[tuple[float, ...], ...]:
    planes = len(case.evaluator.planes)
    return ((1 / planes,) * planes,) * case.evaluator.groups


TWO = places_case("torchrec", UNEQUAL, 2, 1, per_rank=(PerRank(max_shards=2),))
HOSTS = places_case("torchrec", UNEQUAL[::3], 2, 2, apart=(Apart(tables=("t*",), per="host"),))


FOUND = {"two": TWO, "hosts": HOSTS, **{name: make("analytic") for name, make in CASES.items()}}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_the_checker_finds_what_the_search_for_constraints_found(case: Case):
    """Nothing less, and by formulas of its own nothing more; nor by a longer step."""
    linear = tightest_linear_bound(case.evaluator)
    for part in parts_by_constraints(case.evaluator):
        known = (counted_bound if part.ranks is None else confined_bound)(case.evaluator, linear)
        assert one_part(case, part) == pytest.approx(known, rel=1e-6)
        if part.places is not None:
            longer = replace(part.places, seconds=1.01 * part.places.seconds)
            assert one_part(case, ProofPart(places=longer)) <= known * (1 + 1e-6)


def test_fewer_ranks_than_tables_are_confined_to_prove_nothing_of_them():
    case = CASES["ranks"]("analytic")
    own, others, two = (one_part(case, ProofPart(ranks=RanksProof(ranks=ranks, mix=mix_of(case))))
                        for ranks in ((1,), (0,), (0, 1)))  # fmt: skip
    assert own > 0
    assert others == 0
    assert two == pytest.approx(own / 2, rel=1e-6)


def test_ranks_constraints_and_shares_that_are_not_there_are_refused():
    case = places_case("analytic", together=(Together(tables=("t0", "t1")),))
    mix = mix_of(case)
    wrong = {
        "rank 5": ProofPart(ranks=RanksProof(ranks=(0, 5), mix=mix)),
        "other groups": ProofPart(ranks=RanksProof(ranks=(0,), mix=mix[1:])),
        "more than 1": ProofPart(ranks=RanksProof(ranks=(0,), mix=(((1.0,) * len(mix[0]),) * len(mix)))),
        "constraint 0 .* counts no places": ProofPart(places=PlacesProof(constraint=0, price=0, seconds=0, mix=mix)),
        "constraint 9": ProofPart(places=PlacesProof(constraint=9, price=0, seconds=0, mix=mix)),
    }
    for words, part in wrong.items():
        with pytest.raises(CorruptFile, match=words):
            one_part(case, part)
    for ranks in ((), (1, 0), (0, 0), (-1,)):
        with pytest.raises(UsageError, match="which rise"):
            RanksProof(ranks=ranks, mix=mix)
    for number in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError):
            PlacesProof(constraint=0, price=number, seconds=0, mix=mix)
    with pytest.raises(UsageError, match="several of both, or none"):
        ProofPart(split="group", ranks=RanksProof(ranks=(0,), mix=mix))
