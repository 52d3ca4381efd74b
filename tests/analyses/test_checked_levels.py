"""Bounds by levels of how full groups are have certificates, which prove nothing false."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.cases import brute_force, seeded, small_case, table, workload
from support.proofs import assert_none_is_false
from support.rising import rising_case

from recsmith._types import Bools, Floats, Ints
from recsmith.analyses.certificates import certify, check_certificate, tree_of
from recsmith.analyses.checked_levels import levels_of, taken_seconds
from recsmith.analyses.checked_prices import Plans
from recsmith.analyses.checked_statement import LevelSeconds, Statement
from recsmith.analyses.checking import proven_seconds
from recsmith.bounds.fill_levels import has_levels
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_prices import levelled_prices
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model
from recsmith.costs.protocol import RisesBeside
from recsmith.errors import CorruptFile, UsageError
from recsmith.planning import plan
from recsmith.plans.certificates import Certificate, save_certificate
from recsmith.plans.proofs import LevelPlane, LevelsProof, ProofTree
from recsmith.problems import build_problem
from recsmith.workloads.sample import shared_pool

WORK = 20_000_000
BEYOND = 1.5  # times the best plan: proofs look at plans that take up to so much, so that a false one would show
pytestmark = pytest.mark.filterwarnings("ignore:cost model .*(was trained on simulated|extrapolates)")


def by_levels(evaluator: Evaluator, below: float) -> tuple[PhaseBranching, ProofTree] | None:
    """A search by levels, and what it proves."""
    dominated = groups_dominated_by_type(evaluator)
    prices = levelled_prices(evaluator, dominated, below, None) if has_levels(evaluator) else None
    if prices is None:
        return None
    search = PhaseBranching(
        evaluator, dominated=dominated, below=below, byte_price=0.0, mix=prices.levelled_mix, prices=prices
    )
    search.solve(WORK)
    return search, tree_of(evaluator, search, below)


@cache
def steep() -> Statement:
    """Sampled tables under a model of a GPU, whose shares are steep; some of them stand there twice."""
    pool = shared_pool()
    some = pool.tables[: 9 * 12 : 9]
    again = [replace(each, name=f"{each.name} again", features=tuple(
        replace(feature, name=f"{feature.name} again") for feature in each.features)) for each in some[:4]]  # fmt: skip
    tables = replace(pool, tables=(*some, *again), batch_size=16_384)
    return Statement(cost_model("neural:h100").compile(build_problem(tables, load_cluster("h100:4"))))


def held_together(statement: Statement, draw: np.random.Generator) -> Ints:
    """Pieces of one group on a rank, at most all columns of each table; one table, a few, or all."""
    local = statement.local & statement.fits
    group, tables = draw.choice(statement.group[local]), len(statement.problem.tables)
    columns = statement.width / statement.problem.demand.dim[statement.table]
    chosen: list[int] = []
    for number in draw.permutation(tables)[: draw.choice([1, 1, 3, tables])]:
        mine = np.flatnonzero(local & (statement.table == number) & (statement.group == group))
        left = draw.choice([0.25, 1.0])
        while len(mine := mine[columns[mine] <= left + 1e-12]) and draw.random() < 0.9:
            chosen.append(int(draw.choice([mine[columns[mine].argmax()], draw.choice(mine)])))
            left -= columns[chosen[-1]]
    return np.array(chosen, dtype=np.int64)


def drawn_levels(statement: Statement, held: Ints, draw: np.random.Generator) -> LevelsProof:
    """Shares of few planes, and of one way to fill a level, or of the tables that are held."""
    evaluator, number = statement.evaluator, len(statement.problem.tables)
    assert isinstance(evaluator, RisesBeside)
    cut, kinds = evaluator.share_steps((3, 4)), (*range(number - 4), *range(4))
    of_kind = np.zeros(number)
    columns = statement.width / statement.problem.demand.dim[statement.table]
    np.add.at(of_kind, np.array(kinds)[statement.table[held]], columns[held])
    of_kind /= of_kind.sum()

    def shares() -> tuple[float, ...]:
        fills: Floats = np.zeros(3 + number)
        fills[draw.integers(3)] = 1.0
        if draw.random() < 0.5:
            fills = np.concatenate([np.zeros(3), of_kind])
        return (*draw.dirichlet(np.full(len(evaluator.planes), 0.2)).tolist(), *fills.tolist())

    planes = tuple(
        LevelPlane(paid=paid, shares=tuple(tuple(shares() for _ in range(12)) for _ in range(evaluator.groups)))
        for paid in (0.3, 1.0)
    )
    return LevelsProof(
        terms=tuple(term for term, _ in cut), ends=tuple(tuple(ends.tolist()) for _, ends in cut), kinds=kinds,
        planes=planes,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(150))
def test_what_a_group_holds_costs_no_more_than_its_head_less_what_pieces_pay_for(seed: int):
    """And nearly as much where one piece fills every level."""
    statement, draw = steep(), np.random.default_rng(seed)
    held = held_together(statement, draw)
    if not len(held):
        return
    proof, launch = drawn_levels(statement, held, draw), statement.opening
    load = float(statement.evaluator.loads(statement.terms[held].sum(axis=0, keepdims=True))[0, 0])
    levels = levels_of(statement, proof, (load - launch) * (1 + 1e-12))
    for seconds, paid in zip(levels.seconds[held].sum(axis=0), levels.paid, strict=True):
        assert 0 < seconds <= (load - (1 - paid) * launch) * (1 + 1e-9)


NOTHING, BY_SECONDS, BY_FIRST, BY_SECOND, BY_KIND = range(5)  # how a level is filled
SEVENTH = 7  # the number of a table in `steep`


def filled(ways: Sequence[int], *, at: float = 1.0, most: float = 0.0, alike: int = 1) -> float:
    """Part of a launch that the dearest piece of a table pays for where both terms are cut at so many times its own.

    ways: how the four levels are filled. most: times what the mean of all planes says of the piece. alike: tables of
    its kind.
    """
    statement = steep()
    evaluator, number = statement.evaluator, len(statement.problem.tables)
    assert isinstance(evaluator, RisesBeside)
    local = np.flatnonzero(statement.local & statement.fits & (statement.table == SEVENTH))
    held = local[statement.alone[local].argmax()]
    plane = np.eye(len(evaluator.planes))[statement.ready[held].argmax()]
    kinds = tuple(SEVENTH if abs(table - SEVENTH) < alike else table for table in range(number))
    levels = [(*plane.tolist(), *np.eye(3)[way - 1].tolist(), *[0.0] * number) if BY_SECONDS <= way <= BY_SECOND
              else (*plane.tolist(), 0.0, 0.0, 0.0, *(np.eye(number)[SEVENTH] * (way == BY_KIND)).tolist())
              for way in ways]  # fmt: skip
    levels = [level if way != NOTHING else (0.0,) * len(level) for way, level in zip(ways, levels, strict=True)]
    terms = tuple(term for term, _ in evaluator.share_steps((1, 1)))
    proof = LevelsProof(
        terms=terms, ends=tuple((at * float(statement.terms[held][term]),) for term in terms), kinds=kinds,
        planes=(LevelPlane(paid=1.0, shares=(tuple(levels),) * evaluator.groups),),
    )  # fmt: skip
    mean = float(statement.ready[held].mean())
    price = float(levels_of(statement, proof, most * mean or 1.0).seconds[held, 0])
    return (price - float(statement.alone[held])) / statement.opening


def test_a_piece_that_fills_its_level_pays_for_all_of_the_launch():
    """By any way to fill it, and never for more."""
    for way in (BY_FIRST, BY_SECOND):  # the upper ends of the first level are the piece's own
        ways = (way, *[BY_KIND] * 3)
        assert filled(ways) == pytest.approx(1.0, abs=0.01)
        assert filled(ways, at=2.0) == pytest.approx(0.5, abs=0.01)
    every = (BY_SECONDS,) * 4
    assert filled(every, most=1.0) == pytest.approx(1.0, abs=0.01)
    assert filled(every, most=4.0) == pytest.approx(0.25, abs=0.01)
    assert filled((BY_KIND,) * 4) == pytest.approx(1.0, abs=0.01)
    assert filled((BY_KIND,) * 4, alike=2) == pytest.approx(1 / 3, abs=0.01)


def test_a_piece_costs_the_least_of_all_levels_that_it_does_not_exceed():
    assert filled((NOTHING, BY_KIND, BY_KIND, BY_KIND), at=0.9) == pytest.approx(1.0, abs=0.01)
    for number in range(4):
        ways = tuple(NOTHING if at == number else BY_KIND for at in range(4))
        assert filled(ways, at=1.1) < 0  # type: ignore[arg-type]


def test_a_rank_takes_more_by_levels_than_its_seconds_by_what_pieces_pay_for():
    statement = steep()
    planes, groups = statement.ready.shape[1], statement.evaluator.groups
    local = np.flatnonzero(~statement.worldwide)
    mix = np.zeros((groups, planes + 2))
    mix[local[0], planes:], mix[local[1], planes], mix[statement.worldwide, planes + 1] = (0.25, 0.5), 0.75, 1.0
    open_: Bools = np.ones((len(statement.problem.tables), groups), dtype=bool)
    statement.levels = LevelSeconds(np.zeros((len(statement.terms), 2)), (0.3, 0.8))
    try:
        plans = Plans((0.0, 1.0), (0.0, 1.0), open_, open_[0])
        assert float(taken_seconds(statement, plans, mix)) == pytest.approx(0.475 * statement.opening)
        open_[:, local[0]] = False
        assert float(taken_seconds(statement, plans, mix)) == pytest.approx(0.225 * statement.opening)
    finally:
        statement.levels = LevelSeconds(np.zeros((len(statement.terms), 0)), ())


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 1000), marks=pytest.mark.soak)])
def test_no_proof_by_levels_proves_more_than_the_best_of_all_plans_takes(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also by levels with other ends and shares, and it proves what the search found."""
    asked = 0
    for seed in seeds:
        pick = seeded(seed)
        case = rising_case(small_case(pick, models=("analytic",)), seed, tmp_path, monkeypatch)
        least, evaluator = brute_force(case).least_s, case.evaluator
        found = None if least is None else by_levels(evaluator, BEYOND * least)
        if least is not None and found is not None:
            asked += 1
            search, tree = found
            assert min(search.bound, BEYOND * least) * (1 - 1e-4) <= tree.seconds
            assert_none_is_false(pick, evaluator, tree, least)
    assert asked > len(seeds) / 6


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    tables = workload(*[table(f"t{i}", 100_000, 64, 5.0) for i in range(60)], batch_size=16_384)
    made = plan(tables, "h100:4", cost_model="neural:h100", planner="cost_greedy").plan
    return certify(made, work=200_000_000)


