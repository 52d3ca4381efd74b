"""Ranks of local jobs that start in milliseconds, forked from one process that has TorchRec imported.

A job that torchrun starts imports PyTorch and TorchRec once a rank and once an agent: five CPU seconds, most of what a
small job takes. Here one process imports them once, and forks the ranks of every job (`quick_ranks` of
tests/conftest.py puts it in the place of torchrun's agents). Their bits are the same (tests/jobs/test_forked_ranks.py).
Jobs of tests with the mark `torchrun`, and those whose ranks are started again after a failure, run under torchrun as
users' jobs do.

    python -m support.ranks     the process that forks: a job a line on stdin, an exit code a line on stdout
"""

import gc
import json
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NoReturn

from recsmith.jobs.agent import PARENT, end_with_parent, hosted_store
from recsmith.jobs.machine import LOOPBACK, listener

IMPORTED = (
    "recsmith.torchrec",
    "recsmith.training.loop",
    "fsspec",
    "numpy.ma",
    "torch.distributed.checkpoint._fsspec_filesystem",
    "torch.distributed.optim",
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization.config",
    "yaml",
    "zoneinfo",
)  # before the first job: what most jobs need. torch.distributed.optim compiles TorchScript while it is imported
ROOMS = (
    "analyses",
    "bounds",
    "planners.annealing",
    "planners.auto",
    "planners.search",
    "prediction",
    "problems",
    "training",
)
READ = (
    "clusters.cluster:Cluster",
    "data.batch:DataSchema",
    "data.generator.spec:GeneratorSpec",
    "data.order:Position",
    "plans.files:PricedBody",
    "training.run:Run",
    "workloads.sample:TablePopulation",
    "workloads.workload:Workload",
)  # nouns that most jobs read, whose validators pydantic takes a while to build
GRACE_S = 5.0  # seconds between asking ranks to end and killing them
POLL_S = 0.02


class Ranks:
    """All ranks of one job; looks like the process of a torchrun agent. pid: of the process that waits for them."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self.forks, self.pid = forks, pid

    def poll(self) -> int | None:
        """The job's exit code; None while it runs."""
        return self.forks.code_of(self.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal to the process that waits for the ranks, which ends them."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, and its ranks with it."""
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float = float("inf")) -> int:
        """The job's exit code, once it has ended."""
        ends = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired("ranks", seconds)
            time.sleep(POLL_S)
        return code


