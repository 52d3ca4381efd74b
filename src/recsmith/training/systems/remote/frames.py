"""Frames on a socket: a length, JSON that describes what follows, and the bytes of tensors as they are in memory.

Nothing in a frame is executed. It may hold numbers of a few types, whose sizes are checked before memory is allocated
for them.
"""

import json
import math
import socket
import struct
import time
from typing import Any, cast

import torch

from recsmith.errors import CorruptFile

Tensors = dict[str, torch.Tensor]
DTYPES = {
    str(each).removeprefix("torch."): each
    for each in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
                 torch.int8, torch.uint8, torch.bool)
}  # fmt: skip
LARGEST_HEAD = 2**26  # bytes of JSON; the names of a million tensors need half of this
LARGEST = 2**40  # bytes of tensors
JOINED = 2**16  # frames of at most this many bytes are joined and sent as one buffer
MOST_PARTS = 512  # buffers that one sendmsg call sends; Linux takes at most 1,024
_LENGTH = struct.Struct(">I")


def send_frame(to: socket.socket, words: Any, tensors: Tensors, until: float) -> None:
    """Send words (JSON data) and tensors. until: the deadline, in seconds of `time.monotonic`.

    Raises:
        TimeoutError: the other side did not take them in time.
        OSError: the connection is closed.
    """
    whole = {name: each.detach().contiguous() for name, each in tensors.items()}
    kinds = [[name, str(each.dtype).removeprefix("torch."), list(each.shape)] for name, each in whole.items()]
    head = json.dumps([words, kinds]).encode()
    parts = [_LENGTH.pack(len(head)), head, *map(_memory, whole.values())]
    if sum(map(len, parts)) <= JOINED:
        parts = [b"".join(parts)]
    _send(to, [memoryview(part) for part in parts if len(part)], until)


def receive_frame(of: socket.socket, until: float, within: float = math.inf) -> tuple[Any, Tensors]:
    """Receive the next words and tensors. within: seconds that a frame may take, counted from its first bytes.

    Raises:
        TimeoutError: the frame did not arrive in time.
        OSError: the connection is closed.
        CorruptFile: the bytes received are no frame.
    """
    (length,) = _LENGTH.unpack(receive_bytes(of, _LENGTH.size, until))
    until = min(until, time.monotonic() + within)
    if length > LARGEST_HEAD:
        raise CorruptFile(f"a message says that its words have {length:,} bytes; at most {LARGEST_HEAD:,} are read")
    try:
        words, kinds = json.loads(receive_bytes(of, length, until))
        tensors = {str(name): _room(kind, shape) for name, kind, shape in kinds}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptFile(f"a message is not what RecSmith sends ({error})") from None
    for each in tensors.values():
        _fill(of, _memory(each), until)
    return words, tensors


def receive_bytes(of: socket.socket, length: int, until: float) -> bytes:
    """Receive this many bytes; raises TimeoutError and OSError like `receive_frame`."""
    found = bytearray(length)
    _fill(of, memoryview(found), until)
    return bytes(found)


def _room(kind: str, shape: list[int]) -> torch.Tensor:
    """An uninitialized tensor to receive into; ValueError if its shape is invalid or it is too large."""
    dtype = DTYPES[kind]
    if any(type(each) is not int or each < 0 for each in shape) or math.prod(shape) * dtype.itemsize > LARGEST:
        raise ValueError(f"a tensor of shape {shape}")
    return torch.empty(shape, dtype=dtype)


def _memory(tensor: torch.Tensor) -> memoryview:
    return memoryview(cast(Any, tensor.reshape(-1).view(torch.uint8).numpy()))


def _send(to: socket.socket, parts: list[memoryview], until: float) -> None:
    """Send all parts without copying them, at most MOST_PARTS with each call."""
    while parts:
        to.settimeout(_left(until))
        sent = to.sendmsg(parts[:MOST_PARTS])
        while parts and sent >= len(parts[0]):
            sent -= len(parts.pop(0))
        if sent:
            parts[0] = parts[0][sent:]


def _fill(of: socket.socket, room: memoryview, until: float) -> None:
    while room:
        of.settimeout(_left(until))
        came = of.recv_into(room)
        if not came:
            raise ConnectionResetError("the other side has closed the connection")
        room = room[came:]


def _left(until: float) -> float | None:
    """Seconds left until a deadline, as a socket's timeout; None for no deadline."""
    if until == math.inf:
        return None
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
