"""Starts this host's part of a run that does not need all its hosts: `recsmith train RUN --hosts 2..3`.

The same command runs on each host. Hosts meet in the folder `hosts` of the run's output, so no host has to be first.
"""

import fcntl
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

from recsmith import errors
from recsmith.errors import RecSmithError, UsageError, check_rules
from recsmith.files import dump_json, encode
from recsmith.jobs.agent import PARENT
from recsmith.jobs.hosts.agent import HostSettings
from recsmith.jobs.hosts.rounds import HOSTS
from recsmith.jobs.processes import places_of_modules
from recsmith.plans import Plan, inexact_tables, load_plan
from recsmith.training.launch.launching import passing_on_signals
from recsmith.training.launch.prerequisites import check_run, lines_told, own_modules
from recsmith.training.launch.ranks import launcher_environment, local_ranks
from recsmith.training.run import MADE_HERE, Run, load_run, names_modules
from recsmith.training.seams.registry import systems, use_systems

HOST_NAME, INTERFACE = "RECSMITH_HOST_NAME", "GLOO_SOCKET_IFNAME"  # environment variables of this host
RESTARTS = 3  # restarts after failed ranks, by default; a lost host does not count
SOMEWHERE = ("192.0.2.1", 9)  # documentation address (RFC 5737), to find the outgoing interface; nothing is sent
_SIOCGIFADDR = 0x8915  # ioctl: the address of an interface, netdevice(7)


def hosts_of(text: str) -> tuple[int, int]:
    """Parse a range of hosts such as 2..3, or one number, into (fewest, most); UsageError if it is neither."""
    found = re.fullmatch(r"([0-9]{1,5})(?:\.\.([0-9]{1,5}))?", text.strip())
    if found is None or not 1 <= int(found[1]) <= int(found[2] or found[1]):
        raise UsageError(f"hosts is '{text}'; write the fewest and the most that train together, such as 2..3")
    return int(found[1]), int(found[2] or found[1])


def train_on_host(file: str, settings: tuple[str, ...], hosts: str, max_restarts: int | None, form: str) -> None:
    """Train a run on this host together with other hosts, as long as enough of them are available.

    Args:
        file: path of the run, the same on each host.
        settings: 'key=value' settings applied to it.
        hosts: the fewest and the most hosts, such as 2..3.
        max_restarts: how often failed ranks are restarted; None means RESTARTS.
        form: format in which rank 0 prints the result.

    Raises:
        UsageError: the run cannot train on the fewest or on the most hosts, or cannot continue on fewer.
        RecSmithError: training failed, or was ended by a signal.
    """
    least, most = hosts_of(hosts)
    made = load_run(file, settings)
    with lines_told(file, settings), own_modules(made, file):
        ranks = ranks_of_host(made)
        counts = check_hosts(made, file, least, most, ranks)
        use_systems(made)
        for system in systems():
            system.check(made, launched=True)
        check_run(made, ranks)
    more = [word for each in settings for word in ("--set", each)]
    words = ("-m", "recsmith", "train", str(Path(file).absolute()), "--format", form, *more)
    asked = HostSettings(
        folder=str(Path(made.output).absolute() / HOSTS), name=os.environ.get(HOST_NAME) or socket.gethostname(),
        address=own_address(), ranks=ranks, counts=counts, words=words,
        restarts=RESTARTS if max_restarts is None else max_restarts,
    )  # fmt: skip
    _run_agent(asked, own=not names_modules(made))


def ranks_of_host(run: Run) -> int:
    """Ranks of each host: `ranks` of the run, one for each GPU, or as many as a host of its plan has."""
    if run.plan in MADE_HERE or run.ranks is not None:
        return local_ranks(run)
    return load_plan(run.plan).cluster.job_local_world_size


