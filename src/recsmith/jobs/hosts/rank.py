"""Makes a rank of a job of several hosts end in the order that its agent needs. Imports torch only when used.

torchrun takes a rank that ends by itself for one that is done or has failed. So a rank that fails because another host
is gone, or that has saved because another host was asked to end, waits until its own agent ends it for the next round.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from recsmith.errors import RecSmithError
from recsmith.files import replace_file
from recsmith.jobs.agent import PARENT, end_with_parent
from recsmith.jobs.hosts.rounds import HostRound, broken_file, read_round, refusal_file

HOSTS_FOLDER, HOST_ROUND = "RECSMITH_HOSTS", "RECSMITH_HOST_ROUND"  # environment variables of ranks
LEFT_S = 12.0  # seconds for which a failed rank waits for its agent to end it: longer than SILENT_S of pings.py
SAVED_S = 40.0  # the same for a rank that has saved because another host was asked to end
LOOK_S = 0.25  # seconds between two checks
_asked = threading.Event()  # whether this rank's own agent has asked it to end


def in_hosts() -> bool:
    """Whether this process is a rank of a job of several hosts."""
    return HOSTS_FOLDER in os.environ and HOST_ROUND in os.environ


def this_round() -> HostRound | None:
    """The round of hosts in which this rank trains; None in other jobs, or if the round has been replaced."""
    if not in_hosts():
        return None
    found = read_round(Path(os.environ[HOSTS_FOLDER]))
    return found if found is not None and str(found.number) == os.environ[HOST_ROUND] else None


@contextmanager
def as_host_rank() -> Generator[None]:
    """A context for the work of a rank in a job of several hosts; in other jobs it does nothing.

    An error of RecSmith ends the job on all hosts. Any other failure may be due to a host that is gone, so the rank
    waits for its agent to end it.
    """
    if not in_hosts():
        yield
        return
    if PARENT in os.environ:
        end_with_parent()
    _watch_signals()
    try:
        yield
    except RecSmithError as error:
        if type(error) is RecSmithError:  # it may be due to the loss of a host
            _wait_to_be_ended(LEFT_S)
        file = refusal_file(_folder(), _number())
        replace_file(file, json.dumps({"kind": type(error).__name__, "message": str(error)}).encode())
        raise
    except Exception:
        _wait_to_be_ended(LEFT_S)
        raise


def leave_hosts(*, complete: bool) -> NoReturn:
    """End a rank whose work is done (`complete`) or saved, in a job of several hosts: the last call, on every rank."""
    import torch.distributed as dist

    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    if not complete and not _asked.is_set():
        _wait_to_be_ended(SAVED_S)
        os._exit(1)
    os._exit(0)


def _folder() -> Path:
    return Path(os.environ[HOSTS_FOLDER])


def _number() -> int:
    return int(os.environ[HOST_ROUND])


def _wait_to_be_ended(seconds: float) -> None:
    """Wait up to `seconds` for the agent's SIGTERM, which ends this process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not _asked.is_set():
        time.sleep(LOOK_S)


def _watch_signals() -> None:
    """Start a thread that, after SIGTERM, ends this process as soon as the round is broken.

    A rank that waits in a collective for a lost host would not handle the signal.
    """
    heard, hears = os.pipe()
    os.set_blocking(hears, False)
    signal.set_wakeup_fd(hears, warn_on_full_buffer=False)

    def watch() -> None:
        while os.read(heard, 1)[0] != signal.SIGTERM:
            pass
        _asked.set()
        while not broken_file(_folder(), _number()).exists():
            time.sleep(LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
