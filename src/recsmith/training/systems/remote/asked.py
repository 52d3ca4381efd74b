"""Whether all servers were asked for the same: a trainer may die when it has asked some of them.

Servers write a checkpoint together. One that was not asked would be waited for as long as writing may take, and
meanwhile the others would answer nobody. So they agree first: all of them write, or none.
"""

import time
from dataclasses import dataclass

from torch._C._distributed_c10d import Store

POLL_S = 0.01


@dataclass(frozen=True)
class ServersAsked:
    """How the servers of a job agree. store: that all of them reach. timeout_s: within which a trainer asks all."""

    store: Store
    servers: int
    timeout_s: float

    def all(self, what: str) -> bool:
        """Whether every server is asked for `what`, a new word each time; they all get the same answer."""
        came, until = self.store.add(f"asked/{what}", 1), time.monotonic() + self.timeout_s
        while came < self.servers and time.monotonic() < until:
            time.sleep(POLL_S)
            came = self.store.add(f"asked/{what}", 0)
        said = "all" if came >= self.servers else "some"
        return self.store.compare_set(f"decided/{what}", "", said) == b"all"
