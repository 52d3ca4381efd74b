"""Commands that write are ended at random moments: nothing is lost, nothing is blocked, nothing is left behind.

    python benchmarks/kills.py --kills 20              # of each command, half of them SIGKILL and half SIGTERM
    python benchmarks/kills.py --kills 2 --only convert
    python benchmarks/kills.py --kills 20 --only array,servers,tiers      # jobs: 60 instants; as root, for full disks

Each command is run to its end once, and then ended at moments that are spread over its time, from its first import to
after its last write. Jobs of arrays, servers and tables on disk save every few steps, so that moments fall into their
start, between and into checkpoints, and into the export; of each five moments one is a SIGKILL and one a SIGTERM of the
command, two a SIGKILL of one of its processes (agent, rank, trainer, server), after which it must end by itself or go
on, and at one the disk of its output is full from then on until the command has ended. The same command is given once
more at once. What must hold after each kill:
  lost      the second command ends well, and has written what the first one wrote, byte for byte
            (of `train` the model, of `compress --tune` the curve without its times)
  blocked   no lock of the ended command is in its way, and nothing waits for a process that is gone
  behind    no process of it lives, and beside its output lies no file or folder: none half written, no recsmith-job-*
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

WAIT_S = 15.0  # in which processes of an ended command end
ALONE_S = 180.0  # in which a command that lost a process, or its disk, ends or is done
DISK = "disk"  # of the jobs' outputs: a file system of its own
DISK_BYTES = 64 * 2**20
KINDS = ("SIGKILL", "SIGTERM")
KINDS_OF_JOBS = ("SIGKILL", "process", "full disk", "SIGTERM", "process")
FEATURES = [{"name": "user", "num_embeddings": 900}, {"name": "words", "num_embeddings": 400, "pooling_factor": 2}]


@dataclass(frozen=True)
class Command:
    """A command of recsmith, what it writes, and what of that says that all is there."""

    words: tuple[str, ...]
    output: str
    result: Callable[[Path], object]
    kinds: tuple[str, ...] = KINDS


def bytes_of(output: Path) -> object:
    """Names and contents of all files."""
    files = sorted(output.rglob("*")) if output.is_dir() else [output]
    return {
        str(each.relative_to(output)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files if each.is_file()
    }


def model_of(output: Path) -> object:
    """The weights of a trained model, and the names of all that its folder holds."""
    names = sorted(str(each.relative_to(output)) for each in output.rglob("*"))
    return names, hashlib.sha256((output / "model" / "weights.safetensors").read_bytes()).hexdigest()


def models_of(output: Path) -> object:
    """The weights of all models of a job, and the names of its checkpoints."""
    names = sorted(str(each.relative_to(output)) for each in output.rglob("checkpoints/*"))
    found = sorted(output.rglob("model/weights.safetensors"))
    return names, {str(each.relative_to(output)): hashlib.sha256(each.read_bytes()).hexdigest() for each in found}


def curve_of(output: Path) -> object:
    """The points of a curve."""
    return sorted(each.name for each in output.iterdir()), [
        {key: value for key, value in point.items() if not key.endswith("_s")}
        for point in json.loads((output / "curve.json").read_text())["points"]
    ]


COMMANDS = {
    "convert": Command(("data", "convert", "data.json", "-o", "converted", "--file-samples", "10000"), "converted",
                       bytes_of),
    "cluster": Command(("data", "cluster", "day", "-o", "sessions", "--memory", "16MiB"), "sessions", bytes_of),
    "compress": Command(("compress", "--data", "run.json", "--method", "mixed_dimension", "--target", "2x", "--run",
                         "small.json"), "small.json", bytes_of),
    "tune": Command(("compress", "--data", "tuned.json", "--tune", "curve", "--methods", "hash", "--factors", "4",
                     "--seeds", "1"), "curve", curve_of),
    "train": Command(("train", "run.json"), "out", model_of),
    **{
        name: Command(("train", f"{name}.json"), f"{DISK}/{name}", models_of, KINDS_OF_JOBS)
        for name in ("array", "servers", "tiers")
    },
}  # fmt: skip


def write_inputs(folder: Path) -> None:
    """Data, a dataset of it, and two runs."""
    sessions = {"sessions": {"size": 4, "duplication": 0.9}, "dense": 2, "features": FEATURES, "format": "generator"}
    (folder / "data.json").write_text(json.dumps({**sessions, "num_samples": 100_000}))
    train = {"format": "generator", "num_samples": 6000, "dense": 2, "features": FEATURES}
    run = {
        "schema": "recsmith/run/1", "ranks": 1, "output": "out", "checkpoint": {"every": 10}, "metrics": {"every": 10},
        "data": {"train": train, "test": {**train, "num_samples": 1000}, "batch_size": 100},
        "model": {"embedding_dim": 8, "bottom": [8], "top": [8]},
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "tuned.json").write_text(json.dumps({**run, "output": "tuned"}))
    job = {**run, "checkpoint": {"every": 4, "keep": 2}}
    members = {"one": [], "other": ["seed=1"], "third": ["optimizers.dense.learning_rate=0.01"]}
    large = [{"name": name, "num_embeddings": 20_000} for name in ("user", "item")]
    train = {**train, "features": large}
    jobs = {
        "array": {"ranks": 2, "array": {"members": members, "together": "always"}},
        "servers": {"remote": {"servers": 2, "timeout_s": 20}},
        "tiers": {"ranks": 2, "rows": {"name": "tiered", "folder": "rows", "cache": 0.1},
                  "data": {"train": train, "test": {**train, "num_samples": 1000}, "batch_size": 100}},
    }  # fmt: skip
    (folder / "rows").mkdir()
    for name, words in jobs.items():
        (folder / f"{name}.json").write_text(json.dumps({**job, "output": f"{DISK}/{name}", **words}))
    made = subprocess.run(words_of(COMMANDS["convert"]), cwd=folder, env=environment(folder), capture_output=True)
    assert made.returncode == 0, made.stderr.decode()
    (folder / "converted").rename(folder / "day")


def words_of(command: Command) -> list[str]:
    return [sys.executable, "-P", "-m", "recsmith", *command.words]


def environment(folder: Path) -> dict[str, str]:
    """With a folder for temporary files of its own, and the name by which processes of a command are found."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder / "tmp"), "KILLS_OF": str(folder)}


