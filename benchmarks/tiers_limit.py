"""A job with tables on disk in a memory limit for the whole command: killed again and again, and every other path.

    python benchmarks/tiers_limit.py --folder FOLDER               # 4 GiB of tables in 1,280 MiB, 20 kills; root
    python benchmarks/tiers_limit.py --folder FOLDER --rows 20000 --kills 2 --cache 0.2    # small

Launcher, agent and rank are in one memory cgroup. A job that is left alone comes first: it starts, trains, saves and
exports. Then the same job is killed, all of its processes at once by SIGKILL, in turn while it loads, trains and writes
a checkpoint, and started again by the same command in the same limit; it must end with the same weights. Last are going
back to a checkpoint, planning anew, going on to the end with its export, scoring, and moving a checkpoint to another
plan. Each line says the most bytes that the processes held, but for pages of files, or what was refused.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiers import Group, exported, write_run

from recsmith.training.watchers.protocol import Seen, Watcher, Wish

HERE = Path(__file__).resolve().parent
STEPS, EVERY = 24, 4
KINDS = ("loading", "training", "saving")
PLAN = "plan.json"


class Asking(Watcher):
    """Asks for something after a step, once in a process."""

    def __init__(self, *, what: Any, step: int) -> None:
        self.what, self.step = what, step

    def look(self, seen: Seen) -> Wish | None:
        """Ask for it at its step."""
        if seen.step != self.step:
            return None
        self.step = -1
        return Wish(self.what, "asked for")


class Command:
    """A command in a memory cgroup of so many bytes, and the most that its processes held."""

    def __init__(self, limit: int, output: Path, *words: str) -> None:
        self.group = Group(f"recsmith-limit-{os.getpid()}-{time.monotonic_ns()}", limit)
        self.most, self.began = 0, time.monotonic()
        environment = {**os.environ, "PYTHONPATH": f"{HERE}:{os.environ.get('PYTHONPATH', '')}"}
        with output.open("w") as said:
            self.process = subprocess.Popen(
                self.group.entering([sys.executable, "-m", "recsmith", *words]),
                env=environment, stdout=said, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def wait(self, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait until it ends, or something is so; whether it still runs."""
        while self.process.poll() is None and not until():
            lines = (self.group.folder / "memory.stat").read_text().splitlines()
            stated = dict(line.split() for line in lines)
            self.most = max(self.most, int(stated.get("total_rss", stated.get("anon", 0))))
            time.sleep(0.05)
        return self.process.poll() is None

    def kill(self) -> None:
        """End all of its processes at once."""
        for each in (self.group.folder / "cgroup.procs").read_text().split():
            os.kill(int(each), signal.SIGKILL)
        self.process.wait()

    def end(self) -> str:
        """Remove the cgroup; what is said of the command."""
        until = time.monotonic() + 60
        while (self.group.folder / "cgroup.procs").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        self.group.end()
        return f"{self.most / 2**20:,.0f} MiB | {time.monotonic() - self.began:,.0f} s"


def events(folder: Path) -> list[dict[str, Any]]:
    """The log of the job of a folder, of all its lives."""
    file = folder / "out" / "log.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def lived(folder: Path, lives: int) -> list[dict[str, Any]]:
    """What the newest life has logged, from its start on, where so many had started before it."""
    logged = events(folder)
    begun = [at for at, each in enumerate(logged) if each["event"] == "start"]
    return logged[begun[-1] :] if len(begun) > lives else []


def starts(folder: Path) -> int:
    """How many lives have loaded and started."""
    return sum(each["event"] == "start" for each in events(folder))


def moment(kind: str, folder: Path) -> Callable[[], bool]:
    """Whether it is time to kill a job that has just been started."""
    before, began = starts(folder), time.monotonic()
    wait_s, more = random.uniform(2, 25), random.randint(1, EVERY + 1)
    partial_at: list[float] = []

    def loading() -> bool:
        return time.monotonic() > began + wait_s or bool(lived(folder, before))

    def training() -> bool:
        return sum(each["event"] == "train" for each in lived(folder, before)) >= more

    def saving() -> bool:
        if not partial_at and any((folder / "out" / "checkpoints").glob("*.partial")):
            partial_at.append(time.monotonic() + random.uniform(0, 6))
        return bool(partial_at) and time.monotonic() > partial_at[0]

    return {"loading": loading, "training": training, "saving": saving}[kind]


