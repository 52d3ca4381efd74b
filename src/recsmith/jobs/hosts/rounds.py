"""Which hosts train together: a round of them, kept in a file, and the rules by which the next one is made.

A host is lost where it no longer answers. Whether its machine is gone, or only its network, others know by its file in
the folder: a machine that is gone no longer touches it. Of two halves of a network that parted, one trains on.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from recsmith._types import noun
from recsmith.files import decode, dump_json, encode, read_json, replace_file

HOSTS = "hosts"  # the folder of a run's output where its hosts meet
ROUND_FILE = "round.json"


@noun
class HostAgent:
    """A host's agent. name: of the host, for people. ranks: that it starts."""

    id: str
    name: str
    address: str
    port: int
    ranks: int


@noun
class HostRound:
    """The hosts that train together, in the order of their ranks.

    number: from 1 on. lost, joined: names of hosts that were in the round before and are not in this one, and that are
    new in it. lost_at_s: when a lost one answered last (seconds since 1970). closed: the job has ended.
    """

    number: int
    hosts: tuple[HostAgent, ...]
    lost: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    lost_at_s: float | None = None
    closed: bool = False

    @property
    def ids(self) -> tuple[str, ...]:
        """Of its agents."""
        return tuple(each.id for each in self.hosts)

    def place_of(self, agent: str) -> int:
        """Which of its hosts an agent is, from 0 on."""
        return self.ids.index(agent)


def read_round(folder: Path) -> HostRound | None:
    """The newest round of a folder; None where there was none yet."""
    file = folder / ROUND_FILE
    return decode(HostRound, read_json(str(file)), str(file)) if file.exists() else None


def write_round(folder: Path, made: HostRound) -> None:
    """Write the newest round, whole or not at all."""
    replace_file(folder / ROUND_FILE, dump_json(encode(made)).encode())


def group_of(me: str, sees: Mapping[str, Collection[str]]) -> list[str]:
    """The hosts that all reach each other, as many as are found, of which this one is one; by id.

    sees: by each host that waits, which others it reaches.
    """
    group = [me]
    others = sorted(sees.keys() - {me}, key=lambda each: (-len(sees[each]), each))
    for each in others:
        if all(each in sees[other] and other in sees[each] for other in group):
            group.append(each)
    return sorted(group)


def in_order(group: Sequence[str], running: HostRound | None) -> list[str]:
    """A group's hosts in the order of their ranks: those of the round that ran first, as they were, then new ones."""
    before = [each for each in running.ids if each in group] if running else []
    return [*before, *(each for each in group if each not in before)]


def may_replace(running: HostRound, group: Collection[str], there: Collection[str]) -> bool:
    """Whether a group may train in place of a round that runs: it has more than half of its hosts that are still there.

    there: hosts of the round whose machines are not gone. Where it has exactly half, it needs the first of them.
    """
    left = [each for each in running.ids if each in there or each in group]
    mine = [each for each in left if each in group]
    return 2 * len(mine) > len(left) or (2 * len(mine) == len(left) and left[:1] == mine[:1])


def broken_file(folder: Path, number: int) -> Path:
    """The file that says that a round has lost a host, so that its ranks can save nothing more."""
    return folder / f"broken-{number}"


def refusal_file(folder: Path, number: int) -> Path:
    """The file with what a rank of a round raised on purpose: no other round would do better."""
    return folder / f"refused-{number}.json"
