"""A round is a set of hosts that train together, stored in a file; this module has the rules for the next round.

A host is lost if it no longer answers. Its file in the shared folder shows whether the machine or only its network has
failed: a running machine keeps touching the file. If the network splits into two halves, only one of them trains on.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from recsmith._types import noun
from recsmith.files import decode, dump_json, encode, read_json, replace_file

HOSTS = "hosts"  # the folder of a run's output where its hosts meet
ROUND_FILE = "round.json"


@noun
class HostAgent:
    """The agent of a host. name: the host's name in messages. ranks: number of ranks that it starts."""

    id: str
    name: str
    address: str
    port: int
    ranks: int


@noun
class HostRound:
    """The hosts that train together, in the order of their ranks.

    number: number of the round, from 1. lost, joined: names of hosts that left since the previous round, and that are
    new in this one. lost_at_s: time of the last answer of a lost host (seconds since 1970). closed: whether the job has
    ended.
    """

    number: int
    hosts: tuple[HostAgent, ...]
    lost: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    lost_at_s: float | None = None
    closed: bool = False

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the agents, in the order of their ranks."""
        return tuple(each.id for each in self.hosts)

    def place_of(self, agent: str) -> int:
        """Position of an agent's host in the round, from 0."""
        return self.ids.index(agent)


def read_round(folder: Path) -> HostRound | None:
    """The newest round of a folder; None if there has been none."""
    file = folder / ROUND_FILE
    return decode(HostRound, read_json(str(file)), str(file)) if file.exists() else None


def write_round(folder: Path, made: HostRound) -> None:
    """Write the newest round atomically."""
    replace_file(folder / ROUND_FILE, dump_json(encode(made)).encode())


def group_of(me: str, sees: Mapping[str, Collection[str]]) -> list[str]:
    """Sorted ids of a group of hosts that all reach each other, with host `me`; found greedily, so not always largest.

    sees: for each waiting host, the ids of the hosts that it reaches.
    """
    group = [me]
    others = sorted(sees.keys() - {me}, key=lambda each: (-len(sees[each]), each))
    for each in others:
        if all(each in sees[other] and other in sees[each] for other in group):
            group.append(each)
    return sorted(group)


def in_order(group: Sequence[str], running: HostRound | None) -> list[str]:
    """A group's hosts in the order of their ranks: first those of the running round, in its order, then new ones."""
    before = [each for each in running.ids if each in group] if running else []
    return [*before, *(each for each in group if each not in before)]


def may_replace(running: HostRound, group: Collection[str], there: Collection[str]) -> bool:
    """Whether a group may replace a running round: it needs more than half of the round's hosts that still exist.

    With exactly half of them, it needs the first one. there: hosts of the round whose machines are not gone.
    """
    left = [each for each in running.ids if each in there or each in group]
    mine = [each for each in left if each in group]
    return 2 * len(mine) > len(left) or (2 * len(mine) == len(left) and left[:1] == mine[:1])


def broken_file(folder: Path, number: int) -> Path:
    """The file that marks a round as broken: a host is lost or replaced, so its ranks can no longer save."""
    return folder / f"broken-{number}"


def refusal_file(folder: Path, number: int) -> Path:
    """The file with a RecSmith error that a rank of a round raised; another round would raise it again."""
    return folder / f"refused-{number}.json"
