"""Starts local torchrun jobs; all of RecSmith's runs of several ranks on this machine use this module.

    results = launch("package.module:function", {"steps": 10}, ranks=4, hosts=2)

Each rank runs `function(**arguments)` inside an initialised process group and returns plain JSON data. This module
takes care of the details: a listener and the interface that gloo must use (machine.py), one torchrun agent per emulated
host (agent.py), a teardown that does not abort (worker.py), the output of a failing rank, and the end of all children
when the parent is interrupted or dies. Linux only.

A job locks its folder while it runs, and the system releases the lock however the process ends. The start of
the next job removes folders that are not locked. Process ids would not do, since the system reuses them.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsmith import errors
from recsmith.adapters.installed import require_torchrec
from recsmith.errors import RecSmithError, UsageError
from recsmith.jobs.agent import LOCAL, PARENT
from recsmith.jobs.log import LOG_FILE, JobLog
from recsmith.jobs.machine import LOOPBACK, free_cores, listener, loopback_interface
from recsmith.jobs.processes import places_of_modules
from recsmith.jobs.worker import SENTENCE

PREFIX = "recsmith-job-"
LOCKED = "locked"  # a file in a job's folder once the folder is locked; with it, an unlocked folder's job has ended
UNLOCKED_S = 60.0  # seconds for which a folder without that file is kept: its job may be about to lock it
TIMEOUT_S = 600.0  # seconds of a job by default
LAST_LINES = 25  # lines of a failing rank's output in an error: a traceback and the lines before it
GRACE_S = 5.0  # seconds between asking agents to end and killing them; within it they must end their ranks
POLL_S = 0.05  # seconds between two checks of the agents: short compared with the start of a job, which takes seconds


def launch(
    function: str, arguments: dict[str, Any], *, ranks: int, hosts: int = 1, timeout_s: float = TIMEOUT_S,
    restarts: int = 0, names_modules: bool = False, on_message: Callable[[Any], object] | None = None,
) -> list[Any]:  # fmt: skip
    """Run a function on `ranks` local ranks and return its results, in order of ranks.

    The ranks use nccl if each has its own GPU, else gloo on CPU.

    Args:
        function: 'package.module:name'. It is searched in this process's sys.path, so a script can name a function of
            its own; RecSmith's own jobs import nothing from the working folder.
        arguments: the function's keyword arguments, as JSON data.
        ranks: number of ranks.
        hosts: number of emulated hosts, each with ranks / hosts ranks and its own torchrun agent.
        timeout_s: seconds after which the job is ended.
        restarts: how often all ranks are started again after one has failed.
        names_modules: whether the arguments name modules of the user, which may be in the working folder.
        on_message: called with each message that rank 0 writes (log.py).

    Raises:
        UsageError: ranks are not a multiple of hosts.
        MissingExtra: torch is not installed.
        RecSmithError: a rank failed (an error of RecSmith is raised again here), or the job did not end in time.
    """
    if ranks < 1 or hosts < 1 or ranks % hosts:
        raise UsageError(f"{ranks} ranks on {hosts} hosts; both must be at least 1 and hosts must divide ranks")
    require_torchrec()
    with job_folder() as folder:
        (folder / "job.json").write_text(json.dumps({"function": function, "arguments": arguments}))
        log = folder / "log.jsonl"
        with _agents(
            folder,
            ranks,
            hosts,
            restarts,
            job_environment(ranks, own=function.startswith("recsmith.") and not names_modules) | {LOG_FILE: str(log)},
        ) as agents:
            for message in _until_ended(agents, folder, ranks, timeout_s, JobLog(log)):
                if on_message:
                    on_message(message)
        return [_result(folder, rank)["result"] for rank in range(ranks)]


@contextmanager
def _agents(
    folder: Path, ranks: int, hosts: int, restarts: int, environment: dict[str, str]
) -> Generator[list[subprocess.Popen[bytes]]]:
    """Start one torchrun agent per host; all agents are ended with the block, also after an error."""
    agents: list[subprocess.Popen[bytes]] = []
    try:
        with listener() as store:
            for host in range(hosts):
                log = (folder / f"agent-{host}.log").open("wb")
                passed = [] if host else [store.fileno()]
                meeting = ",".join([f"rank={host}", *(f"listener={each}" for each in passed)])
                command = [
                    sys.executable, "-P", "-m", "recsmith.jobs.agent", "--nnodes", str(hosts),
                    "--nproc-per-node", str(ranks // hosts), "--rdzv-backend", LOCAL, "--rdzv-conf", meeting,
                    "--rdzv-endpoint", f"{LOOPBACK}:{store.getsockname()[1]}",
                    "--log-dir", str(folder / f"logs-{host}"),
                    "--max-restarts", str(restarts), "--redirects", "3", "-m", "recsmith.jobs.worker", str(folder),
                ]  # fmt: skip
                # In its own session: Ctrl-C reaches this process only, which then ends the agents in order.
                agents.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
                        pass_fds=passed,
                    )
                )  # fmt: skip
                log.close()
        yield agents
    finally:
        _end(agents)


def job_environment(ranks: int, *, own: bool) -> dict[str, str]:
    """Environment of agents and ranks: evenly shared cores, loopback interface, paths of modules (processes.py).

    An OMP_NUM_THREADS that the user has exported is kept. own: whether the job runs only RecSmith's code.
    """
    fixed = {
        "GLOO_SOCKET_IFNAME": loopback_interface(),
        "NCCL_SOCKET_IFNAME": loopback_interface(),
        "TP_SOCKET_IFNAME": loopback_interface(),
        "PYTHONPATH": os.pathsep.join(places_of_modules(own=own)),
        "PYTHONSAFEPATH": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
        PARENT: str(os.getpid()),
    }
    return {"OMP_NUM_THREADS": str(max(1, free_cores() // ranks)), **os.environ, **fixed}


def _end(agents: list[subprocess.Popen[bytes]]) -> None:
    """Ask agents (which ask their ranks) to end; kill those that have not ended after GRACE_S."""
    for agent in agents:
        if agent.poll() is None:
            agent.send_signal(signal.SIGTERM)
    for agent in agents:
        try:
            agent.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            agent.kill()
            agent.wait()


def _until_ended(
    agents: list[subprocess.Popen[bytes]], folder: Path, ranks: int, timeout_s: float, log: JobLog
) -> Generator[Any]:
    """The messages of the job until all of its agents have ended; raises the job's error if it failed.

    A job is complete if all ranks have written their results, even if its processes fail after that.
    """
    deadline = time.monotonic() + timeout_s
    while any(agent.poll() is None for agent in agents):
        yield from log.new_messages()
        if any(agent.poll() for agent in agents):
            break
        if time.monotonic() > deadline:
            raise RecSmithError(
                f"the local job did not end within {timeout_s:g} s; give it more time\n{_failing_output(folder)}"
            )
        time.sleep(POLL_S)
    yield from log.new_messages()  # also the last messages of a failed job
    if any(agent.poll() for agent in agents) and not _is_complete(folder, ranks):
        raise failure_of(folder)


def _is_complete(folder: Path, ranks: int) -> bool:
    """Whether every rank has written its result, all in the same attempt."""
    if not all((folder / f"rank-{rank}.json").exists() for rank in range(ranks)):
        return False
    return len({_result(folder, rank)["attempt"] for rank in range(ranks)}) == 1


def failure_of(folder: Path) -> RecSmithError:
    """The RecSmith error that the first failing rank raised; for any other failure, an error with its output."""
    for error in _errors(folder)[:1]:
        sentence = error.with_suffix(SENTENCE)
        if sentence.exists():
            raised = json.loads(sentence.read_text())
            return getattr(errors, raised["kind"], RecSmithError)(raised["message"])
    return RecSmithError(f"a rank of the local job failed\n{_failing_output(folder)}")


def _errors(folder: Path) -> list[Path]:
    """Files with tracebacks of the last attempt, in order of time; their names begin with attempt and time."""
    found = sorted(folder.glob("*.error"))
    return [path for path in found if path.name.partition("-")[0] == found[-1].name.partition("-")[0]]


def _failing_output(folder: Path) -> str:
    """The traceback of the first failing rank; without one, the last lines of all ranks and agents."""
    failed = _errors(folder)
    if failed:
        return f"{failed[0].stem.partition('.')[2]}: {failed[0].read_text().strip()}"
    logs = [*folder.glob("logs-*/**/stderr.log"), *folder.glob("agent-*.log")]
    texts = [(path, path.read_text(errors="replace").strip()) for path in logs]
    lines = [f"{path.parent.name}: {line}" for path, text in texts for line in text.splitlines()[-LAST_LINES:]]
    return "\n".join(lines[-2 * LAST_LINES :])


def _result(folder: Path, rank: int) -> Any:
    file = folder / f"rank-{rank}.json"
    if not file.exists():
        raise RecSmithError(f"rank {rank} ended without a result; let the function return, not end the process")
    return json.loads(file.read_text())


# --- folders of jobs --------------------------------------------------------------------------------------------------


@contextmanager
def job_folder() -> Generator[Path]:
    """A new folder for this job, removed when the block ends; folders of killed jobs are removed first."""
    remove_left_folders(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name:
        handle = os.open(name, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            (Path(name) / LOCKED).touch()
            yield Path(name)
        finally:
            os.close(handle)


def remove_left_folders(place: Path) -> None:
    """Remove this user's folders of jobs that were killed before they could remove them."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # the folder is another user's, or already removed
            continue
        try:
            found = os.fstat(handle)
            ended = (folder / LOCKED).exists() or time.time() - found.st_mtime > UNLOCKED_S
            if found.st_uid == os.getuid() and ended:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its job is running
            pass
        finally:
            os.close(handle)
