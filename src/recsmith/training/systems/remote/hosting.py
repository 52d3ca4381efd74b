"""Starts the servers and the trainers of a run on this machine, and ends them.

Each is a process of its own. They are not started by torchrun, which would end all of them if one is killed. This
process hosts the store where they meet.
"""

import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.files import Raw, decode, locked_folder, read_json
from recsmith.jobs.launch import POLL_S, failure_of, job_environment, job_folder
from recsmith.jobs.log import LOG_FILE, JobLog
from recsmith.jobs.machine import LOOPBACK
from recsmith.training.run import Run, names_modules, run_to_raw
from recsmith.training.systems.remote.calls import AGAIN, BACKENDS, ServerPlace, forsaken, lost
from recsmith.training.systems.remote.members import ALIVE, ENDED, JOINER, ended_in
from recsmith.training.systems.remote.planning import check_same_run, listening_line, remote_file
from recsmith.training.systems.remote.settings import RunRemote

HERE = "recsmith.training.systems.remote"
JOINED = 1000  # number of every trainer that joins: it is not 0, so it writes no log


@dataclass(frozen=True)
class StartedProcess:
    """The process of a server or a trainer. folder: holds its arguments, its output and its result."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def result(self) -> Raw:
        """The value that the process returned; empty if it has not returned."""
        found = next(iter(self.folder.glob("rank-*.json")), None)
        return {} if found is None else json.loads(found.read_text())["result"]

    @property
    def finished(self) -> bool:
        """Whether the process trained until the job was done."""
        return "step" in self.result

    def failure(self) -> RecSmithError | None:
        """The error that the process raised; None if something killed it."""
        return failure_of(self.folder) if any(self.folder.glob("*.error")) else None


Failure = Callable[[], RecSmithError | None]  # returns why a server has ended; None while all servers live


def _failure_of(servers: list[StartedProcess]) -> RecSmithError | None:
    """The error of a server process of this machine that has ended; None while all of them live."""
    for number, each in enumerate(servers):
        if each.process.poll() is not None:
            return each.failure() or lost(number, _how(each))
    return None


@contextmanager
def _started(
    folder: Path, function: str, arguments: Raw, rank: int, environment: dict[str, str], passed: Sequence[int] = ()
) -> Generator[StartedProcess]:
    """A process that runs a function of RecSmith; it is killed at the end. passed: file descriptors to inherit."""
    folder.mkdir()
    (folder / "job.json").write_text(json.dumps({"function": function, "arguments": arguments, "joins": False}))
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "recsmith.jobs.worker", str(folder)], stdout=output, stderr=output,
            env={**environment, "RANK": str(rank)}, start_new_session=True, pass_fds=passed,
        )  # fmt: skip
    try:
        yield StartedProcess(process, folder)
    finally:
        process.kill()
        process.wait()


def train_remote(run: Run, trainers: int, on_message: Callable[[Any], object]) -> Raw:
    """Train a run on servers and this many trainers of this machine, and return the result.

    Raises:
        UsageError: the address is in use, or another job writes to the folder.
        RecSmithError: a server has ended, or all trainers have.
    """
    assert run.remote is not None
    with ExitStack() as held:
        held.enter_context(locked_folder(Path(run.output)))
        folder = held.enter_context(job_folder())
        address, store, meet = held.enter_context(_meeting(run.remote, folder))
        place = ServerPlace(
            backend=run.remote.backend, address=address, job=folder.name, key=secrets.token_hex(16),
            servers=run.remote.servers, timeout_s=run.remote.timeout_s,
        )  # fmt: skip
        log = JobLog(folder / "log.jsonl")
        said = {"run": run_to_raw(run), "place": asdict(place), "meet": meet}
        environment = job_environment(trainers + place.servers, own=not names_modules(run))

        def start(kind: str, number: int, function: str, arguments: Raw, *passed: int) -> StartedProcess:
            own = folder / f"{kind}-{number}"
            written = folder / "log.jsonl" if kind == "trainer" else own / "log.jsonl"
            return held.enter_context(
                _started(own, function, arguments, number, {**environment, LOG_FILE: str(written)}, passed)
            )

        training = f"{HERE}.trainer:train_on_trainer"
        counted = {**said, "trainers": trainers, "processes": str(folder)}
        if place.backend == "ray":
            servers = held.enter_context(_ray_servers(place, counted))
        else:
            servers = partial(_failure_of, list(_own_servers(place, counted, partial(start, "server"))))
        ranks = {
            name: start("trainer", each, training, {**said, "name": name})
            for each in range(trainers)
            if (name := f"trainer-{each}")
        }
        held.enter_context(_place_told(remote_file(run.output), {**said, "processes": str(folder)}))
        for line in listening_line(run):
            on_message({"note": line})
        for message in _until_ended(servers, ranks, log):
            on_message(message)
        del store
        return max((each.result for each in ranks.values() if each.finished), key=len)  # from the writer of the model


def join_remote(run: Run, on_message: Callable[[Any], object]) -> Raw:
    """Train as one more trainer of the job that runs in a run's folder, until the job ends, and return the result.

    Raises:
        UsageError: no job with servers runs there.
        RecSmithError: this trainer failed.
    """
    file = remote_file(run.output)
    if run.remote is None or not file.exists():
        raise UsageError(
            f"no job with servers runs in '{run.output}'; start it with `remote` in the run, and join it while it runs"
        )
    place, name = read_place(file), f"{JOINER}{secrets.token_hex(4)}"
    check_same_run(place["run"], run_to_raw(run), run.output)
    with job_folder() as folder, _alive(Path(place.pop("processes")) / name) as held:
        log = folder / "log.jsonl"
        environment = {**job_environment(1, own=not names_modules(run)), LOG_FILE: str(log)}
        said = {**place, "run": run_to_raw(run), "name": name, "joins": True}
        training = f"{HERE}.trainer:train_on_trainer"
        with _started(folder / name, training, said, JOINED, environment, held) as trainer:
            on_message({"pid": trainer.process.pid})
            for message in _until_ended(lambda: None, {name: trainer}, JobLog(log), joined=True):
                on_message(message)
            return trainer.result


@contextmanager
def _alive(folder: Path) -> Generator[Sequence[int]]:
    """The descriptor of a lock that a trainer's process holds as long as it lives; none on another machine.

    folder: the trainer's, in the folder of the job's processes.
    """
    with ExitStack() as held:
        locks = list[int]()
        with suppress(OSError):  # the job runs on another machine, or has just ended
            folder.mkdir()
            lock = held.enter_context((folder / "new").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            (folder / "new").rename(folder / ALIVE)
            locks.append(lock.fileno())
        yield locks


def read_place(file: Path) -> Raw:
    """Read where the servers of a job are, and its run, from the job's file; CorruptFile if it is incomplete."""
    raw, source = read_json(str(file)), str(file)
    stated = cast(Raw, raw) if isinstance(raw, dict) else {}
    place, meet = decode(ServerPlace, stated.get("place"), source), stated.get("meet")
    run, processes = stated.get("run"), stated.get("processes")
    whole = isinstance(run, dict) and isinstance(processes, str) and isinstance(meet, str) and ":" in meet
    if place.backend not in BACKENDS or place.servers < 1 or not whole:
        raise CorruptFile(f"'{source}' does not say where the servers of a job are; start the job again")
    return {"place": asdict(place), "meet": meet, "run": run, "processes": processes}


