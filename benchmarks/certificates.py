"""Certificates of bounds: how much they prove, how long that takes, and that damaged ones are refused.

    python benchmarks/certificates.py table sharding_stats_example.txt    # of public models; some minutes
    python benchmarks/certificates.py soak --rows soak.jsonl    # of 10,000 random problems, 1,000 damaged; 1 to 2 hours
    python benchmarks/certificates.py brute --problems 3000 --rows brute.jsonl    # against all plans of small problems
    python benchmarks/certificates.py soak --two-hosts --problems 400 --damaged 400    # of problems on two hosts

`table` is the table of docs/bounds.md#certificates: seconds are CPU seconds. `soak` certifies random problems of 2 to
12 tables on 1 to 8 devices, one in four under constraints, and one in four of few tables many times each; it writes
each certificate, reads it and proves it again. Then it damages certificates and counts what is accepted all the same.
A damage is one that could make a false claim true if nobody looked: more seconds, a half of a split left out or used
twice, a range split outside of itself, groups closed, multipliers, shares, planes, large pieces, levels, ranks and
places of other values under the old claim; the digest is made anew, so that the proof alone has to refuse it. One that
is accepted is right where it claims no more than the whole one proves, and false where it claims more. `brute` lists
all plans of 1 to 4 tables on 1 to 4 devices, one problem in four under constraints. With `--two-hosts` both take
problems on two hosts: a soak of 20 to 60 tables, some of long bags, on 4 to 16 devices, and small ones on two hosts of
two. A run that is given a file of rows goes on where an earlier one with the same checker ended.
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

from support.cases import BOTH, Case, all_placements, brute_force, seeded, small_case
from support.constrained import constrained_case, least_s
from support.two_hosts import searched, two_by_two

from recsmith.analyses import checking
from recsmith.analyses.certificates import PROVED_WORK, WORK, certified_tree, certify, check_certificate, tree_of
from recsmith.bounds import first_bound, lower_bound
from recsmith.bounds.column_spreads import heavy_table_bound
from recsmith.bounds.groups import groups_dominated_by_type
from recsmith.clusters import load_cluster
from recsmith.costs import cost_model
from recsmith.errors import Infeasible, NoPlanFound, RecSmithError, UsageError
from recsmith.planning import find_planner, plan
from recsmith.planning.result import make_plan
from recsmith.plans.certificates import Certificate, save_certificate
from recsmith.plans.proofs import ProofPart, ShareWorth
from recsmith.problems import Apart, Constraints, PerRank, Problem, TableRule, build_problem
from recsmith.units import format_size
from recsmith.workloads import Feature, Table, Workload, load_workload
from recsmith.workloads.sample import sample_workload

SMALL_WORK = 60_000_000  # numbers for a random problem: some dozen parts
FEW_WORK = 400_000_000  # the same of few different tables: for fillings of a rank as well
HOSTS_WORK = 800_000_000  # and of two hosts, which are told apart after as much work as a printed bound has
BEYOND = 1.5  # times the best plan of a small problem: up to where its certificate looks
EVERY = 4  # so many problems, of which one has constraints, and one of a soak few tables many times each
MOST_PLANS = 1_000  # of a problem with constraints, each of which is priced
PRODUCTION = "1,933 of production"
PROBLEMS: list[tuple[str, Any, str, str]] = [
    ("dlrm-v2", "dlrm-v2", "h100:8", "analytic"),
    ("dlrm-v2", "dlrm-v2", "h100:8", "best"),
    ("dlrm-v2", "dlrm-v2", "h100:8", "torchrec"),
    ("dlrm-v2", "dlrm-v2", "h100:8x2", "best"),
    ("dlrm-v2", "dlrm-v2", "h100:8x2", "analytic"),
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
        leaves = sum(part.is_leaf for part in certificate.tree.parts)
        print(f"| {name} | {cluster} | {model} | {gaps} | {leaves} | {size} | {middle - begun:.1f} "
              f"| {ended - middle:.1f} |", flush=True)  # fmt: skip


# --- random problems, and damage --------------------------------------------------------------------------------------


def random_certificate(seed: int, two_hosts: bool) -> Certificate | None:
    """The certificate of a plan of random tables, made in a few tenths of a second; None where no plan was found."""
    if two_hosts:
        return two_hosts_certificate(seed)
    rng = np.random.default_rng(seed)
    alike = seed % EVERY == 1
    tables = sample_workload(int(rng.integers(2, 5 if alike else 13)), seed)
    tables = copied(tables, int(rng.integers(2, 20))) if alike else tables
    cluster = load_cluster(f"{rng.choice(['h100', 'a100-80', 'h200'])}:{rng.integers(1, 9)}")
    model = str(rng.choice(["best", "analytic", "torchrec"]))
    constraints = Constraints() if seed % EVERY else drawn_constraints(tables, cluster.world_size, rng)
    problem = build_problem(tables, cluster, constraints=constraints)
    return planned_certificate(problem, model, "cost_greedy", FEW_WORK if alike else SMALL_WORK)


def two_hosts_certificate(seed: int) -> Certificate | None:
    """The same of tables on two hosts, some of which have long bags, in one or two seconds."""
    rng = np.random.default_rng(seed)
    long, short = int(rng.integers(3, 16)), int(rng.integers(17, 45))
    rows, dims = 10 ** rng.uniform(4, 7, long + short), rng.choice([16, 32, 64, 128], long + short)
    lengths = np.concatenate([rng.uniform(50, 900, long), rng.uniform(1, 20, short)])
    tables = tuple(
        Table(name=f"t{i}", num_embeddings=int(count), embedding_dim=int(dim),
              features=(Feature(name=f"f{i}", pooling_factor=round(float(length), 2)),))
        for i, (count, dim, length) in enumerate(zip(rows, dims, lengths, strict=True))
    )  # fmt: skip
    cluster = load_cluster(f"{rng.choice(['h100', 'a100-80', 'h200'])}:{rng.integers(2, 9)}x2")
    work = Workload(name="two hosts", batch_size=4096, tables=tables, optimizer="rowwise_adagrad")
    return planned_certificate(build_problem(work, cluster), str(rng.choice(["best", "analytic"])), "ldm", HOSTS_WORK)


def planned_certificate(problem: Problem, model: str, planner: str, work: int) -> Certificate | None:
    """The certificate of a planner's plan."""
    try:
        evaluator = cost_model(model).compile(problem)
        footprint = find_planner(planner).plan(evaluator.problem, evaluator).footprint
    except (Infeasible, NoPlanFound):
        return None
    bound = first_bound(evaluator).bound
    made = make_plan(evaluator, footprint, planner=planner, cost_model=model, bound=bound)
    return Certificate(plan=made, tree=certified_tree(evaluator, made.cost.total_s, work))


