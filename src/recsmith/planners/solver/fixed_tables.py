"""What stays where it stands while other tables are laid anew.

Legend: T tables, W ranks, H hosts, G fusion groups, k work terms.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs import Evaluator, device_sums
from recsmith.problems import Footprint, Problem, memory_used, spread
from recsmith.sharding import SHARDING_TYPES


@dataclass(frozen=True)
class FixedTables:
    """Which tables (T,) stay, and what they put on every rank and host.

    sums (G, W, k): summed terms. pieces (G, W): how many. device (W,), host (H,): bytes. groups (G,): those in use.
    widths: of the column-wise sequences of a collection, which are all alike.
    """

    tables: Bools
    sums: Floats
    pieces: Ints
    device: Ints
    host: Ints
    groups: Bools
    widths: dict[str, int]

    @classmethod
    def nothing(cls, evaluator: Evaluator) -> "FixedTables":
        """No table stays."""
        none = np.empty(0, dtype=np.int64)
        return cls.of(evaluator, Footprint(none, none, none), np.ones(len(evaluator.problem.tables), dtype=bool))

    @classmethod
    def of(cls, evaluator: Evaluator, footprint: Footprint, free: Bools) -> "FixedTables":
        """All of a plan but the tables (T,) that are free."""
        problem = evaluator.problem
        table = problem.modes.table[footprint.mode]
        stay = ~free[table]
        rest = Footprint(footprint.mode[stay], footprint.width[stay], footprint.target[stay])
        group = evaluator.group[rest.mode]
        device, host = memory_used(problem, rest)
        grouped = np.zeros((len(group), evaluator.groups), dtype=np.int64)
        grouped[np.arange(len(group)), group] = 1
        widths: dict[str, int] = {}
        for mode, width in zip(rest.mode.tolist(), rest.width.tolist(), strict=True):
            owner = problem.tables[problem.modes.table[mode]]
            if not owner.pooled and SHARDING_TYPES[problem.modes.type[mode]].splits_columns:
                widths[owner.collection] = width
        return cls(
            tables=~free, sums=np.moveaxis(device_sums(evaluator, rest), 0, 1),
            pieces=spread(grouped, rest, problem).T, device=device, host=host,
            groups=np.bincount(group, minlength=evaluator.groups) > 0, widths=widths,
        )  # fmt: skip

    def allows(self, alike: tuple[str, int] | None) -> bool:
        """Whether column-wise sequences of this (collection, width) may stand beside what stays."""
        return alike is None or self.widths.get(alike[0], alike[1]) == alike[1]


def merged(problem: Problem, footprint: Footprint, free: Bools, anew: Footprint) -> Footprint:
    """A plan with other pieces for the tables (T,) that are free."""
    stay = ~free[problem.modes.table[footprint.mode]]
    mode = np.append(footprint.mode[stay], anew.mode)
    width, target = np.append(footprint.width[stay], anew.width), np.append(footprint.target[stay], anew.target)
    order = np.lexsort((target, -width, problem.modes.table[mode]))
    return Footprint(mode[order], width[order], target[order])
