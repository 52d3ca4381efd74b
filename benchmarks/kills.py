"""Commands that write are ended at random moments: nothing is lost, nothing is blocked, nothing is left behind.

    python benchmarks/kills.py --kills 20              # of each command, half of them SIGKILL and half SIGTERM
    python benchmarks/kills.py --kills 2 --only convert

Each command is run to its end once, and then ended at moments that are spread over its time, from its first import to
after its last write. The same command is given once more at once. What must hold after each kill:
  lost      the second command ends well, and has written what the first one wrote, byte for byte
            (of `train` the model, of `compress --tune` the curve without its times)
  blocked   no lock of the ended command is in its way
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

WAIT_S = 15.0  # in which processes of an ended command end
FEATURES = [{"name": "user", "num_embeddings": 900}, {"name": "words", "num_embeddings": 400, "pooling_factor": 2}]


@dataclass(frozen=True)
class Command:
    """A command of recsmith, what it writes, and what of that says that all is there."""

    words: tuple[str, ...]
    output: str
    result: Callable[[Path], object]


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


def run(command: Command, folder: Path, after_s: float | None = None, by: signal.Signals = signal.SIGKILL) -> float:
    """Run a command, to its end or until it is ended; its seconds. Raises AssertionError where it fails of itself."""
    begun, ended = time.monotonic(), False
    with (folder / "told.txt").open("wb") as told:
        process = subprocess.Popen(words_of(command), cwd=folder, env=environment(folder), stdout=told, stderr=told)
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(by)
            ended = True
            process.wait(120)
    assert process.returncode == 0 or ended, f"exit {process.returncode}: {(folder / 'told.txt').read_text()[-1500:]}"
    return time.monotonic() - begun


def lying_there(folder: Path) -> set[str]:
    """Names of all that lies in the folder, and in that of temporary files."""
    return {each.name for each in folder.iterdir()} | {f"tmp/{each.name}" for each in (folder / "tmp").iterdir()}


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def ended_and_repeated(command: Command, folder: Path, after_s: float, by: signal.Signals, expected: object) -> str:
    """End a command and give it once more: what is wrong then, or nothing."""
    remove(folder / command.output)
    before = lying_there(folder) | {command.output, "told.txt"}
    run(command, folder, after_s, by)
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


def measure(name: str, kills: int, folder: Path, draw: random.Random) -> list[str]:
    """What went wrong with each kill of a command."""
    command = COMMANDS[name]
    whole_s = run(command, folder)
    expected = command.result(folder / command.output)
    wrong: list[str] = []
    for number in range(kills):
        by = (signal.SIGKILL, signal.SIGTERM)[number % 2]
        after_s = whole_s * (number + draw.random()) / kills
        told = ended_and_repeated(command, folder, after_s, by, expected)
        if told:
            wrong.append(f"{name}, {by.name} after {after_s:.2f} of {whole_s:.2f} s: {told}")
            print(wrong[-1], file=sys.stderr, flush=True)
    print(f"| {name} | {whole_s:.1f} s | {kills - kills // 2} | {kills // 2} | {len(wrong)} |", flush=True)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each command")
    parser.add_argument("--only", choices=COMMANDS, help="one command")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    words = parser.parse_args()
    wrong: list[str] = []
    print("| command | takes | SIGKILL | SIGTERM | lost, blocked or left behind |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(folder)
        for each in [words.only] if words.only else COMMANDS:
            wrong += measure(each, words.kills, folder, random.Random(f"{words.seed} {each}"))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