class Forks:
    """The process that forks, as the tests see it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.codes: dict[int, int] = {}

    @contextmanager
    def forked(
        self, folder: Path, ranks: int, hosts: int, _restarts: int, environment: dict[str, str]
    ) -> Generator[list[Ranks]]:
        """What `recsmith.jobs.launch` calls agents: here one that stands for those of all hosts."""
        requests = self._started().stdin
        assert requests is not None
        job = {
            "folder": str(folder),
            "ranks": ranks,
            "hosts": hosts,
            "environment": environment,
            "cwd": str(Path.cwd()),
            "largest": resource.getrlimit(resource.RLIMIT_FSIZE),  # of a file, which children of this process have too
        }
        requests.write(json.dumps(job) + "\n")
        requests.flush()
        agent = Ranks(self, self._hear("pid"))
        try:
            yield [agent]
        finally:
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
                agent.wait()

    def code_of(self, pid: int) -> int | None:
        """The exit code of a job that has ended."""
        while self.process and self.process.stdout and select.select([self.process.stdout], [], [], 0)[0]:
            self._hear("")
        return self.codes.get(pid)

    def cpu_seconds(self) -> float:
        """What the process and the jobs that have ended took of all processors; none where it has ended."""
        if self.process is None:
            return 0.0
        spent = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:15]
        return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End the process, and all jobs with it."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def _started(self) -> subprocess.Popen[str]:
        if self.process is None:
            environment = os.environ | {
                PARENT: str(os.getpid()), "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR",
            }  # fmt: skip
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "support.ranks"], env=environment, text=True, bufsize=1,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        return self.process

    def _hear(self, wanted: str) -> int:
        """Read what the process says, up to a word that is wanted."""
        assert self.process is not None
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError("the process that forks ranks has ended; its stderr says why")
            said: dict[str, int] = json.loads(line)
            if "code" in said:
                self.codes[said["ended"]] = said["code"]
            if not wanted or wanted in said:
                return said.get("pid", 0)


# --- in the process that forks ------------------------------------------------------------------------------------


def main() -> None:
    """Import, then fork an agent for each line, and say how each ends."""
    import logging
    import warnings

    logging.getLogger("torchrec").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    _warm_up()
    living: set[int] = set()
    while True:
        if select.select([sys.stdin], [], [], POLL_S if living else None)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            pid = os.fork() or _agent(json.loads(line))
            living.add(pid)
            print(json.dumps({"pid": pid}), flush=True)
        for pid in list(living):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                living.remove(pid)
                print(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)


def _warm_up() -> None:
    """Do once what every rank would do; no thread may be left, for a fork has none but its first."""
    from recsmith.files.validators import adapter
    from support.quick_bounds import tighten_less

    tighten_less()

    for name in (*IMPORTED, *_modules_of_rooms()):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("recsmith.training.systems."):  # one that was deleted, used by another
                raise
    for name in READ:
        module, _, noun = name.partition(":")
        adapter(getattr(import_module(f"recsmith.{module}"), noun))
    assert [each.name for each in Path("/proc/self/task").iterdir()] == [str(os.getpid())]
    gc.collect()
    gc.freeze()  # a collection in a rank would write to the pages that it shares with this process, and so copy them


def _modules_of_rooms() -> Iterator[str]:
    """What rooms that every job needs import late, systems among it."""
    for room in ROOMS:
        package = import_module(f"recsmith.{room}")
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                yield module.name


def _agent(job: dict[str, Any]) -> NoReturn:
    """Fork the ranks of a job and wait for them: 0 where all end well; the first failure ends all."""
    os.setsid()
    end_with_parent()
    meeting, ranks = listener(), {}
    port = meeting.getsockname()[1]
    for rank in range(job["ranks"]):
        pid = os.fork() or _rank(job, rank, meeting)
        ranks[pid] = rank
    kept = hosted_store(LOOPBACK, port, meeting.detach(), timedelta(minutes=5))
    signal.signal(signal.SIGTERM, lambda *_: _end(ranks))
    while ranks:
        pid, status = os.wait()
        del ranks[pid]
        if os.waitstatus_to_exitcode(status):
            _end(ranks)
    del kept
    os._exit(0)


def _end(ranks: dict[int, int]) -> NoReturn:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in ranks:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        ends = time.monotonic() + GRACE_S
        while ranks and time.monotonic() < ends:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            ranks.pop(pid, None)
            time.sleep(POLL_S)
    os._exit(1)


def _rank(job: dict[str, Any], rank: int, meeting: socket.socket) -> NoReturn:
    """What torchrun and the start of Python would have done for a rank, then its work."""
    import numpy
    import torch

    from recsmith.jobs.worker import main as work

    os.environ[PARENT] = str(os.getppid())
    end_with_parent()
    port = meeting.getsockname()[1]
    meeting.close()
    local = job["ranks"] // job["hosts"]
    own = {
        "RANK": rank, "LOCAL_RANK": rank % local, "GROUP_RANK": rank // local, "ROLE_RANK": rank,
        "WORLD_SIZE": job["ranks"], "LOCAL_WORLD_SIZE": local, "GROUP_WORLD_SIZE": job["hosts"],
        "ROLE_WORLD_SIZE": job["ranks"], "MASTER_ADDR": LOOPBACK, "MASTER_PORT": port, "ROLE_NAME": "default",
        "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "none",
        PARENT: os.getpid(),
    }  # fmt: skip
    resource.setrlimit(resource.RLIMIT_FSIZE, tuple(job["largest"]))
    os.environ.clear()
    os.environ.update(job["environment"] | {name: str(value) for name, value in own.items()})
    os.chdir(job["cwd"])
    wanted = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [*wanted, *(place for place in sys.path if place not in wanted)]
    logs = Path(job["folder"]) / f"logs-{rank // local}" / str(rank % local)
    logs.mkdir(parents=True)
    for stream, name in ((1, "stdout.log"), (2, "stderr.log")):
        os.dup2(os.open(logs / name, os.O_WRONLY | os.O_CREAT), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    random.seed()
    numpy.random.seed()  # which every rank of torchrun draws for itself
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    work(Path(job["folder"]))


if __name__ == "__main__":
    end_with_parent()
    main()
