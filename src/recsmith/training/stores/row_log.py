"""A table's rows in a file: at home, in the order of the table, and those that left a cache lately one after the other.

A row that leaves a cache is a small part of a page of the disk. At home it would cost a page that is read and a page
that is written; in a log, rows that leave together share pages, sixteen of 64 columns each. A log that is full is
brought home in the order of rows, in one pass over the table (O'Neil et al., "The log-structured merge-tree", Acta
Informatica 33(4), 1996). Which row lies where in the log is kept in memory.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from recsmith._types import Ints
from recsmith.sharding.memory import LOG_PART

AT_HOME = -1
BROUGHT_AT_ONCE = 2**18  # rows that are in memory while they are brought home: 64 MiB of 64 columns


def log_rows(rows: int) -> int:
    """How many rows the log of a table holds."""
    return max(1, rows // LOG_PART)


class LoggedRows:
    """Rows of a table and their state. home, log: of each of these, a tensor by rows, and one by places of the log."""

    def __init__(self, home: Sequence[torch.Tensor], log: Sequence[torch.Tensor]) -> None:
        self.home, self.log = home, log
        self.at: Any = np.full(len(home[0]), AT_HOME, np.int32)
        self.end = 0

    def read(self, rows: Ints) -> list[torch.Tensor]:
        """What these rows hold, part by part."""
        at = self.at[rows]
        logged = np.flatnonzero(at != AT_HOME)
        of_log, places = torch.from_numpy(at[logged].astype(np.int64)), torch.from_numpy(logged)
        found: list[torch.Tensor] = []
        if len(logged) == len(rows):
            return [log.index_select(0, of_log) for log in self.log]
        own = np.flatnonzero(at == AT_HOME)
        of_home, there = torch.from_numpy(rows[own]), torch.from_numpy(own)
        for home, log in zip(self.home, self.log, strict=True):
            if not len(logged):
                found.append(home.index_select(0, of_home))
                continue
            made = torch.empty((len(rows), *home.shape[1:]), dtype=home.dtype)
            made.index_copy_(0, there, home.index_select(0, of_home))
            made.index_copy_(0, places, log.index_select(0, of_log))
            found.append(made)
        return found

    def has_room(self, count: int) -> bool:
        """Whether the log takes so many rows more."""
        return self.end + count <= len(self.log[0])

    def write(self, rows: Ints, values: Sequence[torch.Tensor]) -> None:
        """Write distinct rows to the log, which has room for them."""
        end = self.end + len(rows)
        for log, value in zip(self.log, values, strict=True):
            log[self.end : end] = value
        self.at[rows] = np.arange(self.end, end)
        self.end = end

    def write_home(self, rows: Ints, values: Sequence[torch.Tensor]) -> None:
        """Write distinct rows where they belong."""
        of_home = torch.from_numpy(rows)
        for home, value in zip(self.home, values, strict=True):
            home.index_copy_(0, of_home, value)
        self.at[rows] = AT_HOME

    def bring_home(self) -> None:
        """Write what the log holds where it belongs, and begin it anew."""
        rows = np.flatnonzero(self.at != AT_HOME)
        rows = rows[np.argsort(self.at[rows])]  # in the order of the log, which is read from end to end
        for first in range(0, len(rows), BROUGHT_AT_ONCE):
            some = rows[first : first + BROUGHT_AT_ONCE]
            values, order = self.read(some), np.argsort(some)
            self.write_home(some[order], [value[torch.from_numpy(order)] for value in values])
        self.end = 0