def copied(tables: Workload, times: int) -> Workload:
    """Each table so many times: of few different tables fillings of a rank are asked for."""
    every = [
        replace(table, name=f"{table.name} {copy}",
                features=tuple(replace(each, name=f"{each.name} {copy}") for each in table.features))
        for copy in range(times) for table in tables.tables
    ]  # fmt: skip
    return replace(tables, tables=tuple(every))


def drawn_constraints(tables: Workload, ranks: int, rng: np.random.Generator) -> Constraints:
    """Constraints that decide the step of many problems: tables that are confined to few ranks, or have few places."""
    names = tuple(each.name for each in tables.tables if rng.random() < 0.6) or (tables.tables[0].name,)
    own = tuple(range(int(rng.integers(1, ranks + 1))))
    return [
        Constraints(rules=tuple(TableRule(tables=name, ranks=own) for name in names)),
        Constraints(apart=(Apart(tables=names),)),
        Constraints(per_rank=(PerRank(max_shards=int(rng.integers(1, 4))),)),
    ][int(rng.integers(3))]


def damaged(certificate: Certificate, rng: np.random.Generator) -> tuple[str, Certificate]:
    """The kind of a damage, and a certificate that has it."""
    tree = certificate.tree
    splits = [at for at, part in enumerate(tree.parts) if part.split is not None]
    spreads = [at for at, part in enumerate(tree.parts) if part.spreads is not None]
    ranges = [at for at in splits if tree.parts[at].split in ("ready", "rest")]
    leaves = [at for at, part in enumerate(tree.parts) if part.proof is not None]
    hosts = [at for at, part in enumerate(tree.parts) if part.hosts is not None]
    apart = [at for at in splits if tree.parts[at].split == "host"]
    going_on = [at for at, part in enumerate(tree.parts) if part.into is not None]
    filled = [at for at in leaves if (proof := tree.parts[at].proof) and proof.large]
    first = tree.parts[0]

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

    def host_with(part: ProofPart, **changes: Any) -> ProofPart:
        if part.hosts is None:
            return part
        one, other = part.hosts.hosts
        pair = (replace(one, **changes), other) if rng.random() < 0.5 else (one, replace(other, **changes))
        return replace(part, hosts=replace(part.hosts, hosts=pair))

    def with_large(part: ProofPart, **changes: Any) -> ProofPart:
        large = part.proof.large if part.proof else ()
        at = int(rng.integers(len(large)))
        return proof_with(part, large=(*large[:at], replace(large[at], **changes), *large[at + 1 :]))

    more = replace(tree, seconds=tree.seconds * (1 + 1e-8), below=tree.below * 2)
    false = replace(tree, seconds=certificate.plan.cost.total_s * 1.01, below=tree.below * 2)
    kinds: dict[str, Callable[[], Certificate]] = {
        "more seconds": lambda: replace(certificate, tree=more),
        "more seconds than the plan takes": lambda: replace(certificate, tree=false),
        "a group closed": lambda: replace(certificate, tree=replace(tree, closed=((int(rng.integers(1, 9)), 0),))),
    }  # fmt: skip
    if leaves:
        kinds["all multipliers 0"] = lambda: replace(certificate, tree=replace(tree, parts=tuple(
            proof_with(part, ready=0.0, rest=0.0, byte=0.0) for part in tree.parts)))  # fmt: skip
        kinds["shares above 1"] = lambda: changed(leaves, above_one)
        kinds["a rank filled twice by shares"] = lambda: changed(leaves, filled_again)
        kinds["a plane that is not there"] = lambda: changed(leaves, lambda part: proof_with(part, plane=99))
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
    if filled:
        kinds["a large piece that is not there"] = lambda: changed(filled, lambda part: with_large(part, width=6))
        kinds["a narrower large piece"] = lambda: changed(filled, lambda part: with_large(part, width=4))
        kinds["a large piece of another table"] = lambda: changed(
            filled, lambda part: with_large(part, mode=int(rng.integers(20)))
        )
        kinds["a large piece worth more"] = lambda: changed(filled, lambda part: with_large(part, worth=tree.below))
    if hosts:
        kinds["hosts that are not told apart"] = lambda: replace(certificate, tree=replace(tree, apart=()))
        kinds["hosts told apart by other planes"] = lambda: replace(
            certificate, tree=replace(tree, apart=tuple(shares[::-1] for shares in tree.apart))
        )
        kinds["a discount of a host"] = lambda: changed(
            hosts, lambda part: host_with(part, own=float(rng.normal(0, 3)))
        )
        kinds["seconds of a host worth more"] = lambda: changed(
            hosts, lambda part: host_with(part, ready=float(rng.uniform(1, 4)))
        )
        kinds["seconds of hosts worth nothing"] = lambda: changed(
            hosts, lambda part: host_with(part, ready=0.0, rest=0.0)
        )
    if apart:
        kinds["a range of a host left out"] = lambda: changed(apart, lambda part: replace(part, at=part.at * 1.3))
        kinds["the other host split"] = lambda: changed(apart, lambda part: replace(part, of=1 - part.of))
    if going_on:
        kinds["goes on elsewhere"] = lambda: changed(
            going_on, lambda part: replace(part, into=int(rng.integers(len(tree.parts))))
        )
        kinds["goes on nowhere"] = lambda: changed(going_on, lambda part: replace(part, into=len(tree.parts)))
    if (levels := tree.levels) is not None:
        later = tuple(tuple(2 * end for end in each) for each in levels.ends)
        plane = replace(levels.planes[0], paid=1.0)
        kinds["no levels"] = lambda: replace(certificate, tree=replace(tree, levels=None))
        kinds["other levels"] = lambda: replace(certificate, tree=replace(tree, levels=replace(levels, ends=later)))
        kinds["all of the launch paid"] = lambda: replace(
            certificate, tree=replace(tree, levels=replace(levels, planes=(plane, *levels.planes[1:])))
        )
    if (own := first.ranks) is not None:
        kinds["other ranks"] = lambda: changed([0], lambda part: replace(part, ranks=replace(own, ranks=(0,))))
        kinds["ranks that are not there"] = lambda: changed(
            [0], lambda part: replace(part, ranks=replace(own, ranks=(*own.ranks, 99)))
        )
    if (shared := first.places) is not None:
        longer, other = replace(shared, seconds=1.1 * shared.seconds), replace(shared, constraint=1)
        kinds["a longer step"] = lambda: changed([0], lambda part: replace(part, places=longer))
        kinds["a constraint that is not there"] = lambda: changed([0], lambda part: replace(part, places=other))
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
    sources = [path.read_bytes() for path in sorted(Path(checking.__file__).parent.glob("check*.py"))]
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


