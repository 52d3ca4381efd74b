"""Placements of single tables, as columns of the linear programmes of rank_fillings.py.

Legend: J planes, N pieces, n choices, E entries: pieces of choices.
"""

import numpy as np

from recsmith._types import Floats
from recsmith.bounds.phase_prices import TablePrices
from recsmith.elementary import matmul

MOST_DIFFERENT = 20  # different tables: the programmes of more have too many rows
MOST_CHOICES = 2_500  # choices of all tables: more are too much work
PARTS = ((32, 4), (64, 3))  # (width steps, most parts of a table with at most these steps); beyond, two parts


def has_few_choices(prices: TablePrices) -> bool:
    """Whether there are few enough different tables, and choices for them, for such programmes."""
    families = sum(len(family) * len(few_parts(family.shape[1])) for family in prices.pieces.families)
    choices = len(prices.worldwide) + len(prices.pieces.whole) + families
    return len(prices.copies) <= MOST_DIFFERENT and choices <= MOST_CHOICES


class TableChoices:
    """Placements of single tables, as columns of linear programmes: options that span the world, splits of few parts.

    table, group (n,). choice, piece, ranks (E,): number of ranks that hold a piece in a choice, if any do. ready (n,
    J), rest, bytes (n,): seconds by plane, in later phases, and bytes, on all ranks together; spread (n, J): seconds on
    each rank by plane for options that span the world, whose `ready` and `rest` are 0.
    """

    def __init__(self, prices: TablePrices) -> None:
        pieces, world = prices.pieces, len(prices.worldwide)
        held, keys, row = [np.zeros((world, len(pieces.size)))], [prices.worldwide_key], 0
        for family in pieces.families:
            splits = few_parts(family.shape[1])
            for each in family:
                held.append(np.zeros((len(splits), len(pieces.size))))
                held[-1][:, each] = splits * pieces.size[each]
                keys.append(np.full(len(splits), pieces.key[row]))
                row += 1
        whole = np.zeros((len(pieces.whole), len(pieces.size)))
        np.add.at(whole, (np.arange(len(whole))[:, None], pieces.whole), pieces.count * pieces.size[pieces.whole])
        every: Floats = np.concatenate([*held, whole])
        self.choice, self.piece = np.nonzero(every)
        self.ranks = every[self.choice, self.piece]
        self.table, self.group = np.divmod(np.concatenate([*keys, pieces.key[row:]]), prices.groups)
        self.ready, self.rest = matmul(every, pieces.ready), matmul(every, pieces.rest)
        self.spread: Floats = np.zeros((len(self.table), prices.worldwide.shape[1]))
        self.spread[:world] = prices.worldwide
        self.bytes = matmul(every, pieces.bytes / pieces.size)
        self.bytes[:world] = prices.worldwide_bytes


def few_parts(steps: int) -> Floats:
    """Every way (n, steps) to write a number of width steps as a sum of few widths: how often each is used."""
    most = next((parts for up_to, parts in PARTS if steps <= up_to), 2)
    found: list[list[int]] = []

    def add(left: int, widest: int, made: list[int]) -> None:
        if not left:
            found.append(made)
            return
        parts = most - len(made)
        for width in range(min(left, widest), 0, -1):
            if width * parts < left:
                return
            add(left - width, width, [*made, width])

    add(steps, steps, [])
    counts = np.zeros((len(found), steps))
    for row, widths in zip(counts, found, strict=True):
        np.add.at(row, np.array(widths) - 1, 1)
    return counts