def check_hosts(run: Run, file: str, least: int, most: int, ranks: int) -> tuple[int, ...]:
    """The numbers of hosts in a range whose ranks share each batch evenly and form whole sharding groups.

    ranks: ranks of each host.

    Raises:
        UsageError: the run cannot train on the fewest or on the most hosts, or cannot continue on fewer.
    """
    if launcher_environment() is not None:
        raise UsageError(
            "--hosts starts torchrun on this host, and a launcher has started this process already; start the command "
            "once on each host, or leave --hosts out"
        )
    check_rules(
        None if file != "-" else "the run comes from stdin, and ranks that are started again read it anew; name a file",
        None if run.checkpoint is not None else
        f"--hosts {least}..{most} goes on from a checkpoint where a host is lost, and the run has none; give it "
        "checkpoint: {every: 1000}",
        None if run.data.global_batch_size is not None or least == most else
        f"--hosts {least}..{most} changes the number of ranks, and data.batch_size is of each; give "
        f"data.global_batch_size: {run.data.batch_size * most * ranks}, which is of all",
    )  # fmt: skip
    for count in (least, most):
        run.data.batch_sizes(count * ranks)
    group = 1
    if run.plan not in MADE_HERE:
        group = _check_plan(load_plan(run.plan), run.plan, least, most, ranks)
    return tuple(
        each for each in range(least, most + 1) if _shares(run, each * ranks) and each * ranks % group == 0
    )  # fmt: skip


def _check_plan(plan: Plan, file: str, least: int, most: int, ranks: int) -> int:
    """Ranks that must train together: the size of a sharding group, or 1 if the plan has no groups.

    Raises:
        UsageError: the plan of a file is not for the most hosts, or cannot be adapted to fewer.
    """
    cluster, local = plan.cluster, plan.cluster.job_local_world_size
    split = inexact_tables(plan)
    group = 1 if cluster.replication is None else cluster.world_size
    check_rules(
        None if (local, cluster.job_world_size) == (ranks, most * ranks) else
        f"plan '{file}' is of {cluster.job_world_size // local} hosts with {local} devices each, and the job is to "
        f"have {most} with {ranks}; write plan: auto, or plan for those",
        None if least * ranks % group == 0 else
        f"plan '{file}' is of sharding groups of {group} ranks, and {least} hosts have {least * ranks}; give --hosts a "
        "range that begins with whole groups",
        None if not isinstance(cluster.hbm_bytes, tuple) else
        f"plan '{file}' is of devices with different memory, and any host may be lost; write plan: auto",
        None if not split or group > 1 else
        f"plan '{file}' splits columns of table '{split[0]}' under a row-wise optimizer, whose state fewer hosts could "
        "not load; write plan: auto, or plan with --keep-exact",
    )  # fmt: skip
    return group


def _shares(run: Run, ranks: int) -> bool:
    """Whether each batch can be divided evenly among this many ranks."""
    try:
        run.data.batch_sizes(ranks)
    except UsageError:
        return False
    return True


def own_address() -> str:
    """This host's address as other hosts reach it: of gloo's interface if that is set, else of the outgoing interface.

    Raises:
        UsageError: the host has no such address.
    """
    name = os.environ.get(INTERFACE, "").partition(",")[0].lstrip("=")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            if not name:
                probe.connect(SOMEWHERE)
                return str(probe.getsockname()[0])
            raw = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            return socket.inet_ntoa(raw[20:24])
        except OSError as error:
            raise UsageError(
                f"this host has no address where others reach it ({name or 'no way out'}: {error.strerror}); export "
                f"{INTERFACE} with the name of the interface between hosts, as `ip addr` shows it"
            ) from None


def _run_agent(asked: HostSettings, *, own: bool) -> None:
    """Run this host's agent until it ends, and raise its error if it reported one."""
    environment = {
        "TORCH_CPP_LOG_LEVEL": "ERROR", "LOGLEVEL": "ERROR", "PYTHONWARNINGS": "ignore", **os.environ,
        "PYTHONPATH": os.pathsep.join(places_of_modules(own=own)), "PYTHONSAFEPATH": "1", PARENT: str(os.getpid()),
    }  # fmt: skip
    hears, says = os.pipe()
    words = [sys.executable, "-P", "-m", "recsmith.jobs.hosts.agent", dump_json(encode(asked)), str(says)]
    pid: list[int] = []
    with os.fdopen(hears, encoding="utf-8") as reason, passing_on_signals(pid):
        agent = subprocess.Popen(words, env=environment, start_new_session=True, pass_fds=[says])
        os.close(says)
        pid.append(agent.pid)
        try:
            status = agent.wait()
        finally:
            agent.kill()
        why = reason.read()
    if why:
        failure = json.loads(why)
        raise getattr(errors, failure["kind"], RecSmithError)(failure["message"])
    if status in (128 + signal.SIGTERM, -signal.SIGTERM):
        raise RecSmithError("a signal ended training on this host; other hosts go on where enough of them are left")
    if status:
        raise RecSmithError(f"the agent of this host ended with status {status}; see what it said")
