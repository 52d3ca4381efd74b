"""What ranks see, put together: sums that cross ranks while training goes on, and counts that they gather."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from recsmith.files import Raw
from recsmith.streaming.hot_sets import HotSet, added_up, packed, unpacked
from recsmith.streaming.job_sums import JobLayout, JobSums
from recsmith.streaming.repeats import SeenSamples

Item = TypeVar("Item")


class SumsOnTheirWay:
    """The sums of one look: sent then, and taken at the next, when they have long arrived."""

    def __init__(self) -> None:
        self._step = 0
        self._sums: JobSums | None = None
        self._work: dist.Work | None = None

    def send(self, step: int, sums: JobSums, group: Any) -> None:
        """Begin to add up those of all ranks."""
        self._step, self._sums = step, sums
        self._work = dist.all_reduce(torch.from_numpy(sums.vector), group=group, async_op=True)

    def take(self) -> tuple[int, JobSums] | None:
        """(step, sums of all ranks); None where none were sent."""
        self._arrived()
        found, self._sums = self._sums, None
        return None if found is None else (self._step, found)

    def _arrived(self) -> None:
        if self._work is not None:
            self._work.wait()
            self._work = None

    def to_raw(self) -> Raw | None:
        """The sums as JSON data, once they have arrived; None where none were sent."""
        self._arrived()
        return None if self._sums is None else {"step": self._step, "sums": self._sums.vector.tolist()}

    def from_raw(self, raw: Raw | None, layout: JobLayout) -> None:
        """Go on from there; of another number of ranks, times are left out."""
        if raw is None:
            return
        self._step, self._sums = raw["step"], JobSums(layout)
        sent, here = raw["sums"], self._sums
        alike = len(sent) == layout.size
        kept = layout.size if alike else layout.size - here.ranks.size
        here.vector[:kept] = sent[:kept]


def gathered(mine: Item, group: Any) -> list[Item]:
    """What each rank gives, in their order; all of them wait."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine, group=group)
    return found


def choose_full(hot: Mapping[str, HotSet], group: Any) -> None:
    """Choose the hot sets for which enough was collected, of all ranks' ids."""
    full = {name: each for name, each in hot.items() if each.full}
    for name, parts in _collected(full, group).items() if full else ():
        full[name].choose(*added_up(parts))


def counts_of_all(hot: Mapping[str, HotSet], group: Any) -> dict[str, list[str]]:
    """What all ranks collected for hot sets that are not chosen yet, packed, by feature."""
    open_ = {name: each for name, each in hot.items() if not each.chosen}
    return {name: [packed(part) for part in added_up(parts)] for name, parts in _collected(open_, group).items()}


def _collected(hot: Mapping[str, HotSet], group: Any) -> dict[str, list[Any]]:
    """(ids, counts) of every rank, by feature."""
    mine = {name: [packed(part) for part in each.collected()] for name, each in hot.items()}
    ranks = gathered(mine, group)
    return {name: [tuple(unpacked(text) for text in each[name]) for each in ranks] for name in mine}


def samples_of(raw: list[Raw], rank: int, ranks: int, most: int) -> SeenSamples:
    """What a rank goes on with, of what each rank had seen: its own part, or on other ranks all of it."""
    alike = len(raw) == ranks
    found = SeenSamples(most=most)
    for number, part in enumerate(raw):
        if not alike or number == rank:
            each = SeenSamples(most=most)
            each.from_raw(part)
            found.take_in(each)
    if not alike and rank:
        found.take()  # rank 0 tells what was counted
    return found
