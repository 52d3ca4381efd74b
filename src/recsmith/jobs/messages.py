"""Arrays between processes, through plain pipes: eight bytes of length, then a safetensors file; nothing to execute."""

import struct
from typing import IO, Any

import numpy as np

from recsmith.errors import CorruptFile

LARGEST = 2**30  # bytes; the largest rows of tasks need a twentieth
_LENGTH = struct.Struct(">Q")

Arrays = dict[str, Any]


def send(pipe: IO[bytes], arrays: Arrays) -> None:
    """Write arrays; OSError where nobody reads any more."""
    from safetensors.numpy import save

    body = save({name: np.ascontiguousarray(value) for name, value in arrays.items()})
    pipe.write(_LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Arrays | None:
    """The next arrays; None where the other side has ended, also in the middle of a message.

    Raises:
        CorruptFile: what came is no message.
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


def text_of(words: str) -> Any:
    """Words as an array."""
    return np.frombuffer(words.encode(), dtype=np.uint8)


def words_of(text: Any) -> str:
    """The words of such an array."""
    return bytes(np.asarray(text, dtype=np.uint8)).decode(errors="replace")