def soak(problems: int, wanted: int, first: int, rows_file: Path | None, two_hosts: bool) -> None:
    """Prove certificates again, and see that damaged ones are refused."""
    rows = rows_of(rows_file)
    damages = sum("damage" in row for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proof.json"
        for seed in sorted({*range(first, first + problems)} - {row["seed"] for row in rows}):
            certificate = random_certificate(seed, two_hosts)
            if certificate is None:
                add_row(rows, rows_file, seed=seed, outcome="no plan")
                continue
            outcome, by = proved_again(certificate, file), kind_of(certificate)
            row = {"seed": seed, "outcome": outcome, "gap": gap_of(certificate), "by": by}
            if damages < wanted:
                row["damage"], other = damaged(certificate, np.random.default_rng(seed))
                row["refused"] = damage_outcome(certificate, other, file)
                damages += 1
            add_row(rows, rows_file, **row)
            if row["outcome"] != "proved" or row.get("refused") == "false":
                print(row, file=sys.stderr, flush=True)
    print(f"{len(rows):,} problems: {dict(Counter(row['outcome'] for row in rows))}")
    print(f"proofs: {dict(Counter(row['by'] for row in rows if 'by' in row))}")
    gaps = [row["gap"] for row in rows if "gap" in row]
    print(f"certified gaps: {np.median(gaps):.1%} in the median, {np.quantile(gaps, 0.9):.1%} at the 90th percentile")
    print("| damage | refused | proves its claim all the same | false |\n|---|---|---|---|")
    for kind in sorted({row["damage"] for row in rows if "damage" in row}):
        told = Counter(row["refused"] for row in rows if row.get("damage") == kind)
        print(f"| {kind} | {told['refused']} | {told['right']} | {told['false']} |")


def gap_of(certificate: Certificate) -> float:
    return certificate.plan.cost.total_s / certificate.tree.seconds - 1


def kind_of(certificate: Certificate) -> str:
    """What a certificate rests on."""
    parts = certificate.tree.parts
    if parts[0].ranks is not None or parts[0].places is not None:
        return "constraints"
    if any(part.spreads is not None for part in parts):
        return "spreads"
    if certificate.tree.levels is not None:
        return "levels"
    if any(part.hosts is not None for part in parts):
        return "hosts told apart"
    return "fillings" if any(part.proof is not None and part.proof.large for part in parts) else "multipliers"


def proved_again(certificate: Certificate, file: Path) -> str:
    save_certificate(certificate, file)
    try:
        return "proved" if check_certificate(file) == certificate else "read as another one"
    except RecSmithError as error:
        return f"refused: {error}"


def brute(problems: int, first: int, rows_file: Path | None, two_hosts: bool) -> None:
    """Hold what certificates prove, and the printed bound, against every plan that small problems have.

    The seconds below which a certificate looks are half as many again as the best plan takes, so a false proof shows.
    """
    rows = rows_of(rows_file)
    for seed in sorted({*range(first, first + problems)} - {row["seed"] for row in rows}):
        case, least = small_problem(seed, two_hosts)
        if least is None:
            add_row(rows, rows_file, seed=seed, outcome="no plan")
            continue
        printed = lower_bound(case.evaluator).bound.value_s or 0.0
        found = {"printed": printed, "certified": certified_tree(case.evaluator, BEYOND * least, SMALL_WORK).seconds}
        found |= spread_bound(case, BEYOND * least) | hosts_bound(case, BEYOND * least)
        right = max(found.values()) <= least * (1 + 1e-12)
        gaps = {name: least / max(bound, 1e-300) - 1 for name, bound in found.items()}
        row = {"seed": seed, "outcome": "holds" if right else "false", **gaps}
        add_row(rows, rows_file, **row)
        if not right:
            print(row, file=sys.stderr, flush=True)
    print(f"{len(rows):,} problems: {dict(Counter(row['outcome'] for row in rows))}")
    for name in ("printed", "certified", "by spreads", "of hosts"):
        gaps = [row[name] for row in rows if name in row]
        if gaps:
            print(f"best plan over the {name} bound, of {len(gaps):,}: {np.median(gaps):.2%} in the median, "
                  f"{np.quantile(gaps, 0.9):.1%} at the 90th percentile")  # fmt: skip


def small_problem(seed: int, two_hosts: bool) -> tuple[Case, float | None]:
    """A problem, and the seconds of its best plan; None where it has none, or too many to list."""
    if two_hosts:
        case = two_by_two(seed)
        return case, brute_force(case).least_s
    pick = seeded(seed)
    if seed % EVERY:
        case = small_case(pick, models=BOTH)
        return case, brute_force(case).least_s
    case = replace(constrained_case(pick), cost_model=pick(BOTH))
    every = all_placements(replace(case, constraints=Constraints())).values()
    if np.prod([len(some) for some in every]) > MOST_PLANS:
        return case, None
    try:
        least = least_s(case)
    except UsageError:  # constraints that contradict each other
        return case, None
    return case, least if np.isfinite(least) else None


def spread_bound(case: Case, below: float) -> dict[str, float]:
    """What is certified by every way to spread the columns of the heaviest table, where there is one."""
    problem = build_problem(case.workload, case.cluster, case.space, case.constraints)
    evaluator = cost_model(case.cost_model).compile(problem)
    heavy = heavy_table_bound(evaluator, groups_dominated_by_type(evaluator), below, None)
    if heavy is None:
        return {}
    heavy.solve(SMALL_WORK)
    return {"by spreads": tree_of(evaluator, heavy, below).seconds}


def hosts_bound(case: Case, below: float) -> dict[str, float]:
    """What is certified with two hosts told apart, where there are two."""
    hosts = searched(case, below, SMALL_WORK)
    return {} if hosts is None else {"of hosts": tree_of(case.evaluator, hosts, below).seconds}


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
    parser.add_argument("--two-hosts", action="store_true", help="of problems on two hosts")
    parser.add_argument("--rows", type=Path, help="a file of rows: each problem's is added, and none is asked again")
    chosen = parser.parse_args()
    if chosen.what == "table":
        show_table(chosen.production)
    elif chosen.what == "soak":
        soak(chosen.problems, chosen.damaged, chosen.first, chosen.rows, chosen.two_hosts)
    else:
        brute(chosen.problems, chosen.first, chosen.rows, chosen.two_hosts)


if __name__ == "__main__":
    main()
