"""Ranks of local jobs that start in milliseconds, forked from one process that has TorchRec imported.

A job that torchrun starts imports PyTorch and TorchRec once a rank and once an agent: five CPU seconds, most of what a
small job takes. Here one process imports them once, and forks the ranks of every job (`quick_ranks` of
tests/conftest.py puts it in the place of torchrun's agents). Their bits are the same (tests/jobs/test_forked_ranks.py).
Jobs of tests with the mark `torchrun`, and those whose ranks are started again after a failure, run under torchrun as
users' jobs do.

Processes that are no ranks are forked, too: servers of tables (`Forks.popen`), and workers of feeds and actors of
learners, which are spoken to through pipes (`Forks.piped`).

    python -m support.ranks 5   the process that forks: a job a line on stdin, an exit code a line on stdout; open files
                                of a job come over the socket 5
"""

import ctypes
import fcntl
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
import threading
import time
import traceback
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import IO, Any, NoReturn

from recsmith.jobs.agent import PARENT, end_with_parent, hosted_store
from recsmith.jobs.machine import LOOPBACK, listener

IMPORTED = (
    "recsmith.torchrec",
    "recsmith.training.rank",
    "recsmith.feeding.worker",
    "recsmith.learning.policies.actors",
    "encodings.idna",
    "fsspec",
    "numpy.ma",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pytest",
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
    "data",
    "planners.annealing",
    "planners.auto",
    "planners.search",
    "prediction",
    "problems",
    "training",
)
READ = (
    "clusters.cluster:Cluster",
    "costs.neural.files:Card",
    "costs.published:_Published",
    "data.batch:DataSchema",
    "data.columns.features:ColumnFeature",
    "data.columns.rows:RawColumns",
    "data.generator.spec:GeneratorSpec",
    "data.order:Position",
    "data.parquet.spec:ParquetSpec",
    "data.sequences.spec:SequencesSpec",
    "plans.files:PricedBody",
    "plans.plan:Bound",
    "plans.plan:StepCost",
    "plans.predicted_error:PublishedError",
    "prediction.machine:MachineCard",
    "problems.constraints:Constraints",
    "scoring.scores:Scores",
    "training.job.card:ModelCard",
    "training.job.resuming:SavedProgress",
    "training.models.settings:HSTUSettings",
    "training.models.settings:SASRecSettings",
    "training.run:Run",
    "training.run.run:RunModel",
    "workloads.sample:TablePopulation",
    "workloads.workload:Workload",
)  # nouns that most jobs read, whose validators pydantic takes a while to build
GRACE_S = 5.0  # seconds between asking ranks to end and killing them
POLL_S = 0.01
LARGE_PAGE, MADV_COLLAPSE = 2**21, 25  # bytes; the number in Linux's mman.h
FIRST_FILE = 512  # number of the first of a job's open files in its process, before they get their own numbers


class Ranks:
    """All ranks of one job, or a process; looks like a process. pid: of it, or of the one that waits for the ranks."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self.forks, self.pid = forks, pid

    def poll(self) -> int | None:
        """The job's exit code; None while it runs."""
        return self.forks.code_of(self.pid)

    @property
    def returncode(self) -> int | None:
        """The exit code, once it has ended."""
        return self.poll()

    def send_signal(self, number: int) -> None:
        """Send a signal to the process; of ranks, it ends them."""
        if self.poll() is None:
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


class Piped(Ranks):
    """A process with pipes, as `subprocess.Popen` makes it."""

    def __init__(self, forks: "Forks", pid: int, stdin: int, stdout: int) -> None:
        super().__init__(forks, pid)
        self.stdin, self.stdout = open(stdin, "wb"), open(stdout, "rb")  # noqa: SIM115


PROCESSES: dict[str, Ranks] = {}  # the newest process by the name of its folder


