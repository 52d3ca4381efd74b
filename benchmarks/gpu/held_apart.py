"""Cost models beside kernels of production size that their training did not see: five whole jobs, and random groups.

python benchmarks/gpu/held_apart.py split samples/h100-production some      # the samples without those that judge
recsmith learn cost --data some,shipped:h100 --variant monotone -o some.safetensors
python benchmarks/gpu/held_apart.py judge samples/h100-production neural:some.safetensors analytic torchrec
python benchmarks/gpu/held_apart.py judge samples/h100-production neural:h200 --gpu h200    # the same cases elsewhere

JOBS were chosen before any model had learned from these samples: one of dlrm-v2, one of Criteo 1 TB in fp16, two
sampled lists, one of them under Adam, and NVIDIA's largest. No rank of a plan of theirs trains, nor do random groups
whose number is one more than a multiple of five, a quarter of what ships. Other jobs of dlrm-v2 and Criteo do train,
with other batches, optimizers or devices; no other job has the tables of the sampled lists and of NVIDIA's.

A rank is priced as planning does it: by the law of its reads, with expected counts of different rows; several kernels
add up. The error is |predicted / measured - 1| of forward and backward together. Takes a minute for four models.
"""

import argparse
import shutil
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from production import Row, blocks_of, case_of, known_rows, lines_of, packed_or_not

from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import cost_model
from recsmith.costs.pricing import one_device
from recsmith.costs.protocol import CostModel
from recsmith.errors import RecSmithError
from recsmith.hardware.simulated import problem_of

JOBS = (
    "dlrm-v2--h100_8-4096-rowwise_adagrad--", "criteo-1tb--h100_8x4-2048-rowwise_adagrad--fp16",
    "sample-120-h100_8-8192-rowwise_adagrad--", "sample-100-h100_8x2-2048-adam--",
    "nvidia-large--h100_8x4-512-rowwise_adagrad--",
)  # fmt: skip
EVERY, FIRST = 5, 1  # of the numbers of random groups, those that judge; multiples of five were never published
ROWS = Path("samples/h200-production/rows.jsonl.xz")
HEADER = "| kernels | how many | model | predicted / measured, median | off by, median | 90th percentile |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("split")
    made.add_argument("folder", type=Path)
    made.add_argument("target", type=Path)
    made.add_argument("--cases", type=Path, help="folder whose ranks.jsonl says which plans have a case")
    judged = commands.add_parser("judge")
    judged.add_argument("folder", type=Path)
    judged.add_argument("models", nargs="+")
    judged.add_argument("--gpu", default="h100", help="h200: by its rows of the same cases")
    options = parser.parse_args()
    if options.command == "split":
        split(options.folder, options.target, options.cases or options.folder)
        return
    warnings.filterwarnings("ignore", message=".*extrapolates beyond")
    device, seconds = one_device(load_cluster(options.gpu)), None if options.gpu == "h100" else ROWS
    print("\n".join(tables(options.folder, options.models, device, seconds)))


# --- what trains -----------------------------------------------------------------------------------------------------


def plans_of(folder: Path) -> dict[tuple[str, str], list[str]]:
    """The loads of the ranks of each plan, by job and planner."""
    lines = [row for row in lines_of(packed_or_not(folder / "ranks.jsonl")) if "unit" in row]
    return {(row["unit"], row["planner"]): row["ranks"] for row in lines}


def judged_loads(folder: Path) -> set[str]:
    """Loads of ranks of JOBS."""
    return {load for (job, _), loads in plans_of(folder).items() if job in JOBS for load in loads if load}


def is_judge(scale: str, number: int, kept: set[int]) -> bool:
    return number in kept if scale == "plans" else number % EVERY == FIRST


def split(folder: Path, target: Path, cases: Path) -> None:
    """Folders of kernels without those that judge."""
    import pyarrow.parquet as pq

    loads = judged_loads(cases)
    rows = (row for row in lines_of(packed_or_not(cases / "ranks.jsonl")) if row.get("load") in loads)
    kept = {case["number"] for row in rows for case in row["cases"]}
    for about in sorted(folder.glob("*/about.json")):
        made = target / about.parent.name
        made.mkdir(parents=True, exist_ok=True)
        shutil.copy(about, made)
        for part in sorted(about.parent.glob("*.parquet")):
            table = pq.read_table(part)
            scales, numbers = table["scale"].to_pylist(), table["number"].to_pylist()
            trains = [not is_judge(scale, number, kept) for scale, number in zip(scales, numbers, strict=True)]
            pq.write_table(table.filter(trains), made / part.name)
            print(f"{made}: {sum(trains):,} of {len(trains):,}")


# --- what judges -----------------------------------------------------------------------------------------------------


