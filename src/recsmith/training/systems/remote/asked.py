"""Agreement of servers on whether all of them got the same request: a trainer may die after it has asked only some.

Servers write a checkpoint together. If one of them was not asked, the others would wait for it as long as writing may
take, and meanwhile answer nobody. So they agree first: all of them write, or none.
"""

import time
from dataclasses import dataclass

from torch._C._distributed_c10d import Store

POLL_S = 0.01


@dataclass(frozen=True)
class ServersAsked:
    """How the servers of a job agree. store: reached by all of them. timeout_s: seconds in which a trainer asks all."""

    store: Store
    servers: int
    timeout_s: float

    def all(self, what: str) -> bool:
        """Whether every server was asked for `what`, a word used only once; all servers get the same answer."""
        came, until = self.store.add(f"asked/{what}", 1), time.monotonic() + self.timeout_s
        while came < self.servers and time.monotonic() < until:
            time.sleep(POLL_S)
            came = self.store.add(f"asked/{what}", 0)
        said = "all" if came >= self.servers else "some"
        return self.store.compare_set(f"decided/{what}", "", said) == b"all"
