"""A certificate proves the bound of a plan to code that shares nothing with the search, and proves nothing false."""

import ast
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.cases import BOTH, Case, brute_force, seeded, small_case, table, workload
from support.proofs import assert_none_is_false

from recsmith.analyses import checking
from recsmith.analyses.certificates import certified_tree, certify, check_certificate, tree_of
from recsmith.bounds import lower_bound
from recsmith.bounds.column_spreads import heavy_table_bound
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.cli.app import app
from recsmith.clusters import load_cluster
from recsmith.costs import Evaluator, cost_model
from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.planning import plan
from recsmith.planning.simulate import simulate
from recsmith.plans.certificates import Certificate, load_certificate, save_certificate
from recsmith.plans.proofs import ProofPart, ProofTree
from recsmith.problems import build_problem
from recsmith.workloads import save_workload

WORK = 300_000_000  # numbers: some dozen parts of a small problem


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    tables = [table(f"t{i}", 4000 * (i + 1), (64, 32, 16)[i % 3], 4.0 + i) for i in range(6)]
    made = plan(workload(*tables, batch_size=512), "h100:4", cost_model="analytic", iterations=20).plan
    return certify(made, work=3 * WORK)


def test_a_certificate_proves_nearly_the_printed_bound_again(certificate: Certificate, tmp_path: Path):
    printed, cost = certificate.plan.bound.value_s, certificate.plan.cost.total_s
    assert printed is not None
    assert (1 - 1e-5) * printed <= certificate.tree.seconds <= cost
    assert len(certificate.tree.parts) > 5
    save_certificate(certificate, tmp_path / "proof.json")
    again = check_certificate(tmp_path / "proof.json")
    assert again == certificate
    assert load_certificate(tmp_path / "proof.json").tree == certificate.tree


def test_the_plan_of_a_certificate_has_no_lower_bound_than_it_proves(certificate: Certificate):
    known = certificate.plan.bound
    weak = replace(certificate.plan, bound=replace(known, value_s=certificate.tree.seconds / 2), gap=None)
    made = certify(replace(weak, gap=weak.bound.gap(weak.cost.total_s)), work=3 * WORK)
    assert made.tree == certificate.tree
    assert made.plan.bound.value_s == made.tree.seconds
    assert made.plan.gap == pytest.approx(made.plan.cost.total_s / made.tree.seconds - 1)
    assert simulate(made.plan).bound == made.plan.bound  # a search proved it, so it is not worked out again
    assert certify(weak, work=WORK).plan.gap is None  # outside of the space of its bound
    unbounded = replace(weak, bound=replace(known, value_s=None))
    assert certify(unbounded, work=WORK).plan == unbounded


def test_the_checker_imports_nothing_of_the_search():
    mine = {path.stem for path in Path(checking.__file__).parent.glob("check*.py")}
    assert len(mine) == 8
    for name in mine:
        found = {
            node.module
            for node in ast.walk(ast.parse(Path(checking.__file__).with_name(f"{name}.py").read_text()))
            if isinstance(node, ast.ImportFrom) and node.module
        }
        own = {name for name in found if name.startswith("recsmith")} - {f"recsmith.analyses.{name}" for name in mine}
        rooms = {".".join(name.split(".")[:2]) for name in own}
        assert rooms <= {"recsmith._types", "recsmith.costs", "recsmith.errors", "recsmith.plans", "recsmith.problems",
                         "recsmith.sharding"}  # fmt: skip


# --- nothing false is proved ------------------------------------------------------------------------------------------


BEYOND = 1.5  # times the best plan: proofs look at plans that take up to so much, so that a false one would show


MIXED = (290, 403, 493)  # with groups that hold pieces of single ranks and of the world


