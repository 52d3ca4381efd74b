"""Tables on servers beside the planned job: samples a second, with all trainers alike and with one that is slow.

    python benchmarks/remote.py                         # every case, minutes each; rows are printed
    python benchmarks/remote.py --only "planned;sockets"
    python benchmarks/remote.py --only "planned;sockets" --ids 20    # of a sample and table
    python benchmarks/remote.py --rows rows.jsonl       # keeps what was measured, and goes on from there
    python benchmarks/remote.py --exact                 # losses of 40 steps beside the planned job's, and bytes

Two trainers and one server, 8 tables of 100,000 rows and 32 columns, 512 samples a trainer and step. In cases that are
called slowed each step sleeps: 0.2 s on trainer 0, and three times as long on trainer 1, as if a GPU were busy. The
table of docs/remote.md.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from recsmith.training import Checkpointing, Run, RunData, RunMetrics, RunModel, train
from recsmith.training.systems.remote.settings import RunRemote

STEPS, WARM, BATCH, TABLES, ROWS, COLUMNS = 40, 10, 512, 8, 100_000, 32
BASE_S, TIMES = 0.2, 3
CASES: dict[str, dict[str, Any]] = {
    "planned": {},
    "sockets": {"remote": RunRemote()},
    "sockets, two servers": {"remote": RunRemote(servers=2)},
    "rpc": {"remote": RunRemote(backend="rpc")},
    "ray": {"remote": RunRemote(backend="ray")},
    "planned slowed": {"watchers": ("remote:slowed",)},
    "rpc slowed": {"watchers": ("remote:slowed",), "remote": RunRemote(backend="rpc")},
    "rpc slowed staleness 4": {"watchers": ("remote:slowed",), "remote": RunRemote(staleness=4, backend="rpc")},
}


def slowed(step: int, loss: float, samples: object) -> None:
    """A watcher that makes a step longer, and longer still on trainer 1."""
    del step, loss, samples
    time.sleep(BASE_S * (TIMES if os.environ["RANK"] == "1" else 1))


def trained(words: dict[str, Any], folder: Path, ids: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What came of a job, and the lines of its log. ids: of a sample and table."""
    features = [{"name": f"f{each}", "num_embeddings": ROWS, "pooling_factor": ids} for each in range(TABLES)]
    data = {"format": "generator", "seed": 1, "dense": 13, "features": features, "num_samples": 10**6}
    settings: dict[str, Any] = {"ranks": 2, "metrics": RunMetrics(every=WARM), **words}
    run = Run(
        data=RunData(train=data, batch_size=BATCH), model=RunModel(embedding_dim=COLUMNS, bottom=(64,)),
        output=str(folder), steps=STEPS, checkpoint=Checkpointing(every=10**6), **settings,
    )  # fmt: skip
    result = train(run)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return result, [line for line in lines if line["event"] == "train"]


def measured(words: dict[str, Any], folder: Path, ids: int = 1) -> dict[str, Any]:
    """Samples a second of a job after its first steps, and what its trainers moved."""
    result, lines = trained(words, folder, ids)
    told = result.get("remote", {})
    if "seconds" in told:  # by leases: all batches of all trainers
        return {"samples_per_s": told["batches"] * BATCH / told["seconds"], **told}
    rates = [line["samples_per_s"] for line in lines[1:]]
    return {"samples_per_s": len(rates) / sum(1 / rate for rate in rates), **told}


def exact(backend: Any, trainers: int, folder: Path) -> dict[str, Any]:
    """How far losses are from the planned job's at most, and bytes over those of rows, gradients and ids."""
    words: dict[str, Any] = {"metrics": RunMetrics(every=1), "ranks": trainers}
    _, planned = trained(words, folder / "planned")
    result, found = trained({**words, "remote": RunRemote(servers=2, backend=backend)}, folder / backend)
    told = result["remote"]
    moved, needed = told["sent_bytes"] + told["received_bytes"], 2 * told["row_bytes"] + told["id_bytes"]
    pairs = zip(found, planned, strict=True)
    return {
        "furthest": max(abs(one["logloss"] / other["logloss"] - 1) for one, other in pairs),
        "bytes": moved / needed,
    }


def main() -> None:
    """Measure the cases that are not in the rows yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=";".join(CASES), help="cases, with ; between them")
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--ids", type=int, default=1, help="of a sample and table")
    parser.add_argument("--exact", action="store_true")
    arguments = parser.parse_args()
    if arguments.exact:
        for backend, trainers in (("rpc", 1), ("rpc", 2), ("ray", 1), ("ray", 2)):
            with tempfile.TemporaryDirectory() as folder:
                print(f"| {backend} | {trainers} | {exact(backend, trainers, Path(folder))} |", flush=True)
        return
    wanted: list[str] = [each for each in CASES if each in arguments.only.split(";")]
    kept: dict[str, Any] = {}
    if arguments.rows and arguments.rows.exists():
        kept = dict(json.loads(line) for line in arguments.rows.read_text().splitlines())
    for name in wanted:
        if name not in kept:
            with tempfile.TemporaryDirectory() as folder:
                kept[name] = measured(CASES[name], Path(folder) / "out", arguments.ids)
            if arguments.rows:
                with arguments.rows.open("a") as file:
                    file.write(json.dumps([name, kept[name]]) + "\n")
        print(f"| {name} | {kept[name]['samples_per_s']:,.0f} | {json.dumps(kept[name])} |", flush=True)


if __name__ == "__main__":
    main()
