"""Certificates that tell two hosts apart prove what the search found, and nothing false."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from support.bounds import total_of
from support.cases import Case, brute_force, cluster, fits, seeded, table, workload
from support.two_hosts import Took, drawn_mix, drawn_proof, drawn_tree, on_two_hosts, searched, two_by_two

from recsmith._compiled import compiled
from recsmith._types import Floats
from recsmith.analyses import certificates
from recsmith.analyses.certificates import certified_tree, check_certificate, tree_of
from recsmith.analyses.checked_hosts import all_of, host_seconds, told_apart
from recsmith.analyses.checked_prices import Plans
from recsmith.analyses.checked_statement import NO_PLAN, LevelSeconds, Statement
from recsmith.analyses.checking import proven_seconds
from recsmith.bounds.host_prices import CODE
from recsmith.errors import CorruptFile, UsageError
from recsmith.plans import Placement
from recsmith.plans.certificates import Certificate, save_certificate
from recsmith.plans.proofs import HostsProof, HostWorth, ProofPart, ProofTree, StepWorth
from recsmith.problems import Constraints, PerRank, Space, TableRule

WORK = 60_000_000  # numbers of a search: a few dozen parts
BEYOND = 1.5  # times the best plan: proofs look at plans that take up to so much, so that a false one would show
needs_compiled = pytest.mark.skipif(compiled(CODE) is None, reason="built without a C compiler")


# --- leaves, against plans that they hold -----------------------------------------------------------------------------


def mix_as_proof(mix: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, mix.tolist()))


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 3000), marks=pytest.mark.soak)])
def test_no_leaf_proves_more_than_a_plan_takes_that_it_holds(seeds: range) -> None:
    """Whatever the plan, the ranges and the multipliers."""
    asked = 0
    for seed in seeds:
        draw, (case, placements) = np.random.default_rng(seed), on_two_hosts(seeded(seed))
        if not fits(case, placements):
            continue
        statement, total = Statement(case.evaluator), total_of(case, placements)
        mix = told_apart(statement, mix_as_proof(drawn_mix(draw, statement)))
        took, asked = Took.by(case, placements, statement, mix), asked + 1
        for _ in range(12):
            plans = took.plans(draw, total, len(case.workload.tables))
            for _ in range(6):
                assert host_seconds(statement, plans, drawn_proof(draw, statement), mix) <= total * (1 + 1e-9)
    assert asked > len(seeds) / 2


OF_A_HOST, OF_A_RANK = ("table_row_wise",), ("table_wise",)


@cache
def level() -> tuple[Case, Statement, Floats, Took, float]:
    """A plan whose ranks all take as long: a table of each host, and one of each rank that is less than half of it."""
    covering = [table(f"h{i}", 400_000, 64, 80.0) for i in range(2)]
    own = [table(f"r{i}", 100_000, 64, 12.0) for i in range(4)]
    rules = (TableRule(tables="h*", sharding_types=OF_A_HOST), TableRule(tables="r*", sharding_types=OF_A_RANK))
    case = Case(workload(*covering, *own, batch_size=2048), cluster(2, 2), Space(kernels=("fused",)),
                Constraints(rules=rules), "analytic")  # fmt: skip
    placements = [
        *(Placement(table=f"h{i}", sharding_type=OF_A_HOST[0], compute_kernel="fused", ranks=(2 * i, 2 * i + 1))
          for i in range(2)),
        *(Placement(table=f"r{i}", sharding_type=OF_A_RANK[0], compute_kernel="fused", ranks=(i,)) for i in range(4)),
    ]  # fmt: skip
    statement = Statement(case.evaluator)
    planes = statement.ready.shape[1]
    whole = [np.flatnonzero((statement.mode == mode) & (statement.width == 64) & statement.local)[0]
             for mode in np.unique(statement.mode[statement.local])]  # fmt: skip
    mix = np.eye(planes)[np.zeros(case.evaluator.groups, dtype=int)]
    for piece in whole:  # of each group the plane by which its pieces take most
        mix[statement.group[piece]] = np.eye(planes)[statement.ready[piece].argmax()]
    took = Took.by(case, tuple(placements), statement, mix)
    return case, statement, mix, took, total_of(case, tuple(placements))


def of_level(
    one: HostWorth, other: HostWorth, *, ready: float = 0.0, covered: float = 1.0, most: float = 1.0,
    plane: int | None = None,
) -> float:  # fmt: skip
    """What is proved of plans like the level one, over what it takes; ranges begin at these shares of its seconds."""
    case, statement, mix, took, total = level()
    own = took.covered[0]
    up = 1 + 1e-13
    hosts = (covered * own / up, most * own * up)
    plans = Plans(
        (ready * took.ready, took.ready * up), (took.rest / up, took.rest * up),
        np.ones((len(case.workload.tables), case.evaluator.groups), dtype=bool), took.used, (hosts, hosts),
    )  # fmt: skip
    return float(host_seconds(statement, plans, HostsProof(hosts=(one, other), plane=plane), mix)) / total


EVEN = HostWorth(ready=1.0, rest=0.0, own=0.0)


def test_where_all_ranks_take_as_long_nothing_is_left_unproven() -> None:
    """As seconds of pieces of ranks count with the launch that only such ranks pay."""
    assert of_level(EVEN, EVEN) == pytest.approx(1.0, abs=1e-6)
    launch = level()[1].opening / level()[4]
    assert of_level(EVEN, EVEN, covered=0.0) == pytest.approx(1.0 - launch, abs=1e-6)
    assert 1.0 - launch < of_level(EVEN, EVEN, covered=0.5) < 1.0 - 1e-6


@pytest.mark.parametrize("own", [-3.0, -0.5, 0.7, 1.0, 2.5])
def test_discounts_take_off_what_ranges_of_the_hosts_add(own: float) -> None:
    """Where ranges are points, whatever they are; else as much less as ranges are wide."""
    priced = replace(EVEN, own=own)
    assert of_level(priced, priced) == pytest.approx(1.0, abs=1e-6)
    _, _, _, took, total = level()
    wide = of_level(priced, priced, most=1.2)
    lost = 0.2 * took.covered[0] / total * max(-own, 0.0)
    assert wide == pytest.approx(1.0 - lost, abs=1e-6)


def test_unlike_prices_of_hosts_send_pieces_to_the_cheaper_one() -> None:
    dear, cheap = HostWorth(ready=1.5, rest=0.0, own=0.0), HostWorth(ready=0.5, rest=0.0, own=0.0)
    _, _, _, took, total = level()
    assert of_level(dear, cheap) == of_level(cheap, dear)
    assert of_level(dear, cheap) == pytest.approx(1.0 - 0.5 * took.ready / total, abs=1e-6)
    assert of_level(replace(dear, rest=1.0), replace(dear, rest=1.0)) <= 1 + 1e-9


@pytest.mark.parametrize("steps", [0.5, 1.0])
def test_whole_steps_of_width_count_on_each_host(steps: float) -> None:
    _, statement, _, took, _ = level()
    rest = StepWorth(seconds=took.rest * steps, worth=0.5)
    stepped = replace(EVEN, rest=0.5, steps=rest)
    assert of_level(stepped, stepped) <= 1 + 1e-9
    alone = statement.rest[statement.local & (statement.rest > 0)].min()
    fine = replace(EVEN, rest=0.5, steps=StepWorth(seconds=float(alone) / 1000, worth=0.5))
    assert of_level(fine, fine) == pytest.approx(1.0, abs=2e-3)


def test_pieces_that_are_too_long_for_a_covered_host_are_not_there() -> None:
    """Those of ranks by what covers the host at least, and a launch; those of hosts by what does at most."""
    case, statement, mix, took, _ = level()
    tables = np.ones((len(case.workload.tables), case.evaluator.groups), dtype=bool)
    proof = HostsProof(hosts=(EVEN, EVEN))

    def of(covered: tuple[float, float], ready: float) -> Fraction:
        plans = Plans((0.0, ready), (0.0, 2 * took.rest), tables, took.used, (covered, covered))
        return host_seconds(statement, plans, proof, mix)

    single = statement.alone[(statement.coverage == 1) & statement.fits & statement.local].max()
    own, launch = took.covered[0], statement.opening
    room = own + launch + single
    assert of((own, 2 * own), room * (1 + 1e-6)) < NO_PLAN
    assert of((own, 2 * own), room * (1 - 1e-6)) == NO_PLAN
    assert of((0.0, 2 * own), room * (1 - 1e-6)) < NO_PLAN
    assert of((0.0, own * (1 + 1e-6)), 2 * took.ready) < NO_PLAN
    assert of((0.0, own * (1 - 1e-6)), 2 * took.ready) == NO_PLAN
    assert of((own, 0.9 * own), 2 * took.ready) == NO_PLAN
    assert of((2.1 * took.ready, 3 * took.ready), 2 * took.ready) == NO_PLAN  # no host is covered for longer than that


def test_the_first_host_is_covered_for_no_longer_than_the_second() -> None:
    case, statement, mix, took, _ = level()
    tables = np.ones((len(case.workload.tables), case.evaluator.groups), dtype=bool)
    own, proof = took.covered[0], HostsProof(hosts=(EVEN, EVEN))

    def of(*hosts: tuple[float, float]) -> Fraction:
        plans = Plans((0.0, 3 * took.ready), (0.0, 2 * took.rest), tables, took.used, (hosts[0], hosts[1]))
        return host_seconds(statement, plans, proof, mix)

    assert of((0.0, own), (0.5 * own, 2 * own)) < NO_PLAN
    assert of((1.1 * own, 2 * own), (0.0, own)) == NO_PLAN
    assert of((0.0, 5 * own), (0.0, 0.9 * own)) == NO_PLAN  # neither may then hold a table that covers it
    assert of((1.5 * own, 2 * own), (0.0, 2 * own)) == of((1.5 * own, 2 * own), (1.5 * own, 2 * own))


# --- whole trees, against all plans -----------------------------------------------------------------------------------


@needs_compiled
@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 3000), marks=pytest.mark.soak)])
def test_no_tree_that_tells_hosts_apart_proves_more_than_the_best_of_all_plans_takes(seeds: Sequence[int]) -> None:
    """Also with multipliers, ranges and splits that no search would make; and the search's tree proves its bound."""
    asked = found = 0
    for seed in seeds:
        case, draw = two_by_two(seed), np.random.default_rng(seed)
        least = brute_force(case).least_s
        hosts = None if least is None else searched(case, BEYOND * least, WORK)
        if least is None or hosts is None:
            continue
        asked += 1
        tree = tree_of(case.evaluator, hosts, BEYOND * least)
        found += any(part.hosts is not None for part in tree.parts)
        assert min(hosts.bound, tree.below) * (1 - 1e-6) <= tree.seconds <= least * (1 + 1e-12)
        statement = Statement(case.evaluator)
        for _ in range(20):
            made = drawn_tree(draw, statement, tree, int(draw.choice([0, 1, 2, 4])))
            assert proven_seconds(case.evaluator, made) <= least * (1 + 1e-12)
    assert asked > len(seeds) / 3
    assert found > asked / 2