@pytest.mark.parametrize("seeds", [(*range(24), *MIXED), pytest.param(range(24, 3000), marks=pytest.mark.soak)])
def test_no_certificate_proves_more_than_the_best_of_all_plans_takes(seeds: Sequence[int]):
    """Also with multipliers, shares and splits that no search would make."""
    asked = tight = 0
    for seed in seeds:
        pick = seeded(seed)
        case = small_case(pick, models=BOTH)
        least = brute_force(case).least_s
        if least is None:
            continue
        asked += 1
        tight += certified_tree(case.evaluator, least, WORK).seconds >= 0.9 * _printed(case)
        assert_none_is_false(pick, case.evaluator, certified_tree(case.evaluator, BEYOND * least, WORK), least)
    assert asked > len(seeds) / 3
    assert tight > 0.8 * asked


@pytest.mark.parametrize("seeds", [range(30), pytest.param(range(30, 3000), marks=pytest.mark.soak)])
def test_no_proof_by_spreads_of_a_table_proves_more_than_the_best_of_all_plans_takes(seeds: range):
    asked = 0
    for seed in seeds:
        pick = seeded(seed)
        case = small_case(pick, models=("analytic",))
        least = brute_force(case).least_s if case.cluster.world_size > 1 else None
        found = None if least is None else _by_spreads(case, BEYOND * least)
        if least is not None and found is not None:
            asked += 1
            assert_none_is_false(pick, found[0], found[1], least)
    assert asked > len(seeds) / 10


def _printed(case: Case) -> float:
    return lower_bound(case.evaluator).bound.value_s or 0.0


def _by_spreads(case: Case, below: float) -> tuple[Evaluator, ProofTree] | None:
    """The proof by every way to spread the columns of the heaviest table, also where it is no better than others."""
    problem = build_problem(case.workload, case.cluster, case.space, case.constraints)
    evaluator = cost_model(case.cost_model).compile(problem)
    heavy = heavy_table_bound(evaluator, groups_dominated_by_type(evaluator), below, None)
    if heavy is None:
        return None
    heavy.solve(WORK)
    return evaluator, tree_of(evaluator, heavy, below)


def _first(tree: ProofTree, change: Callable[[ProofPart], ProofPart], is_leaf: bool) -> ProofTree:
    at = next(at for at, part in enumerate(tree.parts) if (part.proof is not None) is is_leaf)
    return replace(tree, parts=(*tree.parts[:at], change(tree.parts[at]), *tree.parts[at + 1 :]))


def _first_range(tree: ProofTree) -> ProofTree:
    at = next(at for at, part in enumerate(tree.parts) if part.split in ("ready", "rest"))
    return replace(tree, parts=(*tree.parts[:at], replace(tree.parts[at], at=10.0), *tree.parts[at + 1 :]))


