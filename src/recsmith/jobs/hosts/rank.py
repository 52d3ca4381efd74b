"""What a rank of a job of several hosts does beside its work: it ends in the order that its agent needs.

torchrun takes a rank that ends by itself for one that is done, or that has failed. So a rank that fails because another
host is gone, or that another host asked to save and end, waits until its own agent ends it for the next round. Without
torch.
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
from recsmith.jobs.agent import PARENT, end_with_parent
from recsmith.jobs.hosts.rounds import HostRound, broken_file, read_round, refusal_file

HOSTS_FOLDER, HOST_ROUND = "RECSMITH_HOSTS", "RECSMITH_HOST_ROUND"  # environment of ranks
LEFT_S = 12.0  # for which a rank that failed waits for its agent to end it: longer than a silent host is waited for
SAVED_S = 40.0  # and one that has saved because another host was asked to end
LOOK_S = 0.25
_asked = threading.Event()  # whether this rank's own agent has asked it to end


def in_hosts() -> bool:
    """Whether this process is a rank of such a job."""
    return HOSTS_FOLDER in os.environ and HOST_ROUND in os.environ


def this_round() -> HostRound | None:
    """The round of hosts that this rank trains in; None elsewhere."""
    if not in_hosts():
        return None
    found = read_round(Path(os.environ[HOSTS_FOLDER]))
    return found if found is not None and str(found.number) == os.environ[HOST_ROUND] else None


@contextmanager
def as_host_rank() -> Generator[None]:
    """Be a rank of such a job within; elsewhere this does nothing.

    What RecSmith raises on purpose ends the job on all hosts. Any other failure may be that of a host that is gone.
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
        if type(error) is RecSmithError:  # it may be what the loss of a host led to
            _wait_to_be_ended(LEFT_S)
        file = refusal_file(_folder(), _number())
        file.write_text(json.dumps({"kind": type(error).__name__, "message": str(error)}))
        raise
    except Exception:
        _wait_to_be_ended(LEFT_S)
        raise


def leave_hosts(*, complete: bool) -> NoReturn:
    """End a rank of such a job whose work is done, or saved: the last call, on every rank."""
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
    """Wait for SIGTERM, at which this process ends."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not _asked.is_set():
        time.sleep(LOOK_S)


def _watch_signals() -> None:
    """Once asked to end, do so at once where a host is lost: a rank that waits for that one hears of no signal."""
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
