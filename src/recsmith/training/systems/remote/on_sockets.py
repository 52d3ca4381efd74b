"""The default backend, plain sockets: Unix sockets in the job's folder, or TCP at the address in the run.

On a connection, each side first proves that it has the key of the job; the key itself is never sent. Until then a
server reads only these few bytes. Then calls follow, each a frame whose answer is a frame (frames.py). A trainer has
as many connections to a server as it has calls under way at once, so that no call waits behind another one.
"""

import hmac
import math
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress

from recsmith.errors import CorruptFile, RecSmithError, UsageError
from recsmith.jobs.machine import listener
from recsmith.training.systems.remote.calls import (
    Pending,
    ServerCalls,
    ServerFunctions,
    ServerPlace,
    Tensors,
    answered,
    ended_there,
    gone,
    not_ready,
    too_late,
    unknown,
)
from recsmith.training.systems.remote.frames import receive_bytes, receive_frame, send_frame

GREETING = b"recsmith-remote-1\n"  # the first bytes that a trainer sends
NONCE, PROOF = 32, 32  # bytes; a proof is HMAC-SHA256 of both sides' nonces under the key
PROOF_S = 10.0  # seconds that a peer has for its proof
CONNECTIONS = 1024  # most connections of a server at once; further ones are closed
_open_to_servers = weakref.WeakSet[socket.socket]()


def listen(address: str, server: int) -> socket.socket:
    """A listening socket to be passed to a server's process. address: that of the servers' place.

    Raises:
        UsageError: another program listens there.
    """
    if address.startswith("/"):
        made = socket.socket(socket.AF_UNIX)
        with _folder(address) as short:
            made.bind(f"{short}/server-{server}.socket")
        made.listen()
        return made
    host, port = _host_and_port(address, server)
    try:
        return listener(host, port)
    except OSError as error:
        raise UsageError(
            f"servers cannot listen at {host}:{port} ({error.strerror or error}); give remote.address another port"
        ) from None


class SocketServer:
    """A server, which answers calls on threads as soon as it is made. heard: the listener of `listen`; it closes it."""

    def __init__(self, place: ServerPlace, functions: ServerFunctions, heard: socket.socket) -> None:
        self.place, self.functions, self._heard = place, functions, heard
        self._free = threading.Semaphore(CONNECTIONS)
        threading.Thread(target=self._accept, daemon=True, name="recsmith-accept").start()

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):
            self._heard.shutdown(socket.SHUT_RDWR)  # ends the wait for the next connection
        self._heard.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._heard.accept()
            except OSError:
                if self._heard.fileno() < 0:
                    return
                time.sleep(0.1)  # too many open files: wait until some are closed
                continue
            if self._free.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()
            else:
                peer.close()

    def _serve(self, peer: socket.socket) -> None:
        """Answer the calls of one connection, until it ends."""
        with suppress(OSError, CorruptFile, MemoryError, RuntimeError), peer:
            if self._knows(peer):
                while True:
                    said, tensors = receive_frame(peer, math.inf, self.place.long_s)
                    caller, function = map(str, said)
                    answer = self.functions.answer(caller, self.place.key, function, tensors)
                    send_frame(peer, None, answer, time.monotonic() + self.place.long_s)
        self._free.release()

    def _knows(self, peer: socket.socket) -> bool:
        """Whether a peer proves that it has the key."""
        _quicken(peer)
        until = time.monotonic() + PROOF_S
        said = receive_bytes(peer, len(GREETING) + NONCE, until)
        if not said.startswith(GREETING):
            return False
        nonces = said.removeprefix(GREETING) + secrets.token_bytes(NONCE)
        peer.sendall(nonces[NONCE:] + _proof(self.place.key, b"server", nonces))
        return hmac.compare_digest(receive_bytes(peer, PROOF, until), _proof(self.place.key, b"trainer", nonces))


class SocketCalls(ServerCalls):
    """A trainer's connections to all servers; making it waits until all of them answer.

    Raises:
        RecSmithError: nobody listens at the place, or a server has another key or is not ready in time.
    """

    def __init__(self, place: ServerPlace, name: str) -> None:
        super().__init__(place, name)
        self._idle: list[list[socket.socket]] = [[] for _ in range(place.servers)]
        self._turn, until = threading.Lock(), time.monotonic() + place.long_s
        for server in range(place.servers):
            try:
                self._idle[server].append(self._connected(server, until))
            except TimeoutError:
                raise not_ready(place) from None
            except OSError as error:
                raise ended_there(place, error.strerror or str(error)) from None

    def begin(self, server: int, function: str, tensors: Tensors, timeout: float) -> Pending:
        """Send the call; the returned function reads the answer."""
        until = time.monotonic() + timeout
        link: socket.socket | None = None
        try:
            link = self._taken(server, until)
            send_frame(link, [self.name, function], tensors, until)
        except OSError as error:
            raise self._failure(error, link, server, function, timeout) from None
        used = link

        def wait() -> Tensors:
            try:
                _, answer = receive_frame(used, until)
            except (OSError, CorruptFile) as error:
                raise self._failure(error, used, server, function, timeout) from None
            with self._turn:
                self._idle[server].append(used)
            return answered(answer)

        return wait

    def close(self) -> None:
        """Close all idle connections."""
        with self._turn:
            for link in (each for per in self._idle for each in per):
                link.close()
            self._idle = [[] for _ in self._idle]

    def _taken(self, server: int, until: float) -> socket.socket:
        """A connection that no other call uses, idle or new."""
        with self._turn:
            if self._idle[server]:
                return self._idle[server].pop()
        return self._connected(server, until)

    def _connected(self, server: int, until: float) -> socket.socket:
        """A new connection, on which each side has proved that it has the key."""
        link = _opened(self.place.address, server, until)
        try:
            _open_to_servers.add(link)
            mine = secrets.token_bytes(NONCE)
            link.sendall(GREETING + mine)
            came = receive_bytes(link, NONCE + PROOF, until)
            nonces = mine + came[:NONCE]
            if not hmac.compare_digest(came[NONCE:], _proof(self.place.key, b"server", nonces)):
                raise unknown(server, self.name)
            link.sendall(_proof(self.place.key, b"trainer", nonces))
        except BaseException:
            link.close()
            raise
        return link

    def _failure(
        self, error: Exception, link: socket.socket | None, server: int, function: str, timeout: float
    ) -> RecSmithError:
        if link is not None:
            link.close()  # a late answer must not reach another call
        if isinstance(error, TimeoutError):
            return too_late(server, function, timeout)
        return gone(server, function, str(error) or type(error).__name__)


def descriptors_to_servers() -> set[int]:
    """File descriptors of this process's connections to servers, which belong to no process group."""
    return {each.fileno() for each in list(_open_to_servers)}


def _opened(address: str, server: int, until: float) -> socket.socket:
    """An open connection to a server's listener."""
    left = max(0.001, until - time.monotonic())
    if not address.startswith("/"):
        link = socket.create_connection(_host_and_port(address, server), timeout=left)
        _quicken(link)
        return link
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(left)
        with _folder(address) as short:
            link.connect(f"{short}/server-{server}.socket")
    except BaseException:
        link.close()
        raise
    return link


@contextmanager
def _folder(path: str) -> Generator[str]:
    """A short path to a folder: the path of a Unix socket may have at most 107 bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


def _host_and_port(address: str, server: int) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port) + server


def _proof(key: str, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(key.encode(), side + nonces, "sha256")


def _quicken(link: socket.socket) -> None:
    """Set TCP options: small messages are sent at once, and dead machines are noticed."""
    if link.family != socket.AF_UNIX:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