@contextmanager
def _place_told(file: Path, place: Raw) -> Generator[None]:
    """Write a file, readable by this user alone, that says where the servers are, and remove it when the job ends."""
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(json.dumps(place))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def _meeting(remote: RunRemote, folder: Path) -> Generator[tuple[str, Any, str]]:
    """Yield the address at which servers are called, the store where process groups form, and its 'host:port'."""
    from recsmith.training.systems.remote.group import hosted_meeting

    if remote.backend == "ray":
        from recsmith.training.systems.remote.on_ray import cluster

        with cluster(remote.address) as (address, node):
            yield address, *hosted_meeting(node)
    elif remote.backend == "rpc":
        store, meet = hosted_meeting(remote.address or f"{LOOPBACK}:0")
        yield meet, store, meet
    else:  # process groups form on this machine, wherever servers listen
        yield remote.address or str(folder), *hosted_meeting(f"{LOOPBACK}:0")


def _own_servers(place: ServerPlace, settings: Raw, start: Callable[..., StartedProcess]) -> Generator[StartedProcess]:
    """Start the servers of a job as processes of this machine; with sockets, each is given its listener."""
    serving = f"{HERE}.hosting:serve_on_process"
    for server in range(place.servers):
        said = {**settings, "server": server}
        if place.backend == "sockets":
            from recsmith.training.systems.remote.on_sockets import listen

            with listen(place.address, server) as heard:
                yield start(server, serving, {**said, "listener": heard.fileno()}, heard.fileno())
        else:
            yield start(server, serving, said)