def alive(folder: Path) -> list[int]:
    """Processes of the folder's commands: those that carry its name in their environment."""
    mark, found = f"KILLS_OF={folder}\0".encode(), []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes() + b"\0":
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def run(command: Command, folder: Path, after_s: float | None = None, kind: str = "") -> float:
    """Run a command, to its end or until it is disturbed; its seconds. AssertionError where it fails of itself."""
    begun, ended = time.monotonic(), False
    with (folder / "told.txt").open("wb") as told:
        process = subprocess.Popen(words_of(command), cwd=folder, env=environment(folder), stdout=told, stderr=told)
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            disturb(process, folder, kind)
            ended = True
            try:
                process.wait(ALONE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"still there {ALONE_S:g} s after {kind}") from None
            finally:
                (folder / DISK / "filler").unlink(missing_ok=True)
    said = (folder / "told.txt").read_text()
    assert process.returncode == 0 or ended, f"exit {process.returncode}: {said[-1500:]}"
    return time.monotonic() - begun


def disturb(process: subprocess.Popen[bytes], folder: Path, kind: str) -> None:
    """Do to a command what is to be survived."""
    if kind == "full disk":
        with (folder / DISK / "filler").open("wb") as file, suppress(OSError):  # the job took some of what was free
            os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(folder / DISK).free))
    elif kind == "process":
        others = [each for each in alive(folder) if each != process.pid]
        with suppress(ProcessLookupError):
            os.kill(random.choice(others) if others else process.pid, signal.SIGKILL)
    else:
        process.send_signal(signal.Signals[kind])


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of a few megabytes for the outputs of jobs; whether it could be mounted, which takes root."""
    (folder / DISK).mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder / DISK)]
    mounted = not subprocess.run(words, capture_output=True).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder / DISK)], check=True)


def lying_there(folder: Path) -> set[str]:
    """Names of all that lies in the folder, and in that of temporary files."""
    return {each.name for each in folder.iterdir()} | {f"tmp/{each.name}" for each in (folder / "tmp").iterdir()}


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def ended_and_repeated(command: Command, folder: Path, after_s: float, kind: str, expected: object) -> str:
    """Disturb a command and give it once more: what is wrong then, or nothing."""
    remove(folder / command.output)
    before = lying_there(folder) | {command.output, "told.txt"}
    try:
        run(command, folder, after_s, kind)
    except AssertionError as error:
        return f"blocked: {error}"
    since = time.monotonic()
    while alive(folder) and time.monotonic() - since < WAIT_S:
        time.sleep(0.05)
    if left := alive(folder):
        return f"behind: processes {left}"
    try:
        run(command, folder)
    except AssertionError as error:
        return f"blocked, or lost: {error}"
    if command.result(folder / command.output) != expected:
        return "lost: the output is another one"
    behind = lying_there(folder) - before
    return f"behind: {', '.join(sorted(behind))}" if behind else ""


def measure(name: str, kills: int, folder: Path, draw: random.Random, *, small: bool) -> list[str]:
    """What went wrong with each kill of a command. small: whether the disk of jobs can be full."""
    command = COMMANDS[name]
    whole_s = run(command, folder)
    expected = command.result(folder / command.output)
    wrong, done = list[str](), Counter[str]()
    for number in range(kills):
        kind = command.kinds[number % len(command.kinds)]
        kind = "process" if kind == "full disk" and not small else kind
        after_s = whole_s * (number + draw.random()) / kills
        told = ended_and_repeated(command, folder, after_s, kind, expected)
        done[kind] += 1
        if told:
            wrong.append(f"{name}, {kind} after {after_s:.2f} of {whole_s:.2f} s: {told}")
            print(wrong[-1], file=sys.stderr, flush=True)
    said = ", ".join(f"{count} {kind}" for kind, count in done.items())
    print(f"| {name} | {whole_s:.1f} s | {said} | {len(wrong)} |", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    parser.add_argument("--only", help=f"some commands, with commas between them: {', '.join(COMMANDS)}")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    words = parser.parse_args()
    wrong: list[str] = []
    print("| command | takes | ended by | lost, blocked or left behind |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, small_disk(Path(name)) as small:
        folder = Path(name)
        if not small:
            print("no file system could be mounted, which takes root: no disk is full", file=sys.stderr)
        write_inputs(folder)
        for each in words.only.split(",") if words.only else COMMANDS:
            wrong += measure(each, words.kills, folder, random.Random(f"{words.seed} {each}"), small=small)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
