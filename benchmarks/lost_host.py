"""Hosts of a job are killed at random times: how long until the next step, and whether losses are those of a resume.

    python benchmarks/lost_host.py --kills 20              # three hosts, each a network namespace of its own (root)
    python benchmarks/lost_host.py --kills 2 --loopback    # three hosts on the loopback
    python benchmarks/lost_host.py --kills 6 --groups      # four hosts in two sharding groups of a 2D job
    python benchmarks/lost_host.py --plans 30 100 300      # plans for two hosts of eight GPUs of three, by tables

A host is the agent that `recsmith train --hosts 2..3` starts, with its ranks. Each kill takes one at random, whichever
holds rank 0 too: all its processes by SIGKILL or, with a network of its own, every third time its link alone. Then
the host is started again, and taken in. Losses of the steps after a kill are compared with those of a plain
`recsmith train` with as many ranks that goes on from a copy of the same checkpoint under the same plan: they are equal
to the bit. Where sharding groups have two hosts each, three hosts that are left train as one group, and one waits.
"""

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from train_kills import parents_of_processes  # type: ignore[import-not-found]
from two_networks import INTERFACE, Host, _namespace, why_not  # type: ignore[import-not-found]

from recsmith.jobs.agent import _PR_SET_PDEATHSIG
from recsmith.training import train

NAMES, GROUP = ("a", "b", "c"), 2
BATCH, EVERY = 240, 20  # samples of a step, steps between checkpoints
COMPARED = 10  # steps after a kill whose losses are compared
PATIENCE_S = 180.0
TABLES = [("t0", 4000), ("t1", 9000), ("t2", 3000), ("t3", 6000), ("t4", 5000), ("t5", 7000)]


def write_run(folder: Path, **words: Any) -> Path:
    """A small run without an end, whose checkpoints all stay."""
    data = {
        "format": "generator", "seed": 7, "num_samples": 10**9, "dense": 4,
        "features": [{"name": name, "num_embeddings": rows} for name, rows in TABLES],
    }  # fmt: skip
    run = {
        "schema": "recsmith/run/1", "output": str(folder / "out"), "ranks": 1,
        "data": {"train": data, "global_batch_size": BATCH},
        "model": {"name": "dlrm", "embedding_dim": 16, "bottom": [16], "top": [16]},
        "optimizers": {"sparse": {"name": "adagrad"}}, "steps": 10**7, "checkpoint": {"every": EVERY, "keep": 10**6},
        "metrics": {"every": 1}, **words,
    }  # fmt: skip
    file = folder / "run.json"
    file.write_text(json.dumps(run))
    return file


