"""Starts local torchrun jobs: the one way in which RecSmith runs several ranks on this machine.

    results = launch("package.module:function", {"steps": 10}, ranks=4, hosts=2)

Each rank runs `function(**arguments)` inside an initialised process group and returns plain JSON data. What the user
need not know is done here: a listener and the interface that gloo must use (machine.py), one torchrun agent per
emulated host (agent.py), a teardown that does not abort (worker.py), the output of a failing rank, and the end of all
children when the parent is interrupted or dies. Linux only.

A job locks its folder while it runs, and the system frees the lock when the process ends, however it does. Whoever
starts the next job removes the folders that nobody has locked: numbers of processes come again, locks do not.
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
LOCKED = "locked"  # a file in it: its job has locked the folder, so that who finds it unlocked knows that it ended
UNLOCKED_S = 60.0  # for which a folder without that file stays: its job may lock it the next moment
TIMEOUT_S = 600.0  # seconds of a job, where its caller knows no better
LAST_LINES = 25  # of a failing rank's output that an error shows: a traceback and what led to it
GRACE_S = 5.0  # seconds between asking agents to end and killing them; they must end their ranks within it
POLL_S = 0.05  # seconds between two checks of the agents: short beside the seconds that a job takes to start


def launch(
    function: str, arguments: dict[str, Any], *, ranks: int, hosts: int = 1, timeout_s: float = TIMEOUT_S,
    restarts: int = 0, names_modules: bool = False, on_message: Callable[[Any], object] | None = None,
) -> list[Any]:  # fmt: skip
    """What `function` (written 'package.module:name') returned on each of `ranks` local ranks, in order of ranks.

    hosts: emulated hosts, each with ranks / hosts ranks and its own torchrun agent. arguments: JSON data. restarts: how
    often all ranks are started again after one has failed.
    names_modules: the arguments name modules of the user's, which may lie in the working folder.
    on_message(message): gets what rank 0 writes (log.py). The function is found wherever this process finds modules
    (sys.path), so a script can name one of its own; jobs of RecSmith's own import nothing from the working folder. The
    ranks use nccl where each has a GPU of its own, gloo on CPU elsewhere.

    Raises:
        UsageError: ranks are not a multiple of hosts.
        MissingExtra: torch is not installed.
        RecSmithError: a rank failed, with what it raised where that is RecSmith's own, or the job did not end in time.
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
    """One torchrun agent per host; all of them end with this block, however it ends."""
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
                # A session of its own: Ctrl-C reaches this process alone, which then ends the agents in order.
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
    """Of agents and ranks: cores shared evenly, the loopback interface, and where modules are found (processes.py).

    A number of threads that the user has exported stays.
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
    """Ask agents (which ask their ranks) to end; after a grace, end them."""
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
    """The messages of the job until all of its agents have ended well.

    A job whose ranks have all left their results is complete, whatever ended its processes after that.
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
    yield from log.new_messages()  # also what a job said last that failed
    if any(agent.poll() for agent in agents) and not _is_complete(folder, ranks):
        raise failure_of(folder)


def _is_complete(folder: Path, ranks: int) -> bool:
    """Whether every rank of one attempt has left its result."""
    if not all((folder / f"rank-{rank}.json").exists() for rank in range(ranks)):
        return False
    return len({_result(folder, rank)["attempt"] for rank in range(ranks)}) == 1


def failure_of(folder: Path) -> RecSmithError:
    """What the rank that failed first raised on purpose, or else its output."""
    for error in _errors(folder)[:1]:
        sentence = error.with_suffix(SENTENCE)
        if sentence.exists():
            raised = json.loads(sentence.read_text())
            return getattr(errors, raised["kind"], RecSmithError)(raised["message"])
    return RecSmithError(f"a rank of the local job failed\n{_failing_output(folder)}")


def _errors(folder: Path) -> list[Path]:
    """Tracebacks of the last attempt, in order of time: their names begin with attempt and time."""
    found = sorted(folder.glob("*.error"))
    return [path for path in found if path.name.partition("-")[0] == found[-1].name.partition("-")[0]]


def _failing_output(folder: Path) -> str:
    """Last lines of the rank that failed first, or of the agents where no rank said anything."""
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
    """A folder of this job's own, gone when the block ends; folders whose jobs were killed are removed first."""
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
    """Remove this user's folders of jobs that have ended without doing so."""
    for folder in place.glob(f"{PREFIX}*"):
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # another user's, or gone
            continue
        try:
            found = os.fstat(handle)
            ended = (folder / LOCKED).exists() or time.time() - found.st_mtime > UNLOCKED_S
            if found.st_uid == os.getuid() and ended:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # its job runs
            pass
        finally:
            os.close(handle)
