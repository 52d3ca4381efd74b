"""Real jobs on 2, 4, 3 and 2 ranks, each going on from the resharded checkpoint of the one before; then ten kills.

python benchmarks/reshard_jobs.py                 # some five minutes on two cores; the jobs are in tests/support

In each turn every table gets another sharding type. Printed are hashes that stay, and how far the losses of the next
job are from those of the job before, had it gone on. Then the command is killed by SIGKILL ten times, at random.
"""

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path.insert(0, str(TESTS))

SHAPES = ((1, 2), (2, 2), (1, 3), (1, 2))  # ranks of a host, hosts: grid_shard needs two hosts
STEPS = 3  # that a job trains before it saves, and again after it
KILLS, ROWS = 10, 60_000
MOST_CHUNKS = 12  # that a run adds before it is killed


def main() -> None:
    """Both parts, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("jobs", "kills"))
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as name:
        if only != "kills":
            chain(Path(name))
        if only != "jobs":
            kills(Path(name))


def chain(home: Path) -> None:
    """Train, save, reshard, go on: three times, for three kinds of state."""
    from support.exactness import cpu_cluster
    from support.resharding import columns_kept, turned

    clusters = [cpu_cluster(*shape) for shape in SHAPES]
    plans = {
        ("adagrad", "every table another type"): [turned(each, turn) for turn, each in enumerate(clusters)],
        ("rowwise_adagrad", "columns as before"): [columns_kept(each, turn) for turn, each in enumerate(clusters)],
        ("rowwise_adagrad", "columns cut elsewhere"): [
            turned(each, turn, "rowwise_adagrad") for turn, each in enumerate(clusters)
        ],
    }
    before = job(home, plans, 0)
    for number in range(1, len(SHAPES)):
        moved = {name: move(home, name, each, number) for name, each in plans.items()}
        after = job(home, plans, number)
        ranks = [shape[0] * shape[1] for shape in SHAPES]
        print(f"{ranks[number - 1]} -> {ranks[number]} ranks")
        for name, was, now in zip(plans, before, after, strict=True):
            apart = max(abs(a - b) / abs(a) for a, b in zip(was[STEPS:], now[:STEPS], strict=True))
            print(f"  {', '.join(name)}: {moved[name]}; losses of {STEPS} steps within {apart:.1e}")
        before = after


def job(home: Path, plans: dict[Any, Any], number: int) -> list[list[float]]:
    """Losses of the jobs of one turn, all in one start."""
    from recsmith.jobs.launch import launch
    from recsmith.plans import plan_to_raw

    first = number * STEPS
    jobs: list[dict[str, Any]] = []
    for name, each in plans.items():
        words = {"plan": plan_to_raw(each[number]), "optimizer": name[0], "steps": [first, first + 2 * STEPS]}
        folders = {"save": folder(home, name, number, "saved"), "save_after": first + STEPS}
        load = {"load": folder(home, name, number, "moved")} if number else {}
        jobs.append(words | folders | load)
    ranks, hosts = SHAPES[number][0] * SHAPES[number][1], SHAPES[number][1]
    return launch("support.resharding:train", {"jobs": jobs}, ranks=ranks, hosts=hosts)[0]


def folder(home: Path, name: tuple[str, str], number: int, kind: str) -> str:
    return str(home / f"{'-'.join(name).replace(' ', '-')}-{number}-{kind}")


def move(home: Path, name: tuple[str, str], plans: list[Any], number: int) -> str:
    """Reshard for a turn; what became of hashes and states, in words."""
    from support.resharding import hashes

    from recsmith.adapters.reshard.reshard import reshard

    old, new = folder(home, name, number - 1, "saved"), folder(home, name, number, "moved")
    report = reshard(old, plans[number - 1], plans[number], new)
    before, after = hashes(Path(old)), hashes(Path(new))
    same = sum(before[key] == after.get(key) for key in before)
    inexact = f"state of {len(report.inexact)} of {len(report.tables)} tables inexact"
    return f"{same} of {len(before)} hashes the same, {inexact}"


def kills(home: Path) -> None:
    """Kill the command ten times, then let it end; the outcome beside that of a run that nobody killed."""
    from support.exactness import cpu_cluster
    from support.resharding import turned, whole, write_whole

    from recsmith.adapters.reshard.partial import JOURNAL
    from recsmith.plans import save_plan

    write_whole(home / "large", rows=ROWS)
    save_plan(whole(rows=ROWS), home / "old.json")
    save_plan(turned(cpu_cluster(2, 2), 3, rows=ROWS), home / "new.json")
    original = files(home / "large")
    assert run(home, "at-once").wait() == 0
    drawn, journal = random.Random(0), home / "out.partial" / JOURNAL
    kept: list[int] = []
    while len(kept) < KILLS:
        process = run(home, "out")
        more = chunks(journal) + drawn.randint(1, MOST_CHUNKS)
        while process.poll() is None and chunks(journal) < more:
            time.sleep(0.001)
        time.sleep(drawn.uniform(0.0, 0.02))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (home / "out").exists():  # it was complete already; once more from the start
            assert files(home / "out") == files(home / "at-once")
            shutil.rmtree(home / "out")
        kept.append(chunks(journal))
    assert run(home, "out").wait() == 0
    same = files(home / "out") == files(home / "at-once")
    print(f"killed {len(kept)} times, with {kept} chunks kept")
    print(f"the output {'is' if same else 'IS NOT'} that of a run in one go")
    print(f"the old checkpoint {'is untouched' if files(home / 'large') == original else 'WAS TOUCHED'}")


def chunks(journal: Path) -> int:
    """How many chunks a partial checkpoint holds for good."""
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def run(home: Path, output: str) -> subprocess.Popen[bytes]:
    """The command, with a commit after every few chunks; a commit of 256 MiB would be one of the whole here."""
    code = (
        "from recsmith.adapters.reshard import partial; partial.COMMIT_BYTES = 2**20; "
        "from recsmith.cli import main; main()"
    )
    words = ["reshard", "large", "--from", "old.json", "--to", "new.json", "-o", output]
    return subprocess.Popen([sys.executable, "-c", code, *words], cwd=home, stdout=subprocess.DEVNULL)


def files(of: Path) -> dict[str, bytes]:
    """The files of a checkpoint, but for its metadata, which names its folder and the save."""
    return {path.name: path.read_bytes() for path in sorted(of.iterdir()) if path.name != ".metadata"}


if __name__ == "__main__":
    main()
