"""kill -9 of ranks and of the launcher at random moments: nothing is lost, and the trained weights do not change.

python benchmarks/train_kills.py --kills 10     # ten of each; a restart takes 10 seconds of two free cores
python benchmarks/train_kills.py --kills 2 --ranks 2 --then-ranks 3

Every rank writes down the samples of each step (a watcher of the run). After a run with kills the weights equal
those of a run without, bit for bit; a step that was repeated used the samples that it used before; every sample of the
epoch was used once; and after a kill no more steps were repeated than lie between two checkpoints.

With --run '{"comms": {"name": "thresholded", "dense": 0.05}}' or other words of a run, that run is what is killed.

With --data '{"feed": 2, "window": 16384, "engine": "ray"}' the workers of a feed read the data (docs/feed.md).

With --then-ranks a run that was asked to end (SIGTERM) goes on with another number of ranks; its losses are compared.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
EVERY, BATCH, SAMPLES = 25, 240, 96_000  # steps between checkpoints, global batch, samples: 400 steps
READ_BY: dict[str, object] = {}  # more words of the run's data
WORDS: dict[str, object] = {}  # and of the run
FEATURES = [
    {"name": "a", "num_embeddings": 1000},
    {"name": "b", "num_embeddings": 5003, "pooling_factor": 3, "lengths": "poisson"},
]


def record(step: int, _: float, samples: object) -> None:
    """The watcher: the samples of a step of this rank, on disk before the next step."""
    from recsmith.data import Batch

    assert isinstance(samples, Batch)
    line = json.dumps([step, os.getpid(), samples.sample_ids.tolist()])
    with Path(os.environ["RECORDS"], f"rank-{os.environ['RANK']}.jsonl").open("a") as file:
        file.write(line + "\n")


def write_run(folder: Path, ranks: int) -> Path:
    data = {"format": "generator", "seed": 7, "num_samples": SAMPLES, "dense": 4, "features": FEATURES}
    run = {
        "schema": "recsmith/run/1", "output": str(folder / "out"), "ranks": ranks,
        "data": {"train": data, "global_batch_size": BATCH, **READ_BY},
        "optimizers": {"sparse": {"name": "adagrad"}},
        "checkpoint": {"every": EVERY}, "metrics": {"every": 1}, "watchers": ["train_kills:record"], **WORDS,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    return folder / "run.json"


def start(run: Path, *words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "RECORDS": str(run.parent), "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    with (run.parent / "output.txt").open("ab") as log:
        command = [sys.executable, "-P", "-m", "recsmith", "train", str(run), *words]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def finish(run: Path, process: subprocess.Popen[bytes]) -> None:
    if process.wait() != 0:
        sys.exit((run.parent / "output.txt").read_text()[-3000:])


def records(folder: Path, rank: int) -> list[tuple[int, int, list[int]]]:
    """(step, process, samples) of a rank in the order in which it trained; the last line may be half written."""
    file = folder / f"rank-{rank}.jsonl"
    made = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            made.append(tuple(json.loads(line)))
        except ValueError:
            continue  # the process was killed while it wrote
    return made  # type: ignore[return-value]


def parents_of_processes() -> dict[int, int]:
    """The parent of each process of this machine."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    return parents


def ranks_of(process: int) -> list[int]:
    """Processes of ranks below a launcher: children of its torchrun agent."""
    parents = parents_of_processes()
    agents = [child for child, parent in parents.items() if parent == process]
    return [child for child, parent in parents.items() if parent in agents]


def wait_for_steps(folder: Path, process: subprocess.Popen[bytes], more: int) -> bool:
    """Wait until this many more steps were trained; whether the job still runs."""
    before = len(records(folder, 0))
    while process.poll() is None:
        if len(records(folder, 0)) >= before + more:
            time.sleep(random.random() * 0.05)
            return process.poll() is None
        time.sleep(0.02)
    return False


def kill_ranks(run: Path, kills: int) -> int:
    process, done = start(run, "--max-restarts", str(3 * kills)), 0
    while done < kills and wait_for_steps(run.parent, process, random.randint(1, int(2.2 * EVERY))):
        victims = ranks_of(process.pid)
        if victims:
            os.kill(random.choice(victims), signal.SIGKILL)
            done += 1
    finish(run, process)
    return done


def kill_launchers(run: Path, kills: int) -> int:
    done = 0
    for _ in range(kills):
        process = start(run)
        if wait_for_steps(run.parent, process, random.randint(1, int(2.2 * EVERY))):
            process.kill()
            done += 1
        process.wait()
        time.sleep(1.0)  # the ranks end with it
    finish(run, start(run))
    return done


def check(folder: Path, ranks: int) -> str:
    """What the records say: repeated steps per restart, and whether every sample was used once."""
    used: dict[int, set[int]] = {}
    worst = 0
    for rank in range(ranks):
        mine: dict[int, list[int]] = {}
        last, process = 0, None
        for step, pid, samples in records(folder, rank):
            if process is not None and pid != process:
                worst = max(worst, last - step + 1)
            assert mine.setdefault(step, samples) == samples, f"step {step} of rank {rank} used other samples"
            last, process = step, pid
        for step, samples in mine.items():
            before = len(used.setdefault(step, set()))
            used[step].update(samples)
            assert len(used[step]) == before + len(samples), f"step {step} used a sample twice"
    every = [sample for samples in used.values() for sample in samples]
    assert len(set(every)) == len(every) == SAMPLES, (len(set(every)), len(every))
    assert worst <= EVERY, worst
    return f"{len(used)} steps, {len(every):,} samples once each, at most {worst} steps repeated"


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "out/model/weights.safetensors").read_bytes()).hexdigest()[:16]


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "out/log.jsonl").read_text().splitlines()]
    return [line["logloss"] for line in lines if line["event"] == "train"]


def go_on_elsewhere(root: Path, reference: Path, ranks: int, then: int) -> None:
    folder = root / "elsewhere"
    folder.mkdir()
    run = write_run(folder, ranks)
    process = start(run)
    wait_for_steps(folder, process, 150)
    process.terminate()
    finish(run, process)
    ended = records(folder, 0)[-1][0]
    finish(run, start(run, "--set", f"ranks={then}"))
    found, expected = losses(folder), losses(reference)
    apart = max(abs(one / other - 1) for one, other in zip(found, expected, strict=True))
    said = check(folder, max(ranks, then))
    print(
        f"{ranks} ranks, asked to end after step {ended}, then {then} ranks: {said}; losses apart {apart:.1e}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--then-ranks", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=json.loads, default={})
    parser.add_argument("--run", type=json.loads, default={})
    words = parser.parse_args()
    READ_BY.update(words.data)
    WORDS.update(words.run)
    random.seed(words.seed)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        reference = root / "reference"
        reference.mkdir()
        run = write_run(reference, words.ranks)
        finish(run, start(run))
        print(f"no kill: {check(reference, words.ranks)}; weights {weights(reference)}", flush=True)
        for what, kill in (("ranks", kill_ranks), ("launcher", kill_launchers)):
            if not words.kills:
                break
            folder = root / what
            folder.mkdir()
            run = write_run(folder, words.ranks)
            done = kill(run, words.kills)
            same = "equal" if weights(folder) == weights(reference) else "DIFFERENT"
            print(f"{done} kills of {what}: {check(folder, words.ranks)}; weights {same}", flush=True)
        if words.then_ranks:
            go_on_elsewhere(root, reference, words.ranks, words.then_ranks)


if __name__ == "__main__":
    main()
