"""Memory of training jobs: peaks beside the plan's prediction, a model of 8 GiB, and resident memory over 10,000 steps.

python benchmarks/train_memory.py -o bench/train-memory           # all of it, 2 ranks; goes on where it was ended
python benchmarks/train_memory.py --quick -o /tmp/rehearsal       # small tables and few steps
python benchmarks/train_memory.py --only large -o bench/train-memory

Peaks: each model trains under a plan by hand, twice: with its tables, and with tables of a few rows under the same
placements. What the peak resident memory of a rank has more in the first job is what its tables add; beside it stands
what `predicted_bytes` has more for the first plan. So program, dense layers, batches and readers count in neither.

Large: 8 GiB of tables under an auto plan; what a rank holds at its peak, beside its shards and all that is predicted.
Steps: the slope of resident memory over the last four fifths of a run that saves checkpoints.
"""

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import recsmith
from recsmith import Feature, Placement, Plan, Table, Workload
from recsmith.files import write_text
from recsmith.planning.simulate import price
from recsmith.problems.rank_bytes import predicted_bytes
from recsmith.units import format_size

RANKS, FOLDER, EVERY = 2, "RECSMITH_BENCH_MEMORY", 10  # environment of ranks: where they write; steps between two lines
FEW = 256  # rows of the tables that stand in for those of a model
Rows = dict[str, tuple[int, float, str, tuple[int, ...]]]  # by table: rows, ids a sample, sharding type, ranks


@dataclass(frozen=True)
class Case:
    """A model whose peaks are measured. tables: what each has, and where it is."""

    model: dict[str, Any]
    optimizer: str
    batch_size: int
    tables: Rows


CASES = {
    "DLRM, table_wise and row_wise, adagrad": Case(
        {"name": "dlrm", "embedding_dim": 64}, "adagrad", 2048,
        {"a": (1_000_000, 1, "table_wise", (0,)), "b": (800_000, 5, "table_wise", (1,)),
         "c": (1_500_000, 10, "row_wise", (0, 1))},
    ),
    "DeepFM, column_wise and data_parallel, sgd": Case(
        {"name": "deepfm", "embedding_dim": 128}, "sgd", 2048,
        {"a": (1_000_000, 2, "column_wise", (0, 1)), "b": (100_000, 1, "data_parallel", (0, 1)),
         "c": (700_000, 1, "table_wise", (1,))},
    ),
    "DLRM-DCN, row_wise, rowwise_adagrad": Case(
        {"name": "dlrm_dcn", "embedding_dim": 64, "cross_rank": 32}, "rowwise_adagrad", 4096,
        {"a": (2_000_000, 20, "row_wise", (0, 1)), "b": (1_000_000, 1, "row_wise", (0, 1))},
    ),
}  # fmt: skip


def watch(step: int, _: float, __: Any) -> None:
    """What each rank runs after a step: a line of resident and peak memory."""
    from recsmith._process import proc_bytes

    if step % EVERY == 0:
        words = {"step": step, "rss": proc_bytes("self/status", "VmRSS"), "peak": proc_bytes("self/status", "VmHWM")}
        with Path(os.environ[FOLDER], f"memory-{os.environ['RANK']}.jsonl").open("a") as file:
            file.write(json.dumps(words) + "\n")


def lines_of(folder: Path) -> list[list[dict[str, int]]]:
    """What each rank wrote."""
    return [
        [json.loads(line) for line in (folder / f"memory-{rank}.jsonl").read_text().splitlines()]
        for rank in range(RANKS)
    ]


