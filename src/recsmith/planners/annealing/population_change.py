"""What changes in each plan of a population: which fusion groups, on which ranks, by how much.

Legend: K plans, P pieces of an option at most, W ranks, C cells of a change in one group (the ranks that it touches),
F phases, k work terms.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints


@dataclass
class GroupChange:
    """What a change does to one fusion group of each plan: group, count (K,) of pieces, and terms (K, C, k)."""

    group: Ints
    count: Ints
    terms: Floats


@dataclass
class PopulationChange:
    """A change to each plan: parts on the same ranks (K, C), the bytes that come to them, and which plans may take it.

    tables: for each table (K,) that changes, its option (K,) and targets (K, P) afterwards. everywhere: the ranks are
    all of them, in order.
    """

    ranks: Ints
    parts: tuple[GroupChange, ...]
    device: Ints
    host: Ints | None
    tables: tuple[tuple[Ints, Ints, Ints], ...]
    legal: Bools
    everywhere: bool = False

    def add(self, loads: Floats | Ints, more: Floats | Ints) -> None:
        """Let loads (F, K, W) grow by `more` (F, K, C) on the ranks, of which two may be the same."""
        if self.everywhere:
            loads += more
            return
        plans: Ints = np.arange(len(self.ranks))
        for cell in range(self.ranks.shape[1]):
            loads[:, plans, self.ranks[:, cell]] += more[:, :, cell]


def terms_between(terms: Floats, sign: Ints) -> Floats:
    """Terms (K, k) that leave one rank and come to another (K, 2, k); sign (2,): -1 for the rank that they leave."""
    return terms[:, None] * sign[:, None]


def bytes_between(size: Ints, sign: Ints) -> Ints:
    """Bytes (K,) that leave one rank and come to another (K, 2); sign (2,): -1 for the rank that they leave."""
    return size[:, None] * sign


def merged_parts(second: GroupChange, first: GroupChange) -> tuple[GroupChange, GroupChange]:
    """Both parts; where they are of one group the last holds all of it, because `Population.take` keeps the last."""
    same = second.group == first.group
    terms = first.terms + np.where(same[:, None, None], second.terms, 0.0)
    other = GroupChange(second.group, np.where(same, 0, second.count), np.where(same[:, None, None], 0.0, second.terms))
    return other, GroupChange(first.group, first.count + np.where(same, second.count, 0), terms)