# --- certificates, and damage -----------------------------------------------------------------------------------------


LONG = (300.0, 220.0, 160.0, *[100.0] * 6)


@cache
def long_bags() -> Case:
    tables = [table(f"t{i}", 1_000_000, 64, length) for i, length in enumerate(LONG)]
    return Case(workload(*tables, batch_size=4096), cluster(4, 2), cost_model="analytic")


@cache
def certificate() -> Certificate:
    """Of parts that go on together, at several places of the tree."""
    case = long_bags()
    made = case.plan(iterations=20).plan
    below = BEYOND * made.cost.total_s
    hosts = searched(case, below, 10 * WORK)
    assert hosts is not None
    return Certificate(plan=made, tree=tree_of(case.evaluator, hosts, below))


@needs_compiled
def test_a_certificate_that_tells_hosts_apart_is_written_and_proved_again(tmp_path: Path) -> None:
    made = certificate()
    assert made.tree.apart
    assert sum(map(has_hosts, made.tree.parts)) > 10
    assert sum(map(goes_on, made.tree.parts)) > 10
    save_certificate(made, tmp_path / "proof.json")
    assert check_certificate(tmp_path / "proof.json") == made


@needs_compiled
def test_plans_are_certified_so_where_that_proves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fillings of a rank prove more of these few tables, so they are left out here."""
    monkeypatch.setattr(import_module("recsmith.bounds.lower_bound"), "filled",
                        lambda _, searches, *__: max(searches, key=lambda each: each.bound))  # fmt: skip
    evaluator, total = long_bags().evaluator, certificate().plan.cost.total_s
    made = certified_tree(evaluator, total, 10 * WORK)
    assert made.apart
    monkeypatch.setattr(certificates, "printed_reach", lambda *_: None)
    without = certified_tree(evaluator, total, 10 * WORK)
    assert not without.apart
    assert without.seconds * 1.002 < made.seconds


def at_first(tree: ProofTree, kind: Callable[[ProofPart], bool], change: Callable[[ProofPart], ProofPart]) -> ProofTree:
    at = next(at for at, part in enumerate(tree.parts) if kind(part))
    return replace(tree, parts=(*tree.parts[:at], change(tree.parts[at]), *tree.parts[at + 1 :]))


def every_leaf(tree: ProofTree, **changes: object) -> ProofTree:
    """With other multipliers of the first host in all leaves."""

    def changed(part: ProofPart) -> ProofPart:
        if part.hosts is None:
            return part
        one, other = part.hosts.hosts
        return replace(part, hosts=replace(part.hosts, hosts=(replace(one, **changes), other)))  # pyright: ignore[reportArgumentType]

    return replace(tree, parts=tuple(map(changed, tree.parts)))


def has_hosts(part: ProofPart) -> bool:
    return part.hosts is not None


def splits_host(part: ProofPart) -> bool:
    return part.split == "host"


def goes_on(part: ProofPart) -> bool:
    return part.into is not None


def other_plane(part: ProofPart) -> ProofPart:
    assert part.hosts is not None
    return replace(part, hosts=replace(part.hosts, plane=99))


DAMAGE: dict[str, tuple[Callable[[ProofTree], ProofTree], str]] = {
    "claims more": (lambda tree: replace(tree, seconds=tree.seconds * (1 + 1e-6)), "claims .* and proves"),
    "no mix": (lambda tree: replace(tree, apart=()), "not told apart|are not there"),
    "a mix of fewer groups": (lambda tree: replace(tree, apart=tree.apart[1:]), "other groups or planes"),
    "a mix above 1": (
        lambda tree: replace(tree, apart=tuple(tuple(1.0 for _ in shares) for shares in tree.apart)),
        "add up to more than 1"),
    "another plane": (lambda tree: at_first(tree, has_hosts, other_plane), "are not there"),
    "a third host": (lambda tree: at_first(tree, splits_host, lambda part: replace(part, of=2)), "host 2, which"),
    "a range left out": (
        lambda tree: at_first(tree, splits_host, lambda part: replace(part, at=-1.0)), "is split at -1.0 s"),
    "a half twice": (
        lambda tree: at_first(tree, splits_host, lambda part: replace(part, halves=(part.halves[0],) * 2)),
        "is there twice|is split at"),
    "goes on nowhere": (lambda tree: at_first(tree, goes_on, lambda part: replace(part, into=10**5)), "not at all"),
    "goes on where it came from": (lambda tree: at_first(tree, goes_on, lambda part: replace(part, into=0)), "twice"),
    "nothing is worth anything": (lambda tree: every_leaf(tree, ready=0.0, rest=0.0, own=0.0), "claims .* and proves"),
    "discounts": (lambda tree: every_leaf(tree, own=50.0), "claims .* and proves"),
}  # fmt: skip


@needs_compiled
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_proof_is_refused(kind: str) -> None:
    change, words = DAMAGE[kind]
    with pytest.raises(CorruptFile, match=words):
        check_certificate(replace(certificate(), tree=change(certificate().tree)))


def leaf_tree(case: Case, *parts: ProofPart) -> ProofTree:
    """With an even mix of planes."""
    planes = len(case.evaluator.planes)
    mix = ((1 / planes,) * planes,) * case.evaluator.groups
    return ProofTree(seconds=0.0, below=1.0, closed=(), parts=parts, apart=mix)


MADE = Case(workload(table("t", 100_000, 64, 100.0)), cluster(2, 2), cost_model="analytic")
OTHERS = {
    "three hosts": (replace(MADE, cluster=cluster(2, 3)), "not two"),
    "one host": (replace(MADE, cluster=cluster(2, 1)), "not two"),
    "hosts of one rank": (replace(MADE, cluster=cluster(1, 2)), "not two of several ranks"),
    "unlike ranks": (replace(MADE, cluster=cluster(2, 2, (2**40, 2**40, 2**40, 2**39))), "differ in memory"),
    "limits between tables": (
        replace(MADE, constraints=Constraints(per_rank=(PerRank(max_tables=1),))), "tied to ranks, or to each other"),
    "tables tied to ranks": (
        replace(MADE, constraints=Constraints(rules=(TableRule(tables="t", ranks=(0, 1)),))), "tied to ranks"),
    "one group for all": (replace(MADE, cost_model="torchrec"), "of hosts and of ranks"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_hosts_that_are_not_two_and_alike_are_refused(kind: str) -> None:
    case, words = OTHERS[kind]
    leaf = ProofPart(hosts=HostsProof(hosts=(EVEN, EVEN)))
    assert proven_seconds(MADE.evaluator, leaf_tree(MADE, leaf)) >= 0
    with pytest.raises(CorruptFile, match=words):
        proven_seconds(case.evaluator, leaf_tree(case, leaf))


def test_hosts_are_not_told_apart_where_prices_are_by_levels() -> None:
    statement = Statement(MADE.evaluator)
    statement.levels = LevelSeconds(np.zeros((len(statement.terms), 1)), (0.5,))
    with pytest.raises(CorruptFile, match="by levels"):
        told_apart(statement, leaf_tree(MADE, ProofPart(into=1)).apart)


def test_parts_that_are_proved_together_hold_the_plans_of_each() -> None:
    """Ranges from the lowest end to the highest, all groups that one of them opens, and those that all of them use."""
    one, other = (np.eye(3, dtype=bool)[:2], np.eye(3, dtype=bool)[1:])
    low = Plans((1.0, 2.0), (3.0, 4.0), one, np.array([True, True, False]), ((0.0, 1.0), (2.0, 3.0)))
    high = Plans((1.5, 5.0), (2.0, 3.5), other, np.array([True, False, True]), ((0.5, math.inf), (1.0, 2.0)))
    for both in (all_of(low, high), all_of(high, low)):
        assert both.ready == (1.0, 5.0)
        assert both.rest == (2.0, 4.0)
        assert (both.open == (one | other)).all()
        assert both.paid.tolist() == [True, False, False]
        assert both.hosts == ((0.0, math.inf), (1.0, 3.0))


def test_what_one_leaf_does_not_prove_of_some_it_does_not_prove_of_all() -> None:
    """Parts that go on together are proved as the part that holds them all is."""
    best = MADE.plan("cost_greedy").plan.cost.total_s
    leaf = ProofPart(hosts=HostsProof(hosts=(EVEN, EVEN)))
    split = ProofPart(split="ready", at=0.5, halves=(1, 2))
    apart = proven_seconds(MADE.evaluator, leaf_tree(MADE, split, leaf, leaf))
    together = leaf_tree(MADE, split, ProofPart(into=3), ProofPart(into=3), leaf)
    assert proven_seconds(MADE.evaluator, together) == proven_seconds(MADE.evaluator, leaf_tree(MADE, leaf))
    assert proven_seconds(MADE.evaluator, together) <= apart <= best


@pytest.mark.parametrize("number", [-1.0, math.nan, math.inf, 1e200])
def test_numbers_that_are_none_are_no_proof(number: float) -> None:
    with pytest.raises(UsageError, match="multiplier of a host"):
        HostWorth(ready=number, rest=0.0, own=0.0)
    with pytest.raises(UsageError, match="multiplier of a host"):
        HostWorth(ready=0.0, rest=number, own=0.0)
    if number != -1.0:
        with pytest.raises(UsageError, match="multiplier of a host"):
            HostWorth(ready=0.0, rest=0.0, own=number)
    with pytest.raises(UsageError, match="several of both, or none"):
        ProofPart(into=3, hosts=HostsProof(hosts=(EVEN, EVEN)))


def test_certified_small_problems_hold_too() -> None:
    """As the command makes them."""
    for seed in range(6):
        case = two_by_two(seed)
        least = brute_force(case).least_s
        if least is not None:
            assert certified_tree(case.evaluator, least, WORK).seconds <= least
