"""Tables of raw ids beside hashed tables of the same bytes and tables without end: quality, CPU time, and bits.

    python benchmarks/dynamic.py quality --scale 0.05 -o dynamic.jsonl   # AUC on streams of known truth
    python benchmarks/dynamic.py cost                                    # CPU time of a lookup, beside a plain table's
    python benchmarks/dynamic.py exact                                   # jobs that are killed, and other ranks

`quality` writes a line for each training and leaves out those that are there: stop it, and start it again. --scale 1 is
10^8 raw ids of a feature in 10^6 rows, over 32 million samples; a part of it has that share of each.
docs/dynamic.md shows what it found.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

IDS, ROWS, SAMPLES, PERIODS = 10**8, 10**6, 32 * 10**6, 7.5  # of a stream of scale 1; other ids are hot after a period
FEATURES, DIM, BATCH, TESTED = ("user", "item"), 16, 1024, 0.02
STATE_BYTES = 4  # of a row, of rowwise_adagrad
ARMS = ("one row", "hash", "lru", "lfu", "age", "lru, admit 2", "lfu, admit 2", "no end")
SEEDS = 5


# --- quality ---------------------------------------------------------------------------------------------------------


def stream(scale: float, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what is trained on, what comes after it)."""
    samples, tested = round(SAMPLES * scale), round(SAMPLES * scale * TESTED)
    features = [{"name": name, "num_embeddings": round(IDS * scale), "zipf": 1.05} for name in FEATURES]
    words = {
        "format": "generator", "seed": seed, "dense": 2,
        "features": [*features, {"name": "kind", "num_embeddings": 50}],
        "swap": {"samples": round(samples / PERIODS)}, "teacher": {"signal": 2.0, "pairs": 0.2, "dense": 0.1},
    }  # fmt: skip
    return {**words, "num_samples": samples}, {**words, "num_samples": tested, "first_sample": samples}