class Forks:
    """The process that forks, as the tests see it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.codes: dict[int, int] = {}
        self.begun: list[int] = []
        self.heard = b""
        self.lock = threading.RLock()  # threads of a feed start and end workers

    @contextmanager
    def forked(
        self, folder: Path, ranks: int, hosts: int, _restarts: int, environment: dict[str, str]
    ) -> Generator[list[Ranks]]:
        """What `recsmith.jobs.launch` calls agents: here one that stands for those of all hosts."""
        agent = self._ask({"folder": str(folder), "ranks": ranks, "hosts": hosts, "environment": environment})
        try:
            yield [agent]
        finally:
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
                agent.wait()

    def popen(
        self, command: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes], env: dict[str, str],
        start_new_session: bool, pass_fds: Sequence[int] = (),
    ) -> Ranks:  # fmt: skip
        """What `subprocess.Popen` makes of `python -m recsmith.jobs.worker FOLDER`."""
        assert command[-3:-1] == ["-m", "recsmith.jobs.worker"]
        assert stdout is stderr
        assert start_new_session
        job = {"alone": command[-1], "environment": env, "numbers": [1, *pass_fds]}
        found = PROCESSES[Path(command[-1]).name] = self._ask(job, [stdout.fileno(), *pass_fds])
        return found

    def piped(self, command: Sequence[str], **words: Any) -> Piped | subprocess.Popen[bytes]:
        """What `subprocess.Popen` makes of `python -P -m MODULE ARGUMENT` with pipes; modules of others are started."""
        module, argument = command[-2:]
        if not module.startswith("recsmith.") or find_spec("torchrec") is None:
            return subprocess.Popen[bytes](command, **words)
        (theirs_in, stdin), (stdout, theirs_out) = os.pipe(), os.pipe()
        job = {"module": module, "argument": argument, "environment": words["env"], "numbers": [0, 1, 2]}
        pid = self._ask(job, [theirs_in, theirs_out, 2]).pid
        os.close(theirs_in)
        os.close(theirs_out)
        return Piped(self, pid, stdin, stdout)

    def _ask(self, job: dict[str, Any], files: Sequence[int] = ()) -> Ranks:
        with self.lock:
            return self._asked(job, files)

    def _asked(self, job: dict[str, Any], files: Sequence[int]) -> Ranks:
        requests = self._started().stdin
        assert requests is not None
        if files:
            socket.send_fds(self.passing, [b"."], list(files))
        largest = resource.getrlimit(resource.RLIMIT_FSIZE)  # of a file, which children of this process have, too
        requests.write(json.dumps(job | {"cwd": str(Path.cwd()), "largest": largest}).encode() + b"\n")
        requests.flush()
        while not self.begun:
            self._listen(None)
        return Ranks(self, self.begun.pop())

    def code_of(self, pid: int) -> int | None:
        """The exit code of a job that has ended."""
        with self.lock:
            self._listen(0)
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
            self.passing.close()
            self.process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            environment = os.environ | {
                PARENT: str(os.getpid()), "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONWARNINGS": "ignore", "TORCH_CPP_LOG_LEVEL": "ERROR",
                "JE_ARROW_MALLOC_CONF": "background_thread:false",
            }  # fmt: skip
            self.passing, theirs = socket.socketpair()
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "support.ranks", str(theirs.fileno())], env=environment,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[theirs.fileno()],
                )  # fmt: skip
        return self.process

    def _listen(self, wait_s: float | None) -> None:
        """Take in what the process has said; None waits until it says something."""
        if self.process is None:
            return
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], wait_s)[0]:
            more = os.read(self.process.stdout.fileno(), 2**16)
            if not more:
                raise RuntimeError("the process that forks ranks has ended; its stderr says why")
            *lines, self.heard = (self.heard + more).split(b"\n")
            for said in map(json.loads, lines):
                if "pid" in said:
                    self.begun.append(said["pid"])
                    self.codes.pop(said["pid"], None)  # of a process that had the number before
                else:
                    self.codes[said["ended"]] = said["code"]
            wait_s = 0


# --- in the process that forks ------------------------------------------------------------------------------------


def main() -> None:
    """Import, then fork an agent for each line, and say how each ends."""
    import logging
    import warnings

    logging.getLogger("torchrec").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    _warm_up()
    living: set[int] = set()
    passing = socket.socket(fileno=int(sys.argv[1]))
    while True:
        if select.select([sys.stdin], [], [], POLL_S if living else None)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            job = json.loads(line)
            files = socket.recv_fds(passing, 1, len(job["numbers"]))[1] if "numbers" in job else []
            pid = os.fork() or (_process(job, files) if files else _agent(job))
            for each in files:
                os.close(each)
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
    from support.quick_plans import plan_quickly

    gc.disable()  # nearly all that is made from here on stays
    plan_quickly()
    os.fsync = os.sync = lambda *_: None  # no test ends the machine, and what a killed process has written stays

    for name in (*IMPORTED, *_modules_of_rooms()):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            missing = error.name or ""  # a system that was deleted, used by another, or what is not installed
            if not missing.startswith(("recsmith.training.systems.", "pyarrow")):
                raise
    for name in READ:
        module, _, noun = name.partition(":")
        adapter(getattr(import_module(f"recsmith.{module}"), noun))
    _described()
    assert [each.name for each in Path("/proc/self/task").iterdir()] == [str(os.getpid())]
    gc.collect()
    gc.freeze()  # a collection in a rank would write to the pages that it shares with this process, and so copy them
    gc.enable()
    _in_large_pages()


def _in_large_pages() -> None:
    """Ask Linux to keep this process in pages of 2 MiB: a fork copies what says where each page lies.

    It takes a third of the time then. Where Linux is older than 6.1, or has no such pages, all stays as it is.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, file, *name = line.split()
        if rights == "rw-p" and file == "0" and name in ([], ["[heap]"]):
            begin, end = (int(each, 16) for each in place.split("-"))
            begin, end = -(-begin // LARGE_PAGE) * LARGE_PAGE, end // LARGE_PAGE * LARGE_PAGE
            if begin < end:
                madvise(begin, end - begin, MADV_COLLAPSE)


def _described() -> None:
    """Say what a small run would do: what rooms work out once is worked out before there are ranks."""
    from recsmith.training.launch.dry_run import described
    from recsmith.training.run import run_from_raw

    data = {"format": "generator", "seed": 1, "dense": 2, "features": [{"name": "a", "num_embeddings": 50}]}
    with TemporaryDirectory() as folder:
        run = {"data": {"train": {**data, "num_samples": 64}, "batch_size": 32}, "steps": 2, "output": f"{folder}/out"}
        described(run_from_raw({"schema": "recsmith/run/1", **run}, "a run"))


def _modules_of_rooms() -> Iterator[str]:
    """What rooms that every job needs import late, systems among it; not what solves, which starts threads."""
    for room in ROOMS:
        package = import_module(f"recsmith.{room}")
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and not module.name.rpartition(".")[2].startswith("cp_sat"):
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


def _process(job: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """A process with open files, which get the numbers that they had where they come from."""
    os.setsid()
    os.environ[PARENT] = str(os.getppid())
    end_with_parent()
    for file, number in [(fcntl.fcntl(each, fcntl.F_DUPFD, FIRST_FILE), number)
                         for each, number in zip(files, job["numbers"], strict=True)]:  # fmt: skip
        os.dup2(file, number)
        os.close(file)
    if "module" in job:
        _serve(job)
    os.dup2(1, 2)
    _work(job, Path(job["alone"]), {})


def _serve(job: dict[str, Any]) -> NoReturn:
    """What `python -m MODULE ARGUMENT` would do in this process."""
    _become(job, {})
    sys.argv[:] = [job["module"], job["argument"]]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    code = 0
    try:
        import_module(job["module"]).main()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


def _rank(job: dict[str, Any], rank: int, meeting: socket.socket) -> NoReturn:
    """What torchrun would have done for a rank, then its work."""
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
    }  # fmt: skip
    logs = Path(job["folder"]) / f"logs-{rank // local}" / str(rank % local)
    logs.mkdir(parents=True)
    for stream, name in ((1, "stdout.log"), (2, "stderr.log")):
        os.dup2(os.open(logs / name, os.O_WRONLY | os.O_CREAT), stream)
    _work(job, Path(job["folder"]), own)


def _work(job: dict[str, Any], folder: Path, own: dict[str, Any]) -> NoReturn:
    """The work of a folder. own: variables of this process."""
    from recsmith.jobs.worker import main as work

    _become(job, own)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    work(folder)


def _become(job: dict[str, Any], own: dict[str, Any]) -> None:
    """What the start of Python would have done for a job."""
    import numpy
    import torch

    resource.setrlimit(resource.RLIMIT_FSIZE, tuple(job["largest"]))
    os.environ.clear()
    os.environ.update(job["environment"] | {name: str(value) for name, value in own.items()})
    os.environ[PARENT] = str(os.getpid())
    os.chdir(job["cwd"])
    wanted = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [*wanted, *(place for place in sys.path if place not in wanted)]
    random.seed()
    numpy.random.seed()  # which every rank of torchrun draws for itself
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


if __name__ == "__main__":
    end_with_parent()
    main()
