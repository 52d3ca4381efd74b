"""Certificates of bounds: how much they prove, how long that takes, and that damaged ones are refused.

    python benchmarks/certificates.py table sharding_stats_example.txt    # of public models; some minutes
    python benchmarks/certificates.py soak --rows soak.jsonl    # of 10,000 random problems, 1,000 damaged; 1 to 2 hours
    python benchmarks/certificates.py brute --problems 3000 --rows brute.jsonl    # against all plans of small problems

`table` is the table of docs/bounds.md#certificates: seconds are CPU seconds. `soak` certifies random problems of 2 to
12 tables on 1 to 8 devices, writes each certificate, reads it and proves it again; then it damages certificates and
counts what is accepted all the same. A damage is one that could make a false claim true if nobody looked: more
seconds, a half of a split left out or used twice, a range split outside of itself, groups closed, multipliers, shares
and planes of other values under the old claim; the digest is made anew, so that the proof alone has to refuse it. One
that is accepted is right where it claims no more than the whole one proves, and false where it claims more. `brute`
lists all plans of 1 to 3 tables on 1 to 4 devices. A run that is given a file of rows goes on where an earlier one with
the same checker ended.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.cases import BOTH, Case, brute_force, seeded, small_case

from recsmith.analyses import checking
from recsmith.analyses.certificates import PROVED_WORK, WORK, certified_tree, certify, check_certificate, tree_of
from recsmith.bounds import first_bound, lower_bound
from recsmith.bounds.column_spreads import heavy_table_bound
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.errors import Infeasible, NoPlanFound, RecSmithError
from recsmith.planning import find_planner, plan
from recsmith.planning.result import make_plan
from recsmith.plans.certificates import Certificate, ProofPart, ShareWorth, save_certificate
from recsmith.problems import build_problem
from recsmith.units import format_size
from recsmith.workloads import load_workload
from recsmith.workloads.sample import sample_workload

SMALL_WORK = 60_000_000  # numbers for a random problem: some dozen parts
BEYOND = 1.5  # times the best plan of a small problem: up to where its certificate looks
PRODUCTION = "1,933 of production"
PROBLEMS: list[tuple[str, Any, str, str]] = [
    ("dlrm-v2", "dlrm-v2", "h100:8", "analytic"),
    ("dlrm-v2", "dlrm-v2", "h100:8", "best"),
    ("dlrm-v2", "dlrm-v2", "h100:8", "torchrec"),
    ("nvidia-tiny", "nvidia-tiny", "h100:8", "best"),
    ("nvidia-large", "nvidia-large", "h100:8x4", "analytic"),
    ("nvidia-jumbo", "nvidia-jumbo", "h100:8x16", "analytic"),
    ("1,000 sampled", sample_workload(1000, 0), "h100:8x16", "best"),
    (PRODUCTION, None, "h100:8x12", "analytic"),
]


def show_table(production: Path | None) -> None:
    """How much of the printed bound certificates prove."""
    print("| tables | cluster | cost model | gap printed | gap certified | with --prove | parts | file | made, CPU s "
          "| checked, CPU s |\n" + "|---" * 10 + "|")  # fmt: skip
    for name, tables, cluster, model in PROBLEMS:
        if tables is None and production is None:
            continue
        made = plan(load_workload(tables or str(production)), cluster, cost_model=model).plan
        printed, total_s = made.bound.value_s, made.cost.total_s
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "proof.json"
            begun = time.process_time()
            certificate = certify(made, work=WORK)
            middle = time.process_time()
            save_certificate(certificate, file)
            check_certificate(file)
            ended = time.process_time()
            size = format_size(file.stat().st_size)
        proved = certify(made, work=PROVED_WORK).tree.seconds
        gaps = " | ".join(f"{total_s / each - 1:.1%}" for each in (printed or np.nan, certificate.tree.seconds, proved))
        leaves = sum(part.split is None for part in certificate.tree.parts)
        print(f"| {name} | {cluster} | {model} | {gaps} | {leaves} | {size} | {middle - begun:.1f} "
              f"| {ended - middle:.1f} |", flush=True)  # fmt: skip


# --- random problems, and damage --------------------------------------------------------------------------------------


def random_certificate(seed: int) -> Certificate | None:
    """The certificate of a plan of random tables, made in a few tenths of a second; None where no plan was found."""
    rng = np.random.default_rng(seed)
    tables = sample_workload(int(rng.integers(2, 13)), seed)
    cluster = load_cluster(f"{rng.choice(['h100', 'a100-80', 'h200'])}:{rng.integers(1, 9)}")
    model = str(rng.choice(["best", "analytic", "torchrec"]))
    try:
        evaluator = cost_model(model).compile(build_problem(tables, cluster))
        footprint = find_planner("cost_greedy").plan(evaluator.problem, evaluator).footprint
    except (Infeasible, NoPlanFound):
        return None
    bound = first_bound(evaluator).bound
    made = make_plan(evaluator, footprint, planner="cost_greedy", cost_model=model, bound=bound)
    return Certificate(plan=made, tree=certified_tree(evaluator, made.cost.total_s, SMALL_WORK))


def damaged(certificate: Certificate, rng: np.random.Generator) -> tuple[str, Certificate]:
    """The kind of a damage, and a certificate that has it."""
    tree = certificate.tree
    splits = [at for at, part in enumerate(tree.parts) if part.split is not None]
    spreads = [at for at, part in enumerate(tree.parts) if part.spreads is not None]
    ranges = [at for at in splits if tree.parts[at].split in ("ready", "rest")]
    leaves = [at for at, part in enumerate(tree.parts) if part.proof is not None]

    def changed(places: list[int], change: Callable[[ProofPart], ProofPart]) -> Certificate:
        at = int(rng.choice(places))
        parts = (*tree.parts[:at], change(tree.parts[at]), *tree.parts[at + 1 :])
        return replace(certificate, tree=replace(tree, parts=parts))

    def proof_with(part: ProofPart, **changes: Any) -> ProofPart:
        return part if part.proof is None else replace(part, proof=replace(part.proof, **changes))

    def spread_with(part: ProofPart, **changes: Any) -> ProofPart:
        return part if part.spreads is None else replace(part, spreads=replace(part.spreads, **changes))

    def above_one(part: ProofPart) -> ProofPart:
        mix = () if part.proof is None else part.proof.mix
        return proof_with(part, mix=tuple(tuple(share + 0.5 for share in shares) for shares in mix))

    def filled_again(part: ProofPart) -> ProofPart:
        again = ShareWorth(kind="count", by=1.0, worth=float(rng.choice([0.5, 2.0])))
        return proof_with(part, shares=(*(part.proof.shares if part.proof else ()), again))

    more = replace(tree, seconds=tree.seconds * (1 + 1e-8), below=tree.below * 2)
    false = replace(tree, seconds=certificate.plan.cost.total_s * 1.01, below=tree.below * 2)
    kinds: dict[str, Callable[[], Certificate]] = {
        "more seconds": lambda: replace(certificate, tree=more),
        "more seconds than the plan takes": lambda: replace(certificate, tree=false),
        "a group closed": lambda: replace(certificate, tree=replace(tree, closed=((int(rng.integers(1, 9)), 0),))),
        "all multipliers 0": lambda: replace(certificate, tree=replace(tree, parts=tuple(
            proof_with(part, ready=0.0, rest=0.0, byte=0.0) for part in tree.parts))),
        "shares above 1": lambda: changed(leaves, above_one),
        "a rank filled twice by shares": lambda: changed(leaves, filled_again),
        "a plane that is not there": lambda: changed(leaves, lambda part: proof_with(part, plane=99)),
    }  # fmt: skip
    if splits:
        kinds["a half twice"] = lambda: changed(splits, lambda part: replace(part, halves=(part.halves[0],) * 2))
        kinds["a half that is not there"] = lambda: changed(
            splits, lambda part: replace(part, halves=(part.halves[0], len(tree.parts)))
        )
        kinds["goes round"] = lambda: changed(splits, lambda part: replace(part, halves=(0, part.halves[1])))
        kinds["a group that is not there"] = lambda: changed(splits, lambda part: replace(part, split="group", of=99))
    if spreads:
        tables = len(certificate.plan.workload.tables)
        kinds["spreads of another table"] = lambda: changed(
            spreads, lambda part: spread_with(part, table=int(rng.integers(tables + 1)))
        )
        kinds["spreads without multipliers"] = lambda: changed(spreads, lambda part: spread_with(part, proofs=()))
        kinds["a spread split by another table"] = lambda: changed(
            splits[:1], lambda part: replace(part, of=(part.of + 1) % tables)
        )
    if ranges:
        kinds["a range left out"] = lambda: changed(ranges, lambda part: replace(part, at=tree.below * 1.01))
    kind = str(rng.choice(list(kinds)))
    return kind, kinds[kind]()


def damage_outcome(certificate: Certificate, other: Certificate, file: Path) -> str:
    """What the checker says of a damaged certificate: 'refused', or whether what it claims is right."""
    save_certificate(other, file)
    try:
        check_certificate(file)
    except RecSmithError:
        return "refused"
    return "right" if other.tree.seconds <= certificate.tree.seconds else "false"


# --- rows that a run can go on from -----------------------------------------------------------------------------------


def checker() -> str:
    """Which checker rows are of."""
    names = ("checking", "checked_prices", "checked_spreads")
    sources = [Path(checking.__file__).with_name(f"{name}.py").read_bytes() for name in names]
    return hashlib.sha256(b"".join(sources)).hexdigest()[:12]


def rows_of(file: Path | None) -> list[dict[str, Any]]:
    """The rows of a file that this checker made; none where there is no file yet."""
    if file is None or not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return [row for row in rows if row["checker"] == checker()]


def add_row(rows: list[dict[str, Any]], file: Path | None, **row: Any) -> None:
    rows.append({**row, "checker": checker()})
    if file is not None:
        with file.open("a", encoding="utf-8") as target:
            target.write(json.dumps(rows[-1]) + "\n")


def soak(problems: int, wanted: int, first: int, rows_file: Path | None) -> None:
    """Prove certificates again, and see that damaged ones are refused."""
    rows = rows_of(rows_file)
    damages = sum("damage" in row for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proof.json"
        for seed in sorted({*range(first, first + problems)} - {row["seed"] for row in rows}):
            certificate = random_certificate(seed)
            if certificate is None:
                add_row(rows, rows_file, seed=seed, outcome="no plan")
                continue
            row = {"seed": seed, "outcome": proved_again(certificate, file), "gap": gap_of(certificate)}
            if damages < wanted:
                row["damage"], other = damaged(certificate, np.random.default_rng(seed))
                row["refused"] = damage_outcome(certificate, other, file)
                damages += 1
            add_row(rows, rows_file, **row)
            if row["outcome"] != "proved" or row.get("refused") == "false":
                print(row, file=sys.stderr, flush=True)
    print(f"{len(rows):,} problems: {dict(Counter(row['outcome'] for row in rows))}")
    gaps = [row["gap"] for row in rows if "gap" in row]
    print(f"certified gaps: {np.median(gaps):.1%} in the median, {np.quantile(gaps, 0.9):.1%} at the 90th percentile")
    print("| damage | refused | proves its claim all the same | false |\n|---|---|---|---|")
    for kind in sorted({row["damage"] for row in rows if "damage" in row}):
        told = Counter(row["refused"] for row in rows if row.get("damage") == kind)
        print(f"| {kind} | {told['refused']} | {told['right']} | {told['false']} |")


def gap_of(certificate: Certificate) -> float:
    return certificate.plan.cost.total_s / certificate.tree.seconds - 1


def proved_again(certificate: Certificate, file: Path) -> str:
    save_certificate(certificate, file)
    try:
        return "proved" if check_certificate(file) == certificate else "read as another one"
    except RecSmithError as error:
        return f"refused: {error}"


def brute(problems: int, first: int, rows_file: Path | None) -> None:
    """Hold what certificates prove, and the printed bound, against every plan that small problems have.

    The seconds below which a certificate looks are half as many again as the best plan takes, so a false proof shows.
    """
    rows = rows_of(rows_file)
    for seed in sorted({*range(first, first + problems)} - {row["seed"] for row in rows}):
        case = small_case(seeded(seed), models=BOTH)
        least = brute_force(case).least_s
        if least is None:
            add_row(rows, rows_file, seed=seed, outcome="no plan")
            continue
        printed = lower_bound(case.evaluator).bound.value_s or 0.0
        found = {"printed": printed, "certified": certified_tree(case.evaluator, BEYOND * least, SMALL_WORK).seconds}
        found |= spread_bound(case, BEYOND * least)
        right = max(found.values()) <= least * (1 + 1e-12)
        gaps = {name: least / max(bound, 1e-300) - 1 for name, bound in found.items()}
        row = {"seed": seed, "outcome": "holds" if right else "false", **gaps}
        add_row(rows, rows_file, **row)
        if not right:
            print(row, file=sys.stderr, flush=True)
    print(f"{len(rows):,} problems: {dict(Counter(row['outcome'] for row in rows))}")
    for name in ("printed", "certified", "by spreads"):
        gaps = [row[name] for row in rows if name in row]
        if gaps:
            print(f"best plan over the {name} bound, of {len(gaps):,}: {np.median(gaps):.2%} in the median, "
                  f"{np.quantile(gaps, 0.9):.1%} at the 90th percentile")  # fmt: skip


def spread_bound(case: Case, below: float) -> dict[str, float]:
    """What is certified by every way to spread the columns of the heaviest table, where there is one."""
    problem = build_problem(case.workload, case.cluster, case.space, case.constraints)
    evaluator = cost_model(case.cost_model).compile(problem)
    heavy = heavy_table_bound(evaluator, groups_dominated_by_type(evaluator), below, None)
    if heavy is None:
        return {}
    heavy.solve(SMALL_WORK)
    return {"by spreads": tree_of(evaluator, heavy, below).seconds}


def main() -> None:
    """Show the table, soak, or hold certificates against all plans."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["table", "soak", "brute"])
    parser.add_argument(
        "production", nargs="?", type=Path, help="the report with 1,933 tables; without it they are left out"
    )
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--damaged", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--rows", type=Path, help="a file of rows: each problem's is added, and none is asked again")
    chosen = parser.parse_args()
    if chosen.what == "table":
        show_table(chosen.production)
    elif chosen.what == "soak":
        soak(chosen.problems, chosen.damaged, chosen.first, chosen.rows)
    else:
        brute(chosen.problems, chosen.first, chosen.rows)


if __name__ == "__main__":
    main()