@contextmanager
def _ray_servers(place: ServerPlace, settings: Raw) -> Generator[Failure]:
    from recsmith.training.systems.remote.on_ray import RayServers

    servers = RayServers(place, f"{HERE}.server:serve", settings)
    try:
        yield servers.failure
    finally:
        servers.close()


def _until_ended(
    failed: Failure, trainers: dict[str, StartedProcess], log: JobLog, *, joined: bool = False
) -> Generator[Any]:
    """Yield messages of the job until all trainers have ended that were not left out.

    joined: whether this is the single trainer of a process that joined a job.
    """
    left, out, silent, asked = dict(trainers), set[str](), set[str](), next(iter(trainers))
    while left.keys() - out:
        for message in log.new_messages():
            silent.update([message["left_out"]] if "left_out" in message else [])
            yield from _told(message, trainers)
        if (failure := failed()) is not None:
            raise failure
        for name, each in [pair for pair in left.items() if pair[1].process.poll() is not None]:
            del left[name]
            result = each.result
            if not result and (failure := each.failure()) is not None:
                raise failure
            out.update(result.get("remote", {}).get("lost", []))
            if not each.finished and not joined:
                (each.folder / ENDED).touch()
                rest = "; the others go on" if left.keys() - out else ""
                yield {"note": result.get("left_out", f"{_said(name)} has ended ({_how(each)}){rest}")}
        # a signal is passed on to one trainer, which makes all of them end
        if asked not in (here := left.keys() - out - silent) and here:
            asked = min(here)
            yield {"pid": left[asked].process.pid}
        time.sleep(POLL_S)
    for message in log.new_messages():
        yield from _told(message, trainers)
    if not any(each.finished for each in trainers.values()):
        ended = f"all trainers have ended; {AGAIN}"
        if joined:
            how = _how(next(iter(trainers.values())))
            ended = f"this trainer has ended ({how}); the job of the others goes on, and --join adds another one"
        raise RecSmithError(next((each.result["left_out"] for each in trainers.values() if each.result), ended))


def _told(message: Any, trainers: dict[str, StartedProcess]) -> Generator[Any]:
    """Yield a message for people; a trainer that was left out is reported only if its end was not reported before."""
    name = message.get("left_out")
    if name is None:
        yield message
    elif name not in trainers or trainers[name].process.poll() is None:
        over = name in ended_in(next(iter(trainers.values())).folder.parent)
        yield {"note": f"{_said(name)} {'has ended' if over else 'is silent and was left out'}; the others go on"}


def _said(name: str) -> str:
    return name.replace("-", " ", 1)


def _how(each: StartedProcess) -> str:
    code = each.process.returncode
    return f"by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def serve_on_process(
    run: Raw, place: Raw, meet: str, server: int, trainers: int, processes: str, listener: int | None = None
) -> None:
    """Run a server in this process until the parent process ends it. listener: with sockets, a file descriptor."""
    from recsmith.training.systems.remote.server import serve

    where = ServerPlace(**place)
    functions = serve(where, server, {"run": run, "meet": meet, "trainers": trainers, "processes": processes})
    if listener is None:
        from recsmith.training.systems.remote.on_rpc import RpcServer

        RpcServer(where, functions)
    else:
        from recsmith.training.systems.remote.on_sockets import SocketServer

        SocketServer(where, functions, socket.socket(fileno=listener))
    stopped = time.monotonic() + 2 * where.timeout_s
    while not functions.deserted() or time.monotonic() > stopped:  # the latter if this process itself was stopped
        stopped = time.monotonic() + 2 * where.timeout_s
        time.sleep(where.timeout_s)
    raise forsaken(where)
