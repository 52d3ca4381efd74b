"""Finds which hosts of a job answer: each host answers requests for its status, and asks all others twice a second.

Each host stores its address in a file of the job's folder. An answer is a line of JSON; nothing is read from the host
that asks. If a host does not answer, its file shows whether its machine is gone, because each agent keeps touching its
own file. Clocks of different hosts are never compared.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from recsmith._types import noun
from recsmith.errors import RecSmithError
from recsmith.files import decode, dump_json, encode, parse_json, read_json, replace_file
from recsmith.jobs.hosts.rounds import HostAgent
from recsmith.jobs.machine import listener

ASK_S = 0.5  # seconds between two rounds of requests
ANSWER_S = 2.0  # seconds to wait for an answer
SILENT_S = 6.0  # seconds without an answer after which a host is lost: several requests, since a busy machine is slow
REFUSALS = 2  # refused connections after which a host is lost: its machine says that nobody listens any more
TOUCH_S = 2.0  # seconds between two touches of the own file
GONE_S = 8.0  # seconds without a touch after which the machine of a silent host is gone
FORGOTTEN_S = 120.0  # seconds without a touch after which the file of a silent host is removed
AT_ONCE = 16  # most requests at the same time
LARGEST = 65_536  # most bytes of an answer
ENDING = ".host"  # ending of the files with addresses


@noun
class HostStatus:
    """The status that a host answers.

    waits: whether it waits for a round after number `after`, the last round that it was in. sees: ids of the hosts that
    answer it. store: (round, port) of the store that it runs for ranks, once there is one.
    """

    id: str
    waits: bool = False
    after: int = 0
    sees: tuple[str, ...] = ()
    store: tuple[int, int] | None = None


@dataclass
class AskedHost:
    """The known state of another host."""

    agent: HostAgent
    since: float  # time when it was first seen; monotonic, like the other times
    status: HostStatus | None = None
    answered: float = -1e9
    answered_at: float = 0.0  # wall-clock time
    refusals: int = 0
    touch: float = -1.0
    touched: float = field(default_factory=time.monotonic)

    @property
    def answers(self) -> bool:
        """Whether the host has answered within SILENT_S and does not refuse connections."""
        recent = time.monotonic() - self.answered < SILENT_S
        return self.status is not None and recent and self.refusals < REFUSALS

    @property
    def is_gone(self) -> bool:
        """Whether the host's machine or agent is gone: it does not answer, and its file is not touched."""
        return not self.answers and time.monotonic() - self.touched > GONE_S


class HostPings:
    """Answers the other hosts of a folder and asks them for their status, in two threads, until it is closed.

    tell: returns this host's status.
    """

    def __init__(self, folder: Path, agent: HostAgent, server: socket.socket, tell: Callable[[], HostStatus]) -> None:
        self.folder, self.agent, self.others = folder, agent, dict[str, AskedHost]()
        self._server, self._tell, self._ended, self._touching = server, tell, threading.Event(), threading.Lock()
        self.file = folder / f"{agent.id}{ENDING}"
        self._write_file()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._answer, self._ask)]
        for each in self._threads:
            each.start()

    def close(self) -> None:
        """Stop answering, and remove this host's file from the folder."""
        self._ended.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._touching:
            self.file.unlink(missing_ok=True)

    def answering(self) -> dict[str, AskedHost]:
        """The other hosts that answer, by id."""
        return {key: each for key, each in list(self.others.items()) if each.answers}

    def _answer(self) -> None:
        while not self._ended.is_set():
            try:
                peer, _ = self._server.accept()
                with peer:
                    peer.settimeout(ANSWER_S)
                    peer.sendall((dump_json(encode(self._tell()))).encode())
            except OSError:
                time.sleep(0.01)

    def _ask(self) -> None:
        touched = 0.0
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while not self._ended.wait(ASK_S):
                with suppress(OSError, RecSmithError):
                    if time.monotonic() - touched > TOUCH_S:
                        self._touch()
                        touched = time.monotonic()
                    self._find()
                list(pool.map(_ask_one, list(self.others.values())))

    def _touch(self) -> None:
        """Touch the own file; write it again if other hosts removed it while this host was paused."""
        with self._touching:
            if not self._ended.is_set():
                try:
                    os.utime(self.file)
                except FileNotFoundError:
                    self._write_file()

    def _write_file(self) -> None:
        replace_file(self.file, dump_json(encode(self.agent)).encode())

    def _find(self) -> None:
        """Read the files of new hosts, and check which files were touched."""
        there = {file.name.removesuffix(ENDING): file for file in self.folder.glob(f"*{ENDING}")}
        for key in self.others.keys() - there.keys():
            if not self.others[key].answers:
                del self.others[key]
        for key, file in there.items():
            if key != self.agent.id:
                with suppress(OSError, RecSmithError):  # the file is being removed
                    self._look_at(key, file)

    def _look_at(self, key: str, file: Path) -> None:
        if key not in self.others:
            found = decode(HostAgent, read_json(str(file)), str(file))
            self.others[key] = AskedHost(found, time.monotonic())
        asked, touch = self.others[key], file.stat().st_mtime
        if touch != asked.touch:
            asked.touch, asked.touched = touch, time.monotonic()
        elif not asked.answers and time.monotonic() - asked.touched > FORGOTTEN_S:
            file.unlink(missing_ok=True)


def _ask_one(asked: AskedHost) -> None:
    """Ask a host for its status, and record the time of its answer."""
    try:
        with socket.create_connection((asked.agent.address, asked.agent.port), timeout=ANSWER_S) as peer:
            raw = b""
            while len(raw) < LARGEST and (part := peer.recv(LARGEST)):
                raw += part
        status = decode(HostStatus, parse_json(raw.decode(), asked.agent.name), asked.agent.name)
        if status.id == asked.agent.id:
            asked.status, asked.refusals = status, 0
            asked.answered, asked.answered_at = time.monotonic(), time.time()
    except ConnectionRefusedError:
        asked.refusals += 1
    except (OSError, ValueError, RecSmithError):
        pass  # the host counts as lost after SILENT_S without an answer


def open_door(address: str) -> socket.socket:
    """A socket that listens at an address of this machine."""
    return listener(address)