def tables(folder: Path, names: Sequence[str], device: Cluster, seconds: Path | None) -> Iterator[str]:
    """How far each model is off, by kind of kernels; then its slowest ranks and its picks among the plans of a job."""
    models = {name: cost_model(name) for name in names}
    loads = judged_loads(folder)
    measured = {row["key"]: row for row in lines_of(seconds) if row.get("status") == "ok"} if seconds else None
    judges = dict[str, tuple[Row, float]]()
    for key, case, row in known_rows(folder):
        found = row if measured is None else measured.get(key)
        kept = key.removeprefix("rank-") in loads or (
            case["kind"] == "random" and case["cases"][0]["number"] % EVERY == FIRST
        )
        if kept and found and found.get("status", "ok") == "ok":
            judges[key] = case, found["forward_s"] + found["backward_s"]
    said = {
        name: {key: predicted(model, case, device) for key, (case, _) in judges.items()}
        for name, model in models.items()
    }  # fmt: skip
    plans = {plan: loads for plan, loads in plans_of(folder).items() if plan[0] in JOBS}
    yield HEADER + "\n|" + "---|" * HEADER.count(" |")
    for what, chosen in kinds(judges, plans):
        for name, predictions in said.items() if chosen else ():
            ratios = [predictions[key] / judges[key][1] for key in chosen]
            yield f"| {what} | {len(chosen):,} | {name} | {cells(ratios)} |"
    yield "\n| plans of five jobs | slowest rank, predicted / measured | pick longer than the shortest |\n|---|---|---|"
    for name, predictions in said.items():
        yield f"| {name} | {whole_plans(plans, judges, predictions)} |"


def kinds(judges: dict[str, tuple[Row, float]], plans: dict[Any, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Which kernels a line of the table is of."""

    def those(rule: Callable[[Row], bool]) -> list[str]:
        return [key for key, (case, _) in judges.items() if rule(case)]

    def is_rank(case: Row) -> bool:
        return case["kind"] == "rank"

    def kind(case: Row) -> tuple[str, str]:
        return case["cases"][0]["optimizer"], case["cases"][0]["data_type"]

    yield "ranks of five jobs", those(is_rank)
    for job in JOBS:
        own = {f"rank-{load}" for (name, _), loads in plans.items() if name == job for load in loads}
        yield f"ranks of {job.strip('-')}", [key for key in judges if key in own]
    yield "ranks, fp32", those(lambda case: is_rank(case) and kind(case)[1] == "fp32")
    yield "ranks, fp16", those(lambda case: is_rank(case) and kind(case)[1] == "fp16")
    yield "ranks, Adam", those(lambda case: is_rank(case) and kind(case)[0] == "adam")
    yield "ranks with row blocks", those(lambda case: is_rank(case) and max(case["blocks"]) > 1)
    yield "ranks with one kernel of whole tables", those(lambda case: is_rank(case) and case["blocks"] == [1])
    yield "random groups", those(lambda case: not is_rank(case))
    for optimizer in ("sgd", "adagrad", "rowwise_adagrad", "adam"):
        yield f"random groups, {optimizer}", those(lambda case, o=optimizer: not is_rank(case) and kind(case)[0] == o)
    yield "random groups, fp16", those(lambda case: not is_rank(case) and kind(case)[1] == "fp16")


def predicted(model: CostModel, case: Row, device: Cluster) -> float:
    """Seconds of a rank's kernels, forward and backward; NaN where the model refuses one."""
    try:
        return sum(
            kernel_seconds(model, case_of(raw, blocks), device)
            for raw, blocks in zip(case["cases"], blocks_of(case), strict=True)
        )
    except RecSmithError:
        return float("nan")


def kernel_seconds(model: CostModel, case: Any, device: Cluster) -> float:
    evaluator = model.compile(problem_of(case, device))
    widths = evaluator.problem.demand.dim[evaluator.problem.modes.table]
    terms = evaluator.terms(np.arange(len(widths)), widths)
    return float(evaluator.head(terms.sum(axis=0, keepdims=True))[0, :2].sum())


def cells(ratios: Sequence[float]) -> str:
    known = np.array(ratios)[np.isfinite(ratios)]
    if not known.size:
        return "refused | | "
    middle, high = np.percentile(np.abs(known - 1), (50, 90))
    refused = f" ({len(ratios) - known.size:,} refused)" if known.size < len(ratios) else ""
    return f"{np.median(known):.3f} | {middle:.1%} | {high:.1%}{refused}"


def whole_plans(plans: dict[Any, list[str]], judges: dict[str, tuple[Row, float]], said: dict[str, float]) -> str:
    """Slowest ranks' kernels, predicted over measured, and what is lost by a model's pick of a job's plans."""
    steps = defaultdict[str, list[tuple[float, float]]](list)
    for (job, _), loads in plans.items():
        keys = [f"rank-{load}" for load in loads if load]
        if all(key in judges for key in keys):
            told, took = (
                float(np.max(parts)) for parts in zip(*((said[key], judges[key][1]) for key in keys), strict=True)
            )
            steps[job].append((told, took))
    known = {job: found for job, found in steps.items() if np.isfinite(found).all()}
    if not known:
        return "refused | "
    ratios = [told / took for found in known.values() for told, took in found]
    lost = [min(found)[1] / min(took for _, took in found) - 1 for found in known.values()]
    refused = f" ({len(steps) - len(known)} of {len(steps)} jobs refused)" if len(known) < len(steps) else ""
    return (f"{np.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f}), {len(ratios)} plans{refused} | "
            f"{np.mean(lost):.1%} in the mean, {max(lost):.1%} at most")  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except RecSmithError as error:
        raise SystemExit(str(error)) from None
