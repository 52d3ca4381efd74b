"""kill -9 in the middle of what `rows: tiered` does: a job that goes on afterwards equals one that was never killed.

    python benchmarks/tiers_kills.py                  # five kills of each of four kinds, on one rank
    python benchmarks/tiers_kills.py --ranks 2 --each 1

A rank kills itself, with SIGKILL, half way through a fetch of rows, a write-back of rows that leave the cache, a flush
before a checkpoint, and directly before or after the rename that completes one. Its launcher starts it again, and it
goes on from its newest checkpoint until the next kill. At the end the exported weights, and the log loss of every step,
are compared with those of a job without kills, bit for bit.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import train_kills
from train_kills import finish, losses, start, weights

KINDS = ("fetch", "write-back", "flush", "rename")
MOST = {"fetch": 60, "write-back": 30, "flush": 4, "rename": 2}  # calls in a process before the one that is fatal
STEPS, EVERY = 300, 6
LEFT, DONE = "left.json", "done.txt"
_armed: list[str] = []


def arm(step: int, _: float, samples: object) -> None:
    """The watcher: on a rank's first step, see to it that the rank dies as the list of what is left says."""
    del step, samples
    folder = Path(os.environ["RECORDS"])
    if _armed or not (folder / LEFT).exists():
        return
    left = json.loads((folder / LEFT).read_text())
    _armed.append("once")
    if left and left[0]["rank"] == int(os.environ["RANK"]):
        _deadly(folder, left)


def _deadly(folder: Path, left: list[dict[str, Any]]) -> None:
    """Put the next kill where it belongs."""
    from recsmith.training.systems.tiers.rows import TieredTables

    kind, calls = left[0]["kind"], left[0]["calls"]
    rename, seen = Path.rename, [0]

    def die(said: str) -> None:
        (folder / LEFT).write_text(json.dumps(left[1:]))
        with (folder / DONE).open("a") as file:
            file.write(f"{said}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    def is_it() -> bool:
        seen[0] += 1
        return seen[0] == calls

    def dying(now: str, move: Any) -> Any:
        def moved(tables: Any, table: int, rows: Any, slots: Any) -> None:
            if len(rows) and now == kind and is_it():
                half = len(rows) // 2
                move(tables, table, rows[:half], slots[:half])
                die(f"{kind}, after {half} of {len(rows)} rows")
            move(tables, table, rows, slots)

        return moved

    def dying_rename(path: Path, target: Any) -> Path:
        fatal = kind == "rename" and path.name.endswith(".partial") and is_it()
        if fatal and left[0]["before"]:
            die("rename, before it")
        renamed = rename(path, target)
        if fatal:
            die("rename, after it")
        return renamed

    for now, name in (("fetch", "_bring"), ("write-back", "_leave"), ("flush", "_settle")):
        setattr(TieredTables, name, dying(now, getattr(TieredTables, name)))
    patched: Any = Path
    patched.rename = dying_rename


def instants(each: int, ranks: int, kinds: tuple[str, ...]) -> list[dict[str, Any]]:
    """Kills of every kind, in random order; checkpoints are renamed by rank 0."""
    made = [
        {
            "kind": kind, "calls": random.randint(1, MOST[kind]), "before": i % 2 == 0,
            "rank": 0 if kind == "rename" else random.randrange(ranks),
        }
        for kind in kinds for i in range(each)
    ]  # fmt: skip
    random.shuffle(made)
    return made


def trained(folder: Path, ranks: int, optimizer: str, kills: list[dict[str, Any]]) -> None:
    """Train the job, with these kills."""
    folder.mkdir()
    rows = {"name": "tiered", "folder": str(folder / "rows"), "cache": 0.1}
    train_kills.WORDS.update(
        {"rows": rows, "pipeline": "prefetch_sparse_dist", "steps": STEPS, "watchers": ["tiers_kills:arm"],
         "optimizers": {"sparse": {"name": optimizer, "learning_rate": 0.5}}, "checkpoint": {"every": EVERY}}
    )  # fmt: skip
    train_kills.FEATURES[:] = [
        {"name": "a", "num_embeddings": 20_000, "pooling_factor": 2},
        {"name": "b", "num_embeddings": 8_000},
    ]
    (folder / LEFT).write_text(json.dumps(kills))
    run = train_kills.write_run(folder, ranks)
    finish(run, start(run, "--max-restarts", str(2 * len(kills) + 1)))


def main() -> None:
    """Train once without kills and once with them, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--optimizer", default="rowwise_adagrad")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, nargs="*", default=KINDS)
    asked = parser.parse_args()
    random.seed(asked.seed)
    with tempfile.TemporaryDirectory() as name:
        whole, killed = Path(name, "whole"), Path(name, "killed")
        trained(whole, asked.ranks, asked.optimizer, [])
        print(f"no kill: weights {weights(whole)}", flush=True)
        trained(killed, asked.ranks, asked.optimizer, instants(asked.each, asked.ranks, tuple(asked.only)))
        done = (killed / DONE).read_text().splitlines()
        for line in done:
            print(line)
        same = weights(whole) == weights(killed) and losses(whole) == losses(killed) and len(losses(whole)) == STEPS
        print(f"{len(done)} kills: weights {weights(killed)}; with all losses {'equal' if same else 'DIFFERENT'}")
        if not same or len(done) < asked.each * len(asked.only):
            sys.exit("the jobs differ, or too few kills happened")


if __name__ == "__main__":
    main()
