"""What a feed survives: parts `kills` and `trainer` of benchmarks/feed.py. Every sample is counted by its id.

`kills` ends workers with kill -9 while a simulated trainer goes on. With Ray the workers are actors on two nodes beside
a head without cores, all on this machine; every other time the node of an actor is ended instead, by kill -9 of its own
process, and another node joins.

`trainer` ends the trainer itself, a process that keeps its position every 20 steps as a checkpoint does, and starts
it again. Steps after the position are trained again, with the samples that they had before.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from feed_data import BATCH, settings

from recsmith.data import Position
from recsmith.feeding import Feed, engine_of, read_statuses, status_file
from recsmith.files import decode, dump_json, encode, parse_json, write_text
from recsmith.jobs.machine import LOOPBACK

EVERY = 20  # steps between two positions that the trainer keeps
STEP_S = 0.01  # that a step of it takes beside its data
QUICK_HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 2}


def kills(words: Any) -> None:
    """Ids of an epoch in which workers, and nodes of Ray, are killed."""
    made, _ = settings(words.steps * BATCH, 4 * BATCH)  # small windows, so that nearly every loss is noticed
    luck, ids, killed = random.Random(0), list[int](), {"workers": 0, "nodes": 0}
    at = set(luck.sample(range(1, words.steps), words.kills))
    with nodes(words.engine) as cluster:
        engine = engine_of(words.engine, made, cluster and cluster.address)
        with Feed(made, 2, engine=engine) as feed:
            for number, batch in enumerate(feed):
                ids += batch.sample_ids.tolist()
                if number in at:
                    of_node = words.engine == "ray" and sum(killed.values()) % 2 == 1
                    victim = luck.choice(running(feed))
                    victim = parent_of(victim) if of_node else victim
                    os.kill(victim, signal.SIGKILL)
                    if of_node:
                        os.waitpid(victim, 0)  # its actors end once nothing of it is left
                        cluster.add_node(num_cpus=2, node_ip_address=LOOPBACK)
                    killed["nodes" if of_node else "workers"] += 1
            lost = feed.figures.lost
    same = sorted(ids) == list(range(words.steps * BATCH))
    print(f"{killed['workers']} workers and {killed['nodes']} nodes killed, {lost} workers replaced; "
          f"{len(ids):,} samples, each exactly once: {same}")  # fmt: skip
    assert same


@contextmanager
def nodes(engine: str) -> Generator[Any]:
    """Two nodes of Ray beside a head without cores; None for the local engine."""
    if engine == "local":
        yield None
        return
    from recsmith.feeding.on_ray import imported_ray

    imported_ray(loopback=True)
    from ray.cluster_utils import Cluster  # pyright: ignore[reportMissingImports]

    head = {"num_cpus": 0, "node_ip_address": LOOPBACK, "include_dashboard": False, "_system_config": QUICK_HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=2, node_ip_address=LOOPBACK)
        yield cluster
    finally:
        cluster.shutdown()


def running(feed: Feed) -> list[int]:
    """Processes of the feed's workers, once there is one."""
    while True:
        places = [thread.worker.place.rpartition(":")[2] for thread in list(feed.threads.values())]
        if found := [int(place) for place in places if place and runs(int(place))]:
            return found
        time.sleep(0.05)


def runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def trainer(words: Any) -> None:
    """Ids of an epoch in which the trainer is killed; whether its workers end with it."""
    luck, left_behind = random.Random(0), 0
    with tempfile.TemporaryDirectory() as name:
        folder, done = Path(name), 0
        while done < words.kills:
            process, before = start(folder, words), len(records(folder))
            while process.poll() is None and len(records(folder)) < before + luck.randrange(5, 2 * EVERY):
                time.sleep(0.05)
            if process.poll() is not None:
                break
            workers = workers_of(folder)
            process.kill()
            process.wait()
            done += 1
            ends = time.monotonic() + 30
            while any(map(runs, workers)) and time.monotonic() < ends:
                time.sleep(0.1)
            left_behind += sum(map(runs, workers))
        if start(folder, words).wait() != 0:
            sys.exit((folder / "output.txt").read_text()[-3000:])
        used, again = dict[int, list[int]](), 0
        for step, samples in records(folder):
            assert used.setdefault(step, samples) == samples, f"step {step} had other samples than before"
            again += 1
    ids = [sample for samples in used.values() for sample in samples]
    same = sorted(ids) == list(range(words.steps * BATCH))
    print(f"the trainer killed {done} times; {len(used):,} steps, {again - len(used):,} of them trained again; "
          f"{len(ids):,} samples, each exactly once: {same}; workers left behind: {left_behind}")  # fmt: skip
    assert same
    assert not left_behind


def start(folder: Path, words: Any) -> subprocess.Popen[bytes]:
    with (folder / "output.txt").open("ab") as log:
        command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("feed.py")), "life", "--engine",
                   words.engine, "--steps", str(words.steps), "--folder", str(folder)]  # fmt: skip
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def records(folder: Path) -> list[tuple[int, list[int]]]:
    """(step, samples) in the order in which they were trained; the last line may be half written."""
    found: list[tuple[int, list[int]]] = []
    file = folder / "steps.jsonl"
    for line in file.read_text().splitlines() if file.exists() else []:
        with suppress(ValueError):
            found.append(tuple(json.loads(line)))
    return found


def workers_of(folder: Path) -> list[int]:
    """What the feed itself tells of its workers."""
    if not (folder / "feed").exists():
        return []
    places = [worker.place for worker in read_statuses(folder)[0].workers]
    return [int(place.rpartition(":")[2]) for place in places if place]


def life(words: Any) -> None:
    """The trainer: goes on from the position that it kept last, and writes down the samples of each step."""
    folder = Path(words.folder)
    made, _ = settings(words.steps * BATCH)
    kept = folder / "position.json"
    if kept.exists():
        position = decode(Position, parse_json(kept.read_text(), "the position"), "the position")
        made = replace(made, position=position)
    with (
        Feed(made, 2, engine=engine_of(words.engine, made), status=status_file(folder, 0)) as feed,
        (folder / "steps.jsonl").open("a") as file,
    ):
        for batch in feed:
            step = feed.position.used // BATCH
            line = json.dumps([step, batch.sample_ids.tolist()])
            file.write(f"\n{line}\n")  # the life before may have ended within a line
            file.flush()
            time.sleep(STEP_S)
            if step % EVERY == 0:
                write_text(str(kept), dump_json(encode(feed.position)))