def killed(folder: Path, run: Path, limit: int, kills: int) -> bool:
    """Kill a job so many times and let it end; whether each life went on from the newest checkpoint, and it ended."""
    good = True
    for number in range(kills + 1):
        kind = KINDS[number % len(KINDS)] if number < kills else "none"
        newest, before = newest_step(folder), starts(folder)
        command = Command(limit, folder / f"life-{number}.txt", "train", str(run))
        alive = command.wait(moment(kind, folder) if number < kills else lambda: False)
        if alive:
            command.kill()
        code, told = command.process.returncode, command.end()
        life = lived(folder, before)
        began = [each["step"] for each in life if each["event"] == "start"]
        last = max([each["step"] for each in life if each["event"] == "train"], default=None)
        fine = all(each == newest for each in began) and (alive if number < kills else code == 0)
        good = good and fine
        print(
            f"| {number + 1} | {kind} | {newest} | {began[0] if began else 'not yet'} | {last or '-'} | {told} "
            f"| {'' if fine else f'WRONG: exit code {code}'} |",
            flush=True,
        )
    return good


def newest_step(folder: Path) -> int:
    """The step of the newest complete checkpoint."""
    found = (folder / "out" / "checkpoints").glob("step-*")
    return max([int(each.name[5:]) for each in found if not each.name.endswith(".partial")], default=0)


def tried(name: str, limit: int, output: Path, *words: str) -> None:
    """Run a command in the limit, and print what came of it."""
    command = Command(limit, output, *words)
    command.wait()
    code = command.process.returncode
    said = output.read_text().strip().splitlines()
    print(f"| {name} | {code} | {command.end()} | {'' if code == 0 else ' '.join(said[-3:])[:600]} |", flush=True)


def other_paths(folder: Path, run: Path, limit: int) -> None:
    """Every way to read or write the tables, each in the limit."""
    raw, out = json.loads(run.read_text()), folder / "out"
    shutil.rmtree(out / "model")
    for what, step in (("roll_back", STEPS + 6), ("replan", STEPS + 3)):
        file = folder / f"{what}.json"
        more = {"steps": STEPS + 8, "watchers": [{"name": "tiers_limit:Asking", "what": what, "step": step}]}
        file.write_text(json.dumps({**raw, **more}))
        for each in (out / "checkpoints").glob("step-*"):
            if int(each.name[5:]) > STEPS:
                shutil.rmtree(each)
        tried(what, limit, folder / f"{what}.txt", "train", str(file))
        shutil.rmtree(out / "model", ignore_errors=True)
    tried("go on, export", limit, folder / "end.txt", "train", str(folder / "replan.json"))
    tried("evaluate", limit, folder / "evaluate.txt", "evaluate", str(out))
    state = out / "checkpoints" / f"step-{newest_step(folder):08d}" / "state"
    plans = "--from", str(folder / PLAN), "--to", str(folder / "other.json")
    tried("reshard", limit, folder / "reshard.txt", "reshard", str(state), *plans, "-o", str(folder / "resharded"))
    shutil.rmtree(folder / "resharded", ignore_errors=True)


def made(folder: Path, rows: int, cache: float) -> Path:
    """A run in a folder, and beside its plan one of two ranks."""
    test = {"format": "generator", "num_samples": 4096, "dense": 13, "first_sample": 10**6}
    tiered = {"name": "tiered", "folder": str(folder / "rows"), "cache": cache}
    of = {"rows": tiered, "pipeline": "prefetch_sparse_dist", "checkpoint": {"every": EVERY}, "steps": STEPS}
    write_run(folder, rows, STEPS, 2, "rowwise_adagrad", {})
    shutil.move(folder / PLAN, folder / "other.json")
    run = write_run(folder, rows, 2 * STEPS, 1, "rowwise_adagrad", of)
    raw = json.loads(run.read_text())
    raw["data"]["test"] = {**test, "features": raw["data"]["train"]["features"]}
    run.write_text(json.dumps(raw))
    return run


def main(given: Sequence[str] | None = None) -> None:
    """Run all, and say whether the job that was killed ended as the one that was not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=2_097_152)
    parser.add_argument("--limit", type=int, default=1280 * 2**20)
    parser.add_argument("--cache", type=float, default=0.03)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(given)
    random.seed(asked.seed)
    whole, other = asked.folder / "whole", asked.folder / "killed"
    run = made(whole, asked.rows, asked.cache)
    print("| path | exit code | most held | took | said |\n|---|---|---|---|---|")
    tried("start, train, save, export", asked.limit, whole / "said.txt", "train", str(run))
    digest = exported(whole)
    shutil.rmtree(whole / "out" / "checkpoints")
    print("\n| life | killed while | newest checkpoint | went on from | last step | most held | took | |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    good = killed(other, made(other, asked.rows, asked.cache), asked.limit, asked.kills)
    same = exported(other) == digest
    print(f"\nweights {digest}, and of the job that was killed {'the same' if same else exported(other)}\n")
    print("| path | exit code | most held | took | said |\n|---|---|---|---|---|")
    other_paths(other, other / "run.json", asked.limit)
    if not (good and same):
        sys.exit("the jobs differ, or a life did not go on from the newest checkpoint")


if __name__ == "__main__":
    main()