def of_arm(arm: str, scale: float, data: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(the data as an arm reads it, what the model says of its tables)."""
    from recsmith.workloads import Dynamic

    rows = round(ROWS * scale)
    if arm in ("one row", "hash"):
        own = DIM * 4 + STATE_BYTES
        count = 1 if arm == "one row" else round(rows * (own + Dynamic(admit=2).row_bytes) / own)
        ops = [{"op": "hash", "feature": name, "num_embeddings": count} for name in FEATURES]
        return {**data, "transforms": ops}, []
    if arm == "no end":
        ends = min(round(IDS * scale) + 1, round(SAMPLES * scale) + 2)
        return data, [{"tables": name, "rows": ends, "evict": "none"} for name in FEATURES]
    evict, _, admit = arm.partition(", admit ")
    return data, [{"tables": name, "rows": rows, "evict": evict, "admit": int(admit or 1)} for name in FEATURES]


def trained(arm: str, scale: float, seed: int, rate: float) -> dict[str, Any]:
    """What came of one training."""
    from recsmith.training import train
    from recsmith.training.run import run_from_raw

    train_on, test_on = stream(scale, seed)
    data, rules = of_arm(arm, scale, train_on)
    test, _ = of_arm(arm, scale, test_on)
    with tempfile.TemporaryDirectory() as folder:
        raw = {
            "schema": "recsmith/run/1", "output": f"{folder}/out", "ranks": 1, "checkpoint": None, "seed": seed,
            "data": {"train": data, "test": test, "batch_size": BATCH, "shuffle": False},
            "model": {"embedding_dim": DIM, "bottom": [32], "top": [64, 32], "dynamic": rules},
            "optimizers": {"sparse": {"name": "rowwise_adagrad", "learning_rate": rate}},
            "metrics": {"every": max(1, round(SAMPLES * scale) // BATCH // 20)},
        }  # fmt: skip
        begun = cpu_seconds()
        result = train(run_from_raw(raw, "the benchmark"))
        lines = [json.loads(line) for line in Path(folder, "out", "log.jsonl").read_text().splitlines()]
    said = [line for line in lines if line["event"] == "train"]
    later = said[len(said) // 2 :]  # the second half of training, scored before it is learned
    dynamic = [line for line in later if "dynamic_ids" in line]
    return {
        "arm": arm, "scale": scale, "seed": seed, "rate": rate, "auc": result["test"]["auc"],
        "ne": result["test"]["ne"], "auc_in_training": statistics.fmean(line["auc"] for line in later),
        "served": statistics.fmean(each["dynamic_served"] for each in dynamic) if dynamic else None,
        "ids": dynamic[-1]["dynamic_ids"] if dynamic else None, "cpu_s": cpu_seconds() - begun,
    }  # fmt: skip


def cpu_seconds() -> float:
    """Of this process and of those that it has started and that have ended."""
    return sum(os.times()[:4])


def quality(scale: float, seeds: int, rate: float, output: Path, arms: list[str]) -> None:
    """Train what is missing, and print the table."""
    lines = output.read_text().splitlines() if output.exists() else []
    known = {(each["arm"], each["scale"], each["seed"], each["rate"]): each for each in map(json.loads, lines)}
    for seed in range(seeds):
        for arm in arms:
            if (arm, scale, seed, rate) in known:
                continue
            found = trained(arm, scale, seed, rate)
            known[arm, scale, seed, rate] = found
            with output.open("a") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{arm}, seed {seed}: AUC {found['auc']:.4f}, {found['cpu_s']:.0f} CPU s", file=sys.stderr)
    print(f"{round(IDS * scale):,} ids of each of {len(FEATURES)} features, {round(ROWS * scale):,} rows, "
          f"{round(SAMPLES * scale):,} samples, {seeds} seeds")  # fmt: skip
    print(
        "| table | AUC afterwards | beside hash, by seeds | share of the gain without end | AUC in training | served |"
    )
    print("|---|---|---|---|---|---|")
    of: dict[str, list[dict[str, Any]]] = {
        arm: [known[arm, scale, seed, rate] for seed in range(seeds) if (arm, scale, seed, rate) in known]
        for arm in arms
    }
    for arm in arms:
        print(row_of(arm, of))


def row_of(arm: str, of: dict[str, list[dict[str, Any]]]) -> str:
    """A line of the table."""
    auc = np.array([each["auc"] for each in of[arm]])
    beside = auc - [each["auc"] for each in of["hash"]]
    one, best = (np.array([each["auc"] for each in of[name]]) for name in ("one row", "no end"))
    gain = (auc - one) / (best - one)
    training = statistics.fmean(each["auc_in_training"] for each in of[arm])
    served = [each["served"] for each in of[arm] if each["served"] is not None]
    return (
        f"| {arm} | {auc.mean():.4f} | {beside.mean():+.4f} ({beside.min():+.4f} to {beside.max():+.4f}) | "
        f"{gain.mean():.1%} ({gain.min():.1%} to {gain.max():.1%}) | {training:.4f} | "
        f"{f'{statistics.fmean(served):.1%}' if served else ''} |"
    )


# --- cost ------------------------------------------------------------------------------------------------------------


def batches_of(ids: int, count: int, length: int, seed: int) -> Iterator[np.ndarray]:
    """Ids of batches by Zipf's law, of which a hundredth have never been there."""
    from recsmith._random import ZipfLaw

    law, drawn = ZipfLaw(ids, 1.05), np.random.default_rng(seed)
    for number in range(count):
        found = law.ranks(drawn.random(length)) * 2_654_435_761 % 2**40
        new = drawn.random(length) < 0.01
        found[new] = 2**41 + number * length + np.arange(new.sum())
        yield found


def cost(rows: list[int], dim: int, batch: int, steps: int) -> None:
    """CPU milliseconds of a lookup, forward and backward, and of what raw ids add to it."""
    from recsmith.jobs.launch import launch

    print("| rows | different ids | lookups that give a row anew | plain table, ms | raw ids, ms | in all |")
    print("|---|---|---|---|---|---|")
    for count in rows:
        for times in (1, 20):
            given = {"rows": count, "ids": count * times, "dim": dim, "batch": batch, "steps": steps}
            found = launch("dynamic:cost_on_rank", given, ranks=1)[0]
            print(f"| {count:,} | {count * times:,} | {found['again'] / batch:.1%} | {found['plain']:.2f} "
                  f"| {found['more']:.2f} | {1 + found['more'] / found['plain']:.2f} |", flush=True)  # fmt: skip


def cost_on_rank(rows: int, ids: int, dim: int, batch: int, steps: int) -> dict[str, Any]:
    """Medians of CPU milliseconds: of a sharded table of rows, and of giving raw ids theirs."""
    import torch
    from torchrec import EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.optim import RowWiseAdagrad
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

    from recsmith.training.systems.dynamic.settings import DynamicRule
    from recsmith.training.systems.dynamic.tables import DynamicBags

    config = EmbeddingBagConfig(name="t", num_embeddings=rows, embedding_dim=dim, feature_names=["t"])
    made = DynamicBags([config], torch.device("meta"), dynamic={"t": DynamicRule(tables="t", evict="lru")})
    apply_optimizer_in_backward(RowWiseAdagrad, made.parameters(), {"lr": 0.01})
    model: Any = DistributedModelParallel(made, device=torch.device("cpu"))
    bags: Any = model.module
    maps, plain, more, again = bags.maps, list[float](), list[float](), list[int]()
    lengths = torch.ones(batch, dtype=torch.int32)
    every = np.arange(min(rows, ids) - 1) * 2_654_435_761 % 2**40  # the most frequent ids: the table is full
    for some in np.array_split(every[::-1], max(1, len(every) // (rows // 4))):
        maps.tables["t"].take(some, np.ones(len(some), np.int64), 0)
    for number, some in enumerate(batches_of(ids, steps, batch, 0)):
        raw = KeyedJaggedTensor(keys=["t"], values=torch.from_numpy(some), lengths=lengths)
        before = maps.evicted
        begun = time.process_time()
        known = maps.rows(raw, bags.tables)
        mapped = time.process_time()
        bags.tables(known)["t"].sum().backward()
        ended = time.process_time()
        if number >= steps // 2:
            more.append(mapped - begun)
            plain.append(ended - mapped)
            again.append(maps.evicted - before)
    return {"plain": statistics.median(plain) * 1e3, "more": statistics.median(more) * 1e3,
            "again": statistics.fmean(again)}  # fmt: skip


# --- the same bits ---------------------------------------------------------------------------------------------------


def run_file(folder: Path, name: str, **changed: Any) -> Path:
    """A run of 60 steps in a table that is much too small for its ids."""
    features = [{"name": name, "num_embeddings": 200_000, "zipf": 0.9} for name in FEATURES]
    data = {"format": "generator", "seed": 5, "dense": 2, "features": features, "num_samples": 256 * 60}
    raw = {
        "schema": "recsmith/run/1", "output": str(folder / name), "ranks": 2,
        "data": {"train": data, "global_batch_size": 256},
        "model": {"embedding_dim": 8, "bottom": [8], "top": [8],
                  "dynamic": [{"tables": "user", "rows": 2000, "evict": "lfu", "admit": 2},
                              {"tables": "item", "rows": 1500, "evict": "lru"}]},
        "checkpoint": {"every": 10, "keep": 9}, "metrics": {"every": 20}, **changed,
    }  # fmt: skip
    path = folder / f"{name}.json"
    path.write_text(json.dumps(raw))
    return path


def exact() -> None:
    """Kill a job in the middle, several times, and let it go on; then on other ranks from its checkpoints."""
    train = [sys.executable, "-m", "recsmith", "train"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([*train, run_file(folder, "whole")], check=True, capture_output=True)
        killed = 0
        for after in (10, 30, 50):
            ended = subprocess.Popen([*train, run_file(folder, "killed")], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
            while ended.poll() is None and not (folder / "killed" / "checkpoints" / f"step-{after:08d}").exists():
                time.sleep(0.02)
            if ended.poll() is None:
                subprocess.run(["kill", "-9", "--", f"-{ended.pid}"], check=False)
                killed += 1
            ended.wait()
        subprocess.run([*train, run_file(folder, "killed")], check=True, capture_output=True)
        print(f"killed {killed} times (signal {signal.SIGKILL}): {said(folder, 'killed', weights=True)}")
        for ranks in (1, 3):
            own = {} if ranks == 1 else {"data": None}
            name = f"ranks-{ranks}"
            path = run_file(folder, name, ranks=ranks)
            if own:
                raw = json.loads(path.read_text())
                raw["data"] |= {"global_batch_size": 258}
                raw["data"]["train"]["num_samples"] = 258 * 60
                path.write_text(json.dumps(raw))
                alone = run_file(folder, "beside-3", ranks=1)
                alone.write_text(json.dumps({**raw, "ranks": 1, "output": str(folder / "beside-3")}))
                subprocess.run([*train, alone], check=True, capture_output=True)
            subprocess.run([*train, path], check=True, capture_output=True)
            print(f"{ranks} ranks: {said(folder, name, beside='beside-3' if own else 'whole')}")


def said(folder: Path, name: str, *, weights: bool = False, beside: str = "whole") -> str:
    """Whether ids, and weights, are those of another run."""
    files = ["ids.user.safetensors", "ids.item.safetensors", *(["weights.safetensors"] if weights else [])]
    same = [
        (folder / name / "model" / each).read_bytes() == (folder / beside / "model" / each).read_bytes()
        for each in files
    ]
    return ", ".join(
        f"{each} {'the same bits' if equal else 'OTHER BITS'}" for each, equal in zip(files, same, strict=True)
    )


def main() -> None:
    """Read what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_subparsers(dest="what", required=True)
    of_quality = asked.add_parser("quality")
    of_quality.add_argument("--scale", type=float, default=0.05)
    of_quality.add_argument("--seeds", type=int, default=SEEDS)
    of_quality.add_argument("--rate", type=float, default=0.1, help="learning rate of tables")
    of_quality.add_argument("--arms", nargs="+", default=list(ARMS))
    of_quality.add_argument("-o", "--output", type=Path, default=Path("dynamic.jsonl"))
    of_cost = asked.add_parser("cost")
    of_cost.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    of_cost.add_argument("--dim", type=int, default=64)
    of_cost.add_argument("--batch", type=int, default=8192)
    of_cost.add_argument("--steps", type=int, default=400)
    asked.add_parser("exact")
    given = parser.parse_args()
    if given.what == "quality":
        quality(given.scale, given.seeds, given.rate, given.output, given.arms)
    elif given.what == "cost":
        cost(given.rows, given.dim, given.batch, given.steps)
    else:
        exact()


if __name__ == "__main__":
    main()
