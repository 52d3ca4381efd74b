"""`recsmith serve` as a process, for tests of what is only seen from outside."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from support.listeners import descendants, listening, wide
from support.process import heed_interrupts

WAIT_S = 60.0  # for a busy machine


@dataclass
class Served:
    """A running server. address: with the token, as it is printed."""

    process: subprocess.Popen[str]
    address: str

    @property
    def base(self) -> str:
        return self.address.partition("/?token=")[0]

    @property
    def token(self) -> str:
        return self.address.partition("/?token=")[2]

    def client(self) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.base, headers=headers, timeout=WAIT_S)

    def children(self) -> list[str]:
        """Process ids of what the server has started."""
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        return found.stdout.split()


@contextmanager
def serving(*words: str) -> Iterator[Served]:
    """A server with files and options, ended afterwards whatever happens; its user has kept no plans yet."""
    home = tempfile.TemporaryDirectory()
    process = subprocess.Popen(
        [sys.executable, "-m", "recsmith", "serve", "--no-open", *words], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts, env=os.environ | {"XDG_DATA_HOME": home.name},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        if "--allow-network" not in words:
            assert not wide(listening([process.pid, *descendants(process.pid)]))
        yield Served(process, line)
    finally:
        process.kill()
        process.communicate()
        home.cleanup()


def events_of(client: httpx.Client, search: str) -> Iterator[dict[str, Any]]:
    """The events of a search as they come."""
    import json

    with client.stream("GET", f"/api/searches/{search}/events") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))