def test_a_certificate_by_levels_is_written_and_proved_again(certificate: Certificate, tmp_path: Path):
    assert certificate.tree.levels is not None
    printed = certificate.plan.bound.value_s
    assert printed is not None
    assert certificate.tree.seconds >= 0.99 * printed
    save_certificate(certificate, tmp_path / "proof.json")
    assert check_certificate(tmp_path / "proof.json") == certificate


def more_shares(levels: LevelsProof) -> LevelsProof:
    shares = tuple(tuple(tuple(2 * share + 0.1 for share in level) for level in group)
                   for group in levels.planes[0].shares)  # fmt: skip
    return replace(levels, planes=(replace(levels.planes[0], shares=shares), *levels.planes[1:]))


def fewer_levels(levels: LevelsProof) -> LevelsProof:
    shares = tuple(group[:3] for group in levels.planes[0].shares)
    return replace(levels, planes=(replace(levels.planes[0], shares=shares), *levels.planes[1:]))


DAMAGE: dict[str, tuple[Callable[[LevelsProof], LevelsProof | None], str]] = {
    "no levels": (lambda _: None, "other groups or planes"),
    "one plane less": (lambda levels: replace(levels, planes=levels.planes[:1]), "other groups or planes"),
    "other terms": (lambda levels: replace(levels, terms=(99, *levels.terms[1:])), "other terms or tables"),
    "a kind less": (lambda levels: replace(levels, kinds=levels.kinds[1:]), "other terms or tables"),
    "a kind below 0": (lambda levels: replace(levels, kinds=(-1, *levels.kinds[1:])), "other terms or tables"),
    "shares above 1": (more_shares, "add up to more than 1"),
    "levels that are missing": (fewer_levels, "of something else"),
    "a group less": (lambda levels: replace(levels, planes=tuple(
        replace(plane, shares=plane.shares[1:]) for plane in levels.planes)), "levels .* of other groups"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_levels_are_refused(kind: str, certificate: Certificate):
    change, words = DAMAGE[kind]
    levels = certificate.tree.levels
    assert levels is not None
    with pytest.raises(CorruptFile, match=words):
        check_certificate(replace(certificate, tree=replace(certificate.tree, levels=change(levels))))


def test_levels_that_are_no_levels_are_refused(certificate: Certificate):
    levels = certificate.tree.levels
    assert levels is not None
    with pytest.raises(UsageError, match="do not rise"):
        replace(levels, ends=((2.0, 1.0), levels.ends[1]))
    with pytest.raises(UsageError, match="each once"):
        replace(levels, terms=(1, 1))
    with pytest.raises(UsageError, match="from 0 to 1"):
        replace(levels.planes[0], paid=1.5)
    with pytest.raises(UsageError, match="below 0"):
        replace(levels.planes[0], shares=(((-0.1,),),))


def test_levels_under_a_cost_model_without_them_are_refused(certificate: Certificate):
    levels = certificate.tree.levels
    case = small_case(seeded(1), models=("analytic",))
    tree = replace(certificate.tree, levels=levels, closed=())
    with pytest.raises(CorruptFile, match="has none"):
        proven_seconds(case.evaluator, tree)
