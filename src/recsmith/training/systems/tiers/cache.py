"""A cache of rows in front of a file, without torch: which slot holds which row, and which rows must move.

Legend: N rows of a table's shard, S slots of its cache.
"""

import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recsmith._process import memory_held, memory_limit
from recsmith._types import Bools, Ints
from recsmith.errors import UsageError
from recsmith.units import format_size

EVICTED_AT_ONCE = 50  # of all slots, 1 / 50 is freed when none is left: seldom, and in bulk writes
FOR_FILES = 64 * 2**20  # bytes of file pages without which a job thrashes: PyTorch's code alone maps as many
EMPTY = -1
MOST_BATCHES = 2**31  # more batches than any job has, so that one more read outranks any of them


class RowMoves(NamedTuple):
    """The moves for a batch: slots of its rows in their order, rows to read into slots, changed rows to write back."""

    slots: Ints
    read_rows: Ints
    read_slots: Ints
    left_rows: Ints
    left_slots: Ints


class RowCache:
    """Which of N rows are in S slots; the least recently used rows are evicted first (LRU).

    profile: number of batches whose reads are counted; 0 for none. With a profile, the rows that were read least during
    it are evicted first, ties by least recent use, so that the rows that are read most stay (static).
    """

    def __init__(self, table: str, rows: int, slots: int, profile: int = 0) -> None:
        self.table = table
        self.slot_of: Any = np.full(rows, EMPTY, np.int32)
        self.row_of: Any = np.full(slots, EMPTY, np.int64)
        self.used: Any = np.zeros(slots, np.int64)
        self.changed: Bools = np.zeros(slots, dtype=bool)
        self.free: Ints = np.arange(slots)
        self.clock = 0
        self.profile = profile
        self.reads: Any = np.zeros(rows if profile else 0, np.int32)

    def place(self, rows: Ints, busy: Iterable[Ints], reads: Ints | int = 1) -> RowMoves:
        """Give distinct rows slots, and evict others if needed.

        busy: slots of batches that train or come next, whose rows must stay. reads: how often the batch reads each row.

        Raises:
            UsageError: the rows do not fit in addition to those of busy slots.
        """
        self.clock += 1
        if self.clock <= self.profile:
            self.reads[rows] += reads
        used = self.clock + self.reads[rows].astype(np.int64) * MOST_BATCHES if self.profile else self.clock
        slots = self.slot_of[rows].astype(np.int64)
        missing = slots == EMPTY
        wanted = int(missing.sum())
        left = self._leave(wanted, slots[~missing], busy, len(rows)) if wanted > len(self.free) else self.free[:0]
        left_rows = self.row_of[left]
        self.slot_of[left_rows], self.row_of[left] = EMPTY, EMPTY
        self.free = np.concatenate([self.free, left])
        taken, self.free = self.free[:wanted], self.free[wanted:]
        self.slot_of[rows[missing]], self.row_of[taken] = taken, rows[missing]
        slots[missing] = taken
        self.used[slots] = used
        kept = self.changed[left]
        self.changed[left] = False
        return RowMoves(slots, rows[missing], taken, left_rows[kept], left[kept])

    def _leave(self, wanted: int, own: Ints, busy: Iterable[Ints], rows: int) -> Ints:
        """Choose the slots that lose their rows."""
        stays = self.row_of == EMPTY
        stays[own] = True
        for slots in busy:
            stays[slots] = True
        candidates = np.flatnonzero(~stays)
        least = wanted - len(self.free)
        if least > len(candidates):
            size = len(self.row_of)
            raise UsageError(
                f"table '{self.table}': a batch needs {rows:,} of its rows, and of the {size:,} slots of its cache "
                f"batches before it hold all but {len(candidates) + len(self.free) + len(own):,}; have more of its "
                "rows in memory (rows.cache, or --cache-factors of the plan), or train smaller batches"
            )
        many = min(max(least, len(self.row_of) // EVICTED_AT_ONCE), len(candidates))
        oldest = np.argpartition(self.used[candidates], many - 1)[:many]
        return candidates[oldest]

    def settled(self) -> tuple[Ints, Ints]:
        """(rows, slots) that changed since they were read, by row number. They count as unchanged from now on."""
        slots = np.flatnonzero(self.changed)
        slots = slots[np.argsort(self.row_of[slots])]
        self.changed[:] = False
        return self.row_of[slots], slots

    def empty(self) -> None:
        """Empty all slots."""
        self.slot_of[:], self.row_of[:], self.changed[:] = EMPTY, EMPTY, False
        self.free = np.arange(len(self.row_of))


def check_memory(needed: int) -> None:
    """Raise UsageError if caches do not fit into the memory limit of this process's cgroup.

    needed: bytes of the caches and of the maps from ids to slots. The launcher, torchrun's agent and other ranks count
    against the same limit. So do the pages of files through which rows and programs are read: without some of them,
    every step waits for the disk.

    Raises:
        UsageError: the sum is above the limit.
    """
    limit, held = memory_limit(), memory_held()
    if limit is not None and held + needed + FOR_FILES > limit:
        raise UsageError(
            f"rows: tiered needs {format_size(needed)} for its caches and {format_size(FOR_FILES)} for pages of files, "
            f"beside the {format_size(held)} that the processes under its memory limit hold (launcher, agent, ranks), "
            f"and the limit is {format_size(limit)}; raise the limit, or have less in memory (rows.cache, or "
            "--cache-factors of the plan)"
        )


class ScratchFile:
    """Arrays in one mapped file without a name. Its space is reserved at once, and freed however the job ends.

    folder: where the file is created. shapes: of the arrays, in fp32.

    Raises:
        UsageError: the folder cannot be written, or its disk has too little room.
    """

    def __init__(self, folder: str, shapes: Sequence[tuple[int, ...]]) -> None:
        sizes = [4 * int(np.prod(shape)) for shape in shapes]
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:  # the mapping keeps it open
                os.posix_fallocate(file.fileno(), 0, max(sum(sizes), 1))
                self._map = mmap.mmap(file.fileno(), max(sum(sizes), 1))
        except OSError as error:
            raise UsageError(
                f"rows.folder '{folder}' cannot hold {format_size(sum(sizes))} of rows: {error.strerror or error}; "
                "name a folder on a disk with more room"
            ) from None
        self._random = False
        begins = np.cumsum([0, *sizes])[:-1]
        self.arrays: list[Any] = [
            np.frombuffer(self._map, np.float32, size // 4, begin).reshape(shape)
            for size, begin, shape in zip(sizes, begins.tolist(), shapes, strict=True)
        ]

    def expect(self, *, random: bool) -> None:
        """Tell the system how the file is read next: at random, where reading ahead thrashes, or from end to end."""
        if random != self._random:
            self._map.madvise(mmap.MADV_RANDOM if random else mmap.MADV_NORMAL)
            self._random = random