def plan_of_groups(folder: Path, hosts: int, **words: Any) -> Path:
    """The file of a 2D plan for the small run: hosts of one rank, in sharding groups of two."""
    from recsmith import load_cluster, plan, save_plan
    from recsmith.clusters import sharding_group
    from recsmith.problems import Space
    from recsmith.workloads import Feature, Table, Workload

    tables = tuple(
        Table(name=name, num_embeddings=rows, embedding_dim=16, features=(Feature(name=name, pooling_factor=1.0),))
        for name, rows in TABLES
    )
    job = replace(load_cluster("cpu:1"), hosts=hosts)
    workload = Workload(batch_size=BATCH // hosts, optimizer="adagrad", tables=tables)
    made = plan(
        workload, sharding_group(job, GROUP, **words), cost_model="analytic", space=Space(types=("table_wise",))
    )
    save_plan(made.plan, folder / "plan.json")
    return folder / "plan.json"


def _end_with_us() -> None:
    """Have a host end with the process that starts it, however that ends: its run has no end of its own."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Hosts:
    """Hosts of a job. enter: by name, what to write before a command that runs on it. interface: between them."""

    run: Path
    enter: dict[str, tuple[str, ...]]
    interface: str
    range: str = "2..3"
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The run's output."""
        return self.run.parent / "out"

    def start(self, name: str) -> None:
        """Start a host."""
        environment = {
            **os.environ,
            "RECSMITH_HOST_NAME": name,
            "GLOO_SOCKET_IFNAME": self.interface,
            "OMP_NUM_THREADS": "1",
        }
        words = [sys.executable, "-P", "-m", "recsmith", "train", str(self.run), "--hosts", self.range]
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*self.enter[name], *words], env=environment, stdout=log, stderr=log, preexec_fn=_end_with_us
            )

    def log(self, name: str) -> Path:
        """What a host said."""
        return self.run.parent / f"host-{name}.log"

    def kill(self, name: str) -> None:
        """Kill all processes of a host at once, without a word."""
        process = self.running.pop(name)
        for pid in [process.pid, *below(process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    def link(self, name: str, state: str) -> None:
        """Cut the link of a host with a network of its own (down), or join it again (up)."""
        subprocess.run([*self.enter[name], "ip", "link", "set", INTERFACE, state], check=True)

    def events(self) -> list[dict[str, Any]]:
        """Lines of the job's log that are whole."""
        file = self.out / "log.jsonl"
        found = []
        for line in file.read_text().splitlines() if file.exists() else []:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found

    def wait(self, what: str, ready: Any) -> Any:
        """Wait until `ready` finds something; what it found. A host that ends meanwhile ends this too."""
        begun = time.monotonic()
        while not (found := ready()):
            for name, process in self.running.items():
                if process.poll() is not None:
                    raise SystemExit(
                        f"host {name} ended while waiting for {what}:\n{self.log(name).read_text()[-3000:]}"
                    )
            if time.monotonic() - begun > PATIENCE_S:
                raise SystemExit(f"waited {PATIENCE_S:g} s for {what}; see {self.run.parent}")
            time.sleep(0.05)
        return found

    def starts(self) -> list[dict[str, Any]]:
        """The starts of ranks so far."""
        return [each for each in self.events() if each["event"] == "start"]

    def trains_on(self, count: int, more: int) -> bool:
        """Whether the start after `count` others has done so many steps."""
        events = self.events()
        starts = [place for place, each in enumerate(events) if each["event"] == "start"]
        if len(starts) <= count:
            return False
        return sum(each["event"] == "train" for each in events[starts[count] :]) >= more

    def end(self) -> None:
        """Kill all hosts."""
        for name in [*self.running]:
            self.kill(name)


def below(pid: int) -> list[int]:
    """All processes below one."""
    parents = parents_of_processes()
    found, last = list[int](), [pid]
    while last := [child for child, parent in parents.items() if parent in last]:
        found += last
    return found


@contextmanager
def networks(names: Sequence[str]) -> Generator[dict[str, tuple[str, ...]]]:
    """What to write before a command for each of so many hosts, with a network each, joined by a bridge."""
    with ExitStack() as stack:
        bridge, *holders = (stack.enter_context(_namespace()) for _ in ("bridge", *names))
        inside = Host(("nsenter", "-t", str(bridge.pid), "-n"), "")
        inside.run(["ip", "link", "add", "br0", "type", "bridge"])
        inside.run(["ip", "link", "set", "br0", "up"])
        made = dict[str, tuple[str, ...]]()
        for number, (name, holder) in enumerate(zip(names, holders, strict=True), 1):
            host = Host(("nsenter", "-t", str(holder.pid), "-n"), f"10.98.0.{number}")
            peer = f"port{number}"
            host.run(["ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", peer, "netns", str(bridge.pid)])
            host.run(["ip", "link", "set", "lo", "up"])
            host.run(["ip", "addr", "add", f"{host.address}/24", "dev", INTERFACE])
            host.run(["ip", "link", "set", INTERFACE, "up"])
            inside.run(["ip", "link", "set", peer, "master", "br0", "up"])
            made[name] = host.enter
        yield made


@contextmanager
def three_hosts(run: Path, *, loopback: bool, range_: str = "2..3", names: Sequence[str] = NAMES) -> Generator[Hosts]:
    """Hosts of a job that is not started yet; all of their processes end with the block."""
    with ExitStack() as stack:
        enter = dict.fromkeys(names, ()) if loopback else stack.enter_context(networks(names))
        hosts = Hosts(run, enter, "lo" if loopback else INTERFACE, range_)
        stack.callback(hosts.end)
        yield hosts


@dataclass(frozen=True)
class Kill:
    """What a kill has shown. how: it was made. place: of the host in its round. after, from_: steps."""

    how: str
    place: int
    seconds: float
    told: dict[str, Any]
    step: int
    losses: list[float]
    plan: Path
    checkpoint: Path | None


def kill_once(hosts: Hosts, name: str, *, cut: bool) -> Kill:
    """Take a host, and wait for steps without it."""
    count = len(hosts.starts())
    members = json.loads((hosts.out / "hosts/round.json").read_text())["hosts"]
    place = [each["name"] for each in members].index(name)
    begun = time.monotonic()
    if cut:
        hosts.link(name, "down")
    else:
        hosts.kill(name)
    hosts.wait("the next step", lambda: hosts.trains_on(count, 1))
    seconds = time.monotonic() - begun
    hosts.wait("some steps more", lambda: hosts.trains_on(count, COMPARED + 1))
    events = hosts.events()
    first = [place for place, each in enumerate(events) if each["event"] == "start"][count]
    told = next(each for each in events[first:] if each["event"] == "hosts")
    losses = [each["logloss"] for each in events[first:] if each["event"] == "train"][:COMPARED]
    step = events[first]["step"]
    plan = hosts.run.parent / f"plan-{count}.json"
    shutil.copy(hosts.out / "plan.json", plan)
    saved = hosts.out / f"checkpoints/step-{step:08d}"
    return Kill("cut" if cut else "killed", place, seconds, told, step, losses, plan, saved if step else None)


def resumed(folder: Path, kill: Kill, run: Path, ranks: int) -> list[float]:
    """Losses of a plain job that goes on from a copy of the checkpoint, under the plan of the hosts that were left."""
    out = folder / f"resumed-{kill.step}-{kill.plan.stem}"
    if kill.checkpoint is not None:
        shutil.copytree(kill.checkpoint, out / "checkpoints" / kill.checkpoint.name)
    train(run, settings=(f"output={out}", f"ranks={ranks}", f"steps={kill.step + COMPARED}", f"plan={kill.plan}"))
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [each["logloss"] for each in lines if each["event"] == "train"][:COMPARED]


def main() -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--plans", type=int, nargs="+", metavar="TABLES", help="no kills: plans of so many tables")
    parser.add_argument("--groups", action="store_true", help="four hosts, in two sharding groups of a 2D job")
    parser.add_argument("--loopback", action="store_true", help="hosts have no networks of their own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="for run, logs and checkpoints; one that is removed")
    arguments = parser.parse_args()
    if arguments.plans:
        return plans(arguments.plans)
    reason = None if arguments.loopback else why_not()
    if reason is not None:
        print(f"hosts with networks of their own cannot be made here: {reason}; try --loopback", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        draw = random.Random(arguments.seed)
        failed = measure(folder, arguments.kills, loopback=arguments.loopback, draw=draw, groups=arguments.groups)
    return int(failed > 0)


def measure(folder: Path, kills: int, *, loopback: bool, draw: random.Random, groups: bool = False) -> int:
    """Kill hosts, print a line of each, and say how many kills did not show what they must."""
    names, range_ = (("a", "b", "c", "d"), "2..4") if groups else (NAMES, "2..3")
    words = {"plan": str(plan_of_groups(folder, len(names)))} if groups else {}
    run, made = write_run(folder, **words), list[Kill]()
    with three_hosts(run, loopback=loopback, range_=range_, names=names) as hosts:
        for name in names:
            hosts.start(name)
        before = 0
        for number in range(kills):
            hosts.wait("all of them", lambda: len(round_of(hosts)) == len(names))
            hosts.wait("steps of all hosts", lambda before=before: hosts.trains_on(before, 2))
            time.sleep(draw.uniform(0.0, 4.0))
            name, cut = draw.choice(names), not loopback and number % 3 == 2
            made.append(kill_once(hosts, name, cut=cut))
            print(f"{number + 1}: host {name} {made[-1].how}, {made[-1].seconds:.1f} s", file=sys.stderr, flush=True)
            before = len(hosts.starts())
            if cut:
                hosts.link(name, "up")
            else:
                hosts.start(name)
        hosts.wait("the host back", lambda: hosts.trains_on(before, 1))
    return told(made, [resumed(folder, each, run, 2) for each in made])


def plans(counts: Sequence[int]) -> int:
    """Print what a plan for the hosts that are left takes, moves and costs; 1 where one moves too much."""
    import recsmith
    from recsmith.plans.diff import moved_bytes
    from recsmith.training import Run, RunData
    from recsmith.training.job.hosts import SPARE, _moving_little, as_now, least_moved, of_fewer_hosts
    from recsmith.workloads import Feature, Table, Workload

    print("| tables | planning, CPU | bytes moved / least | step | step of a fresh plan |\n|---|---|---|---|---|")
    too_much = 0
    for count in counts:
        draw = random.Random(count)
        tables = tuple(
            Table(name=f"t{i}", num_embeddings=int(10 ** draw.uniform(3, 6.7)),
                  embedding_dim=draw.choice((32, 64, 128)),
                  features=(Feature(name=f"t{i}", pooling_factor=draw.uniform(1, 30)),))
            for i in range(count)
        )  # fmt: skip
        workload = Workload(batch_size=1024, optimizer="rowwise_adagrad", tables=tables)
        old = recsmith.plan(workload, "h100:8x3", cost_model="analytic").plan
        now = as_now(old, {**{rank: rank for rank in range(8)}, **{rank + 16: rank + 8 for rank in range(8)}})
        run, begun = Run(data=RunData(train="x", global_batch_size=1024 * 24), output="x"), time.process_time()
        made = _moving_little(of_fewer_hosts(old, None, run, 16), now, 16)
        took = time.process_time() - begun
        received = moved_bytes(now, made.placements, made.workload, made.cluster)
        ratio = sum(size for shards in received.values() for _, size in shards) / least_moved(now, 16)
        fresh = recsmith.plan(made.workload, made.cluster, cost_model="analytic").plan
        print(f"| {count} | {took:.1f} s | {ratio:.3f} | {made.cost.step_s * 1e3:.3f} ms "
              f"| {fresh.cost.step_s * 1e3:.3f} ms |", flush=True)  # fmt: skip
        too_much += ratio > SPARE
    return int(too_much > 0)


def round_of(hosts: Hosts) -> list[str]:
    """The names of the hosts that train together."""
    file = hosts.out / "hosts/round.json"
    return [each["name"] for each in json.loads(file.read_text())["hosts"]] if file.exists() else []


def told(kills: Sequence[Kill], references: Sequence[list[float]]) -> int:
    """Print the table; how many kills failed."""
    print("| kill | place of the host | seconds to the next step | planning | bytes moved / least | losses |")
    print("|---|---|---|---|---|---|")
    failed = 0
    for number, (kill, expected) in enumerate(zip(kills, references, strict=True), 1):
        same = kill.losses == expected and len(expected) == COMPARED
        ratio = kill.told["moved_bytes"] / kill.told["least_bytes"] if kill.told["least_bytes"] else 1.0
        failed += not same or kill.seconds > 60 or ratio > 1.05
        print(f"| {number}, {kill.how} | {kill.place} | {kill.seconds:.1f} | {kill.told['plan_s']:.2f} s "
              f"| {ratio:.3f} | {'the same bits' if same else 'OTHERS'} |")  # fmt: skip
    seconds = sorted(each.seconds for each in kills)
    print(f"\n{len(kills) - failed} of {len(kills)}; to the next step: median {seconds[len(seconds) // 2]:.1f} s, most "
          f"{seconds[-1]:.1f} s")  # fmt: skip
    return failed


if __name__ == "__main__":
    sys.exit(main())
