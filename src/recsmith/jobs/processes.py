"""Local helper processes: their module paths, their start and end, and arrays sent through their pipes.

Modules are never imported from the working folder, unless the user named a module. Python looks there first (`python
-m`, `python -c`, an interactive session). A file of any name may be there, such as `secrets.py`, and would be run in
place of the library's. So processes start with -P and PYTHONSAFEPATH, and get explicit paths.

A message of arrays is eight bytes of length, then a safetensors file, which contains no code.
"""

import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

import recsmith
from recsmith.errors import CorruptFile


def places_of_modules(*, own: bool) -> list[str]:
    """The paths (sys.path) that a job gets from this process. own: whether the job runs only RecSmith's code.

    The working folder is left out for RecSmith's own jobs and kept for a module that the user named. It is also kept if
    RecSmith itself was imported from there, as in a checkout.
    """
    here = os.path.realpath(os.curdir)
    entries = [entry or here for entry in sys.path]
    return _without(here, entries) if own and _home() != here else list(dict.fromkeys(entries))


def _without(folder: str, entries: Sequence[str]) -> list[str]:
    return [entry for entry in dict.fromkeys(entries) if os.path.realpath(entry) != folder]


def _home() -> str:
    """The folder that holds the package."""
    return os.path.realpath(Path(recsmith.__file__).parents[1])


TOGETHER_S = 1.0  # seconds within which several signals count as one: launchers signal each process and each group
GRACE_S = 5.0  # seconds that a process has to end once its pipes are closed


def start_piped(module: str, arguments: str, *, own: bool = True) -> subprocess.Popen[bytes]:
    """Start `python -m module arguments` with pipes. own: whether it runs only RecSmith's code.

    It runs in its own session: Ctrl-C reaches this process only, which then ends the other one in order.
    """
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(places_of_modules(own=own)),
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True,
    )  # fmt: skip


def pipe_of(pipe: IO[bytes] | None) -> Any:
    """A pipe of a process started by `start_piped`, which is never None."""
    assert pipe is not None, "these processes are started with pipes"
    return pipe


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes of a process, which makes it end."""
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            pipe_of(pipe).close()


def end_piped(process: subprocess.Popen[bytes], *, at_once: bool = False) -> None:
    """Wait until a process whose pipes were closed has ended; kill it after GRACE_S, or at once if `at_once`."""
    if at_once:
        process.kill()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


LARGEST = 2**30  # most bytes of a message; the largest rows of tasks need a twentieth of this
_LENGTH = struct.Struct(">Q")

Arrays = dict[str, Any]


def send(pipe: IO[bytes], arrays: Arrays) -> None:
    """Write a message of arrays; OSError if the reader has gone."""
    from safetensors.numpy import save

    body = save({name: np.ascontiguousarray(value) for name, value in arrays.items()})
    pipe.write(_LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Arrays | None:
    """The next message of arrays; None if the other side has ended, also in the middle of a message.

    Raises:
        CorruptFile: the bytes are no message.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > LARGEST:
        raise CorruptFile(f"a message of {length:,} bytes came from another process; the largest have {LARGEST:,}")
    body = pipe.read(length)
    if len(body) < length:
        return None
    try:
        return load(body)
    except SafetensorError as error:
        raise CorruptFile(f"what came from another process is no message ({error})") from None


def encode_text(text: str) -> Any:
    """Text as an array of bytes."""
    return np.frombuffer(text.encode(), dtype=np.uint8)


def decode_text(array: Any) -> str:
    """The text of an array made by `encode_text`."""
    return bytes(np.asarray(array, dtype=np.uint8)).decode(errors="replace")
