"""Local processes that serve this one through plain pipes: how they are started, and how they end."""

import os
import subprocess
import sys
from contextlib import suppress
from typing import IO, Any

from recsmith.jobs.safe_path import places_of_modules

GRACE_S = 5.0  # that a process has to end once its pipes are closed


def start_piped(module: str, words: str, *, own: bool = True) -> subprocess.Popen[bytes]:
    """Start `python -m module words` with pipes; own: it runs nothing but RecSmith.

    It has a session of its own: Ctrl-C reaches this process alone, which then ends the other in order.
    """
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(places_of_modules(own=own)),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True,
    )  # fmt: skip


def pipe_of(pipe: IO[bytes] | None) -> Any:
    """A pipe of such a process."""
    assert pipe is not None, "these processes are started with pipes"
    return pipe


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a process, which then ends."""
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe_of(pipe).close()


def end_piped(process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
    """Wait until a process whose pipes were closed has ended; kill it where it does not, or at once."""
    if at_once:
        process.kill()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