DAMAGE: dict[str, tuple[Callable[[ProofTree], ProofTree], str]] = {
    "claims more": (lambda tree: replace(tree, seconds=tree.seconds * (1 + 1e-6), below=2.0), "claims .* and proves"),
    "a half twice": (
        lambda tree: _first(tree, lambda part: replace(part, halves=(part.halves[0],) * 2), False), "is there twice"),
    "a half is missing": (
        lambda tree: _first(tree, lambda part: replace(part, halves=(part.halves[0], 10**5)), False), "not at all"),
    "goes round": (lambda tree: _first(tree, lambda part: replace(part, halves=(0, 1)), False), "is there twice"),
    "leaves a range out": (_first_range, "is split at 10.0 s"),
    "no such group": (
        lambda tree: _first(tree, lambda part: replace(part, split="group", of=999), False), "group 999 .* exist"),
    "closes what matters": (lambda tree: replace(tree, closed=((3, 0),)), "group 3 is left out"),
    "closes for itself": (lambda tree: replace(tree, closed=((1, 1),)), "which is not there"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_proof_is_refused(kind: str, certificate: Certificate):
    change, words = DAMAGE[kind]
    with pytest.raises(CorruptFile, match=words):
        check_certificate(replace(certificate, tree=change(certificate.tree)))


def test_multipliers_that_prove_less_are_refused(certificate: Certificate):
    def weaker(part: ProofPart) -> ProofPart:
        assert part.proof is not None
        return replace(part, proof=replace(part.proof, ready=0.0, rest=0.0))

    tree = certificate.tree
    all_weaker = tuple(part if part.proof is None else weaker(part) for part in tree.parts)
    with pytest.raises(CorruptFile, match=r"claims .* and proves"):
        check_certificate(replace(certificate, tree=replace(tree, parts=all_weaker)))


def test_shares_that_add_up_to_more_than_one_are_refused(certificate: Certificate):
    def more(part: ProofPart) -> ProofPart:
        assert part.proof is not None
        mix = tuple(tuple(2 * share + 0.1 for share in shares) for shares in part.proof.mix)
        return replace(part, proof=replace(part.proof, mix=mix))

    with pytest.raises(CorruptFile, match="add up to more than 1"):
        check_certificate(replace(certificate, tree=_first(certificate.tree, more, True)))


@pytest.mark.parametrize("change", [{"ready": -1.0}, {"rest": float("nan")}, {"byte": float("inf")}])
def test_multipliers_below_zero_are_no_proof(change: dict[str, float], certificate: Certificate):
    proof = next(part.proof for part in certificate.tree.parts if part.proof is not None)
    with pytest.raises(UsageError, match="below 0 or above"):
        replace(proof, **change)


def test_a_plan_that_costs_something_else_today_is_told(certificate: Certificate):
    cost = replace(certificate.plan.cost, total_s=certificate.plan.cost.total_s * 1.01)
    with pytest.raises(UsageError, match=r"cost model analytic says .* and said .* when it was certified"):
        check_certificate(replace(certificate, plan=replace(certificate.plan, cost=cost)))


# --- files and commands -----------------------------------------------------------------------------------------------


def test_a_file_that_was_changed_is_refused(certificate: Certificate, tmp_path: Path):
    file = tmp_path / "proof.json"
    save_certificate(certificate, file)
    raw: Any = json.loads(file.read_text())
    for change in ({"seconds": raw["tree"]["seconds"] * 0.9}, {"below": 1.0}):
        file.write_text(json.dumps(raw | {"tree": raw["tree"] | change}))
        with pytest.raises(CorruptFile, match="was changed after it was written"):
            check_certificate(file)
    for key in ("plan", "tree", "digest"):
        file.write_text(json.dumps({name: value for name, value in raw.items() if name != key}))
        with pytest.raises(CorruptFile, match=f"without `{key}`"):
            check_certificate(file)
    file.write_text("[]")
    with pytest.raises(CorruptFile, match="holds no certificate"):
        check_certificate(file)


def test_models_without_such_proofs_are_told():
    tables = workload(table("a", 1000, 16), table("b", 500, 8))
    problem = build_problem(tables, load_cluster("cpu:2"))
    with pytest.raises(UsageError, match="planes that lie below zero"):
        certified_tree(cost_model("neural:cpu").compile(problem), 1.0)


def test_plan_writes_a_certificate_and_check_proves_it(tmp_path: Path):
    file = str(tmp_path / "proof.json")
    save_workload(workload(table("a", 4000, 16), table("b", 500, 8)), tmp_path / "tables.json")
    words = ["plan", str(tmp_path / "tables.json"), "--cluster", "h100:2", "--cost-model", "torchrec",
             "--planner", "cost_greedy", "--certificate", file]  # fmt: skip
    done = CliRunner().invoke(app, [*words, "--format", "json"], catch_exceptions=False)
    assert "the certificate in" in done.stderr
    told = CliRunner().invoke(app, ["check", file], catch_exceptions=False)
    assert told.stdout.splitlines()[1].startswith("proven   no plan takes less than ")
    raw = json.loads(CliRunner().invoke(app, ["check", file, "--format", "json"], catch_exceptions=False).stdout)
    assert raw["schema"] == "recsmith/checked/1"
    assert 0 <= raw["gap"] < 1
    assert raw["step_s"] == json.loads(done.stdout)["plan"]["cost"]["total_s"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 0  # a certificate may be written over a certificate
    Path(file).write_text("tables")
    kept = CliRunner().invoke(app, words)
    assert isinstance(kept.exception, RecSmithError | SystemExit)
    assert Path(file).read_text() == "tables"
