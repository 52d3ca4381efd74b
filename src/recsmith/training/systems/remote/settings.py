"""Settings of a run whose tables are on servers; without torch."""

from typing import Literal

from recsmith._types import noun
from recsmith.errors import check_rules, outside

Backend = Literal["sockets", "rpc", "ray"]
MOST_SERVERS, MOST_STEPS_BEHIND, LONGEST_S = 1024, 2**20, 1e6
OPTIMIZERS_OF_SERVERS = ("sgd", "adagrad", "rowwise_adagrad")


@noun
class RunRemote:
    """Tables on servers, which are processes separate from the trainers (docs/remote.md).

    servers: number of servers; a plan for this many ranks decides which rows each holds. backend: what carries calls:
    sockets, which require a key, rpc (torch.distributed.rpc, which requires none), or ray. staleness: steps by which
    the rows that a trainer pulls may lag behind; 0: none, all trainers step together. timeout_s: seconds after which a
    silent trainer is left out, and a silent server ends the job; starting and writing a checkpoint may take 20 times as
    long. address: 'host:port' where server 0 listens, with the other servers at the ports after it (sockets), where
    servers and trainers meet (rpc), or of a Ray cluster; none: this machine alone.
    """

    servers: int = 1
    backend: Backend = "sockets"
    staleness: int = 0
    timeout_s: float = 30.0
    address: str | None = None

    def __post_init__(self) -> None:
        """Check counts, the timeout and the address."""
        host, _, port = (self.address or "localhost:1").rpartition(":")
        check_rules(
            outside("remote.servers", self.servers, 1, MOST_SERVERS),
            outside("remote.staleness", self.staleness, 0, MOST_STEPS_BEHIND),
            None
            if 0 < self.timeout_s <= LONGEST_S
            else f"remote.timeout_s is {self.timeout_s:g}; a call needs some seconds: give more than 0, and at most "
            f"{LONGEST_S:g}",
            None
            if host and port.isdecimal() and 0 < int(port) < 2**16
            else f"remote.address is '{self.address}'; write host:port, such as 127.0.0.1:29600",
            None
            if self.address is None
            or self.backend != "sockets"
            or not port.isdecimal()
            or int(port) + self.servers <= 2**16
            else f"remote.address is '{self.address}', and {self.servers} servers listen at one port after the other, "
            "the last of which is 65535; give a lower port",
        )
