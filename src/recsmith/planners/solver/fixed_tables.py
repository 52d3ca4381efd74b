"""Tables held fixed while others are placed again, and what they put on every rank and host.

Legend: T tables, W ranks, H hosts, G fusion groups, N placed pieces, k work terms.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, device_sums
from recsmith.planners.solver.layouts import SharedWidth, width_agrees
from recsmith.problems import Footprint, Problem, memory_used, ordered_footprint, sum_per_rank
from recsmith.sharding import SHARDING_TYPES


@dataclass(frozen=True)
class FixedTables:
    """Which tables (T,) are fixed, and what they put on every rank and host.

    sums (G, W, k): summed work terms. pieces (G, W): how many. device (W,), host (H,): bytes. groups (G,): whether a
    fusion group holds any. widths: of column-wise sequences, one for each collection that has some. on (R, W): shards
    of tables in groups (problems/legality.py).
    """

    tables: Bools
    sums: Floats
    pieces: Ints
    device: Ints
    host: Ints
    groups: Bools
    widths: dict[str, int]
    on: Ints

    @classmethod
    def nothing(cls, evaluator: Evaluator) -> "FixedTables":
        """No table is fixed."""
        none = np.empty(0, dtype=np.int64)
        return cls.of(evaluator, Footprint(none, none, none), np.ones(len(evaluator.problem.tables), dtype=bool))

    @classmethod
    def of(cls, evaluator: Evaluator, footprint: Footprint, free: Bools) -> "FixedTables":
        """All tables of a plan are fixed but the free ones (T,)."""
        problem = evaluator.problem
        fixed = _pieces_of(problem, footprint, ~free)
        group = evaluator.group[fixed.mode]
        device, host = memory_used(problem, fixed)
        grouped = np.zeros((len(group), evaluator.groups), dtype=np.int64)
        grouped[np.arange(len(group)), group] = 1
        return cls(
            tables=~free, sums=np.moveaxis(device_sums(evaluator, fixed), 0, 1),
            pieces=sum_per_rank(grouped, fixed, problem).T, device=device, host=host,
            groups=np.bincount(group, minlength=evaluator.groups) > 0, widths=_sequence_widths(problem, fixed),
            on=problem.legality.placed(fixed),
        )  # fmt: skip

    def allows(self, shared_width: SharedWidth | None) -> bool:
        """Whether column-wise sequences of this (collection, width) may be beside the fixed tables."""
        return width_agrees(shared_width, self.widths)


def merged(problem: Problem, footprint: Footprint, free: Bools, replacement: Footprint) -> Footprint:
    """A plan in which the free tables (T,) have other pieces."""
    fixed = _pieces_of(problem, footprint, ~free)
    mode = np.append(fixed.mode, replacement.mode)
    width = np.append(fixed.width, replacement.width)
    return ordered_footprint(problem, mode, width, np.append(fixed.target, replacement.target))


def _pieces_of(problem: Problem, footprint: Footprint, tables: Bools) -> Footprint:
    """The pieces of some tables (T,) of a plan."""
    of_them = tables[problem.modes.table[footprint.mode]]
    return Footprint(footprint.mode[of_them], footprint.width[of_them], footprint.target[of_them])


def _sequence_widths(problem: Problem, footprint: Footprint) -> dict[str, int]:
    """The width of the column-wise sequences of each collection that has some."""
    widths: dict[str, int] = {}
    for mode, width in zip(footprint.mode.tolist(), footprint.width.tolist(), strict=True):
        owner = problem.tables[problem.modes.table[mode]]
        if not owner.pooled and SHARDING_TYPES[problem.modes.type[mode]].splits_columns:
            widths[owner.collection] = width
    return widths
