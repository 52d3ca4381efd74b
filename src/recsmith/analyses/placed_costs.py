"""Prices the placed pieces of a plan: the seconds of each rank, and the seconds that it would save without a table.

Legend: N placed pieces, W ranks, G fusion groups, k work terms; the four parts are recsmith.plans.PARTS.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator
from recsmith.costs.pricing import device_parts, device_sums, step_of
from recsmith.costs.sequence_rows import sequence_seconds
from recsmith.problems import Footprint, Problem, sum_per_rank
from recsmith.sharding.coverage import covers


@dataclass(frozen=True)
class PlacedCosts:
    """Placed pieces under a cost model. A table's cost on a rank is the seconds that the rank would save without it."""

    evaluator: Evaluator
    footprint: Footprint

    @property
    def problem(self) -> Problem:
        """The problem that the pieces belong to."""
        return self.evaluator.problem

    @cached_property
    def table(self) -> Ints:
        """Table of each piece (N,)."""
        return self.problem.modes.table[self.footprint.mode]

    def names_of(self, tables: Ints) -> list[str]:
        """Names of tables (n,) by index."""
        return [self.problem.tables[int(table)].name for table in tables]

    @cached_property
    def group(self) -> Ints:
        """Fusion group of each piece (N,)."""
        return self.evaluator.group[self.footprint.mode]

    @cached_property
    def terms(self) -> Floats:
        """Work terms of each piece on each rank that it covers (N, k)."""
        return self.evaluator.terms(self.footprint.mode, self.footprint.width)

    @cached_property
    def sums(self) -> Floats:
        """Work terms summed by rank and group (W, G, k)."""
        return device_sums(self.evaluator, self.footprint)

    @cached_property
    def parts(self) -> Floats:
        """Seconds of each rank in the four parts (W, 4)."""
        return device_parts(self.evaluator, self.footprint)

    @cached_property
    def sequences_s(self) -> float:
        """Further seconds of the step for rows of sequence tables, which are equal for all plans."""
        return sequence_seconds(self.problem.workload, self.problem.cluster)

    @property
    def step_s(self) -> float:
        """Seconds of the step."""
        return step_of(self.evaluator, self.parts) + self.sequences_s

    def on(self, rank: int) -> Bools:
        """Which pieces cover a rank (N,)."""
        return covers(self.footprint.target, self.problem.modes.coverage[self.footprint.mode], rank)

    def opening(self, rank: int) -> Floats:
        """Fixed seconds (4,) of a rank's groups, independent of their load: the head's excess over its slope."""
        sums = self.sums[rank]
        head = self.evaluator.head
        return np.maximum(2 * head(sums) - head(2 * sums), 0.0).sum(axis=0)

    @cached_property
    def latency(self) -> Floats:
        """Seconds (4,) that every rank pays for the groups in use."""
        return self.evaluator.shared[np.unique(self.group)].sum(axis=0)

    def saved_on(self, rank: int) -> tuple[Ints, Floats]:
        """The tables (n,) on a rank, and the seconds (n, 4) that the rank would save without each of them."""
        here = np.flatnonzero(self.on(rank))
        tables, first, index = np.unique(self.table[here], return_index=True, return_inverse=True)
        own = np.zeros((len(tables), self.terms.shape[1]))
        np.add.at(own, index, self.terms[here])
        group = self.group[here[first]]
        return tables, self._saved(self.sums[rank, group], own) + self._freed(group)

    def saved_by(self, table: int) -> tuple[Ints, Floats]:
        """The ranks (n,) that a table covers, and the seconds (n, 4) that each of them would save without the table."""
        mine = np.flatnonzero(self.table == table)
        pieces = Footprint(self.footprint.mode[mine], self.footprint.width[mine], self.footprint.target[mine])
        own = sum_per_rank(self.terms[mine], pieces, self.problem)
        ranks = np.flatnonzero(sum_per_rank(np.ones(len(mine)), pieces, self.problem))
        group = self.group[mine[:1]]
        return ranks, self._saved(self.sums[ranks, group[0]], own[ranks]) + self._freed(group)

    @cached_property
    def most_saved(self) -> Floats:
        """For each table (T,) the most seconds that a rank would save without it: `saved_by` for all tables at once."""
        modes, world = self.problem.modes, self.problem.cluster.world_size
        coverage, found = modes.coverage[self.footprint.mode], np.zeros(len(self.problem.tables))
        some = np.flatnonzero(coverage < world)
        piece, first = np.repeat(some, coverage[some]), np.cumsum(coverage[some]) - coverage[some]
        rank = np.arange(len(piece)) - np.repeat(first - self.footprint.target[some] * coverage[some], coverage[some])
        key, first, index = np.unique(self.table[piece] * world + rank, return_index=True, return_inverse=True)
        own = np.zeros((len(key), self.terms.shape[1]))
        np.add.at(own, index, self.terms[piece])
        group = self.group[piece[first]]
        np.maximum.at(found, key // world, self._saved(self.sums[key % world, group], own).sum(axis=1))
        everywhere = np.flatnonzero(coverage == world)
        own = np.zeros((len(found), self.terms.shape[1]))
        np.add.at(own, self.table[everywhere], self.terms[everywhere])
        group_of = np.zeros(len(found), dtype=np.int64)
        group_of[self.table] = self.group
        for table in np.unique(self.table[everywhere]).tolist():
            found[table] = self._saved(self._different_sums[group_of[table]], own[table]).sum(axis=1).max()
        return found + self._freed(group_of).sum(axis=1)

    @cached_property
    def _different_sums(self) -> list[Floats]:
        """For each group the distinct sums of terms (n, k) over ranks; only those of rank 0 if costs are additive."""
        ranks = slice(0, 1) if self.evaluator.additive else slice(None)
        return [np.unique(each, axis=0) for each in self.sums[ranks].swapaxes(0, 1)]

    def _saved(self, sums: Floats, own: Floats) -> Floats:
        """Seconds (n, 4) by which the cost of sums (n, k) exceeds their cost without `own` terms (n, k)."""
        return self.evaluator.head(sums) - self.evaluator.head(sums - own)

    def _freed(self, group: Ints) -> Floats:
        """Shared seconds (n, 4) of groups that every rank saves if the removed table is the only one of its group."""
        return np.where((self._tables_of_groups[group] == 1)[:, None], self.evaluator.shared[group], 0.0)

    @cached_property
    def _tables_of_groups(self) -> Ints:
        """Number of tables in each group (G,)."""
        groups = self.evaluator.groups
        return np.bincount(np.unique(self.table * groups + self.group) % groups, minlength=groups)