def trained(folder: Path, raw: dict[str, Any]) -> list[list[dict[str, int]]]:
    """Train a run in an empty folder, of which its plan alone stays; the memory of each rank."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ[FOLDER] = str(folder)
    from recsmith.training import run_from_raw, train

    head = {"schema": "recsmith/run/1", "output": str(folder / "out"), "ranks": RANKS}
    run = {**head, "watchers": ["train_memory:watch"], **raw}
    train(run_from_raw(run, "the run"))
    shutil.copy(folder / "out" / "plan.json", folder / "plan.json")
    shutil.rmtree(folder / "out")
    return lines_of(folder)


def data_of(tables: Rows) -> dict[str, Any]:
    """Generated samples that read all rows of each table alike."""
    features = [
        {"name": name, "num_embeddings": rows, "pooling_factor": ids, "zipf": 0}
        for name, (rows, ids, _, _) in tables.items()
    ]
    return {"format": "generator", "seed": 5, "dense": 13, "num_samples": 10_000_000, "features": features}


def plan_of(case: Case, tables: Rows) -> Plan:
    """The plan by hand of a case, with these tables."""
    dim = case.model["embedding_dim"]
    nouns = tuple(
        Table(name=name, num_embeddings=rows, embedding_dim=dim, features=(Feature(name=name, pooling_factor=ids),))
        for name, (rows, ids, _, _) in tables.items()
    )
    placements = tuple(
        Placement(
            table=name, sharding_type=kind, ranks=ranks,
            compute_kernel="dense" if kind == "data_parallel" else "fused",
            widths=(dim // 2, dim // 2) if kind == "column_wise" else (),
        )
        for name, (_, _, kind, ranks) in tables.items()
    )  # fmt: skip
    workload = Workload(batch_size=case.batch_size, optimizer=case.optimizer, tables=nouns)  # type: ignore[arg-type]
    return price(workload, f"cpu:{RANKS}", placements)


def peaks(case: Case, folder: Path, quick: bool) -> dict[str, list[int]]:
    """What tables add to each rank's peak, measured and predicted."""
    whole = {name: (rows // (20 if quick else 1), *rest) for name, (rows, *rest) in case.tables.items()}
    few = {name: (FEW, *rest) for name, (_, *rest) in case.tables.items()}
    measured, predicted = list[list[int]](), list[list[int]]()
    for name, tables in (("whole", whole), ("few", few)):
        plan = plan_of(case, tables)  # type: ignore[arg-type]
        folder.mkdir(parents=True, exist_ok=True)
        recsmith.save_plan(plan, folder / f"{name}.json")
        run = {
            "data": {"train": data_of(tables), "batch_size": case.batch_size}, "model": case.model,  # type: ignore[arg-type]
            "plan": str(folder / f"{name}.json"), "steps": 20 if quick else 60, "checkpoint": None,
            "optimizers": {"sparse": {"name": case.optimizer}},
        }  # fmt: skip
        measured.append([lines[-1]["peak"] for lines in trained(folder / name, run)])
        predicted.append([shards + base for shards, base in predicted_bytes(plan)])
    return {
        key: [int(one - other) for one, other in zip(*pair, strict=True)]
        for key, pair in (("measured", measured), ("predicted", predicted))
    }


def large(folder: Path, quick: bool) -> dict[str, Any]:
    """Peaks of a model of 8 GiB under an auto plan, its shards and what is predicted."""
    rows = 100_000 if quick else 4 * 2**20  # of 64 columns in fp32: 1 GiB
    tables: Rows = {f"t{number}": (rows, 1 + number % 3, "", ()) for number in range(8)}
    run = {
        "data": {"train": data_of(tables), "batch_size": 2048}, "model": {"name": "dlrm", "embedding_dim": 64},
        "steps": 20 if quick else 100, "checkpoint": None, "optimizers": {"sparse": {"name": "rowwise_adagrad"}},
    }  # fmt: skip
    measured = [lines[-1]["peak"] for lines in trained(folder, run)]
    plan = recsmith.load_plan(folder / "plan.json")
    return {
        "weights": plan.workload.weight_bytes, "measured": measured,
        "predicted": [shards + base for shards, base in predicted_bytes(plan)],
    }  # fmt: skip


def steps(folder: Path, quick: bool) -> dict[str, Any]:
    """Resident memory of each rank over many steps: bytes for 1,000 steps by least squares, first and last."""
    count = 400 if quick else 10_000
    tables: Rows = {f"t{number}": (20_000, 1, "", ()) for number in range(8)}
    run = {
        "data": {"train": data_of(tables), "batch_size": 256}, "model": {"name": "dlrm", "embedding_dim": 16},
        "steps": count, "checkpoint": {"every": count // 10, "keep": 2}, "metrics": {"every": 100},
    }  # fmt: skip
    made: dict[str, Any] = {"steps": count, "slope": [], "first": [], "last": []}
    for lines in trained(folder, run):
        late = [line for line in lines if line["step"] > count // 5]
        at, rss = np.array([[line["step"] / 1000, line["rss"]] for line in late]).T
        made["slope"].append(float(np.polyfit(at, rss, 1)[0]))
        made["first"].append(late[0]["rss"])
        made["last"].append(late[-1]["rss"])
    return made


def once(file: Path, make: Any) -> Any:
    """What a file holds; made and written where it is not there."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(str(file), json.dumps(make()))
    return json.loads(file.read_text())


def sizes(numbers: Sequence[float]) -> str:
    return ", ".join(format_size(int(number)) for number in numbers)


def show_peaks(output: Path, quick: bool) -> None:
    print("What tables add to the peak of each rank: measured, predicted, ratio")
    for number, (name, case) in enumerate(CASES.items()):
        folder = output / f"peaks-{number}"
        found = once(output / f"peaks-{number}.json", lambda case=case, folder=folder: peaks(case, folder, quick))
        ratios = [one / other for one, other in zip(found["measured"], found["predicted"], strict=True)]
        print(f"{name}: {sizes(found['measured'])}; {sizes(found['predicted'])}; "
              f"{', '.join(f'{ratio:.3f}' for ratio in ratios)}", flush=True)  # fmt: skip


def show_large(output: Path, quick: bool) -> None:
    found = once(output / "large.json", lambda: large(output / "large", quick))
    print(f"{format_size(found['weights'])} of tables on {RANKS} ranks: peak of each {sizes(found['measured'])}, the "
          f"program included; predicted for embeddings {sizes(found['predicted'])}", flush=True)  # fmt: skip


def show_steps(output: Path, quick: bool) -> None:
    found = once(output / "steps.json", lambda: steps(output / "steps", quick))
    slopes = ", ".join(f"{slope / 2**10:+,.0f} KiB" for slope in found["slope"])
    print(f"{found['steps']:,} steps: {slopes} for 1,000 steps by rank; resident after a fifth of them "
          f"{sizes(found['first'])}, at the end {sizes(found['last'])}", flush=True)  # fmt: skip


def main() -> None:
    parts = {"peaks": show_peaks, "large": show_large, "steps": show_steps}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(parts), nargs="*", default=list(parts))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench/train-memory"))
    words = parser.parse_args()
    for name in words.only:
        parts[name](words.output, words.quick)


if __name__ == "__main__":
    main()
