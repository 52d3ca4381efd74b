"""Where tables were before anything moves, as the compiled annealing reads it.

Annealing may then move as many bytes as it is told, and counts them as plans/diff.py does, or a little more: of tables
whose new placement has pieces of another kind (of ranks, of hosts, of all ranks) all bytes count.

Legend: T tables, M modes, U units, S slots for the pieces of a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from recsmith._types import Ints
from recsmith.planners.annealing.kernel import FlatHomes, FlatProblem
from recsmith.plans import Placement, Plan
from recsmith.sharding import TYPE_NAMES

COPIES = "data_parallel"

RETURNS = 0.02  # of all changes: a table returns to where it was


@dataclass(frozen=True)
class Homes:
    """What devices hold: old placements of tables whose weights stay, by name, and how many bytes of them may move.

    sizes: bytes of weights of all tables that stay. legal: names of those that may be placed as they were. world:
    number of the old devices.
    """

    placements: Mapping[str, Placement]
    sizes: Mapping[str, int]
    legal: frozenset[str]
    world: int
    most_moved: int

    @classmethod
    def of(cls, old: Plan, sizes: Mapping[str, int], legal: frozenset[str], most_moved: int) -> "Homes":
        """Where a plan has the tables whose bytes `sizes` says."""
        placements = {each.table: each for each in old.placements if each.table in sizes}
        return cls(placements, sizes, legal, old.cluster.world_size, most_moved)

    def flat(self, flat: FlatProblem, price: float) -> FlatHomes:
        """The same as arrays, in the order of the compiled code. price: of all that may move, in steps."""
        limits = np.array([self.most_moved], dtype=np.int64), np.array([price])
        return FlatHomes((*self._arrays(flat), *limits), RETURNS)

    def _arrays(self, flat: FlatProblem) -> tuple[Ints, ...]:
        problem, tables = flat.problem, len(flat.problem.tables)
        column_bytes, count, coverage = np.zeros((3, tables), dtype=np.int64)
        mode = np.full(tables, -1, dtype=np.int64)
        width, target, unit = np.zeros((3, tables, flat.slots), dtype=np.int64)
        for t, table in enumerate(problem.tables):
            if table.name not in self.sizes:
                continue
            column_bytes[t] = self.sizes[table.name] // table.embedding_dim
            old = self.placements[table.name]
            widths = old.widths_of(table.embedding_dim)
            if len(widths) > flat.slots:
                continue
            each, places = len(old.ranks) // len(widths), slice(0, len(widths))
            copies = old.sharding_type == COPIES
            count[t], coverage[t] = len(widths), -self.world if copies else each
            width[t, places], target[t, places] = widths, [rank // each for rank in old.ranks[::each]]
            if table.name in self.legal:
                own = problem.find_mode(t, old.sharding_type, old.compute_kernel, old.load_factor)
                assert own is not None, "a legal placement has a mode"
                mode[t] = own
                unit[t, places] = [flat.unit_of(own, each) for each in widths]
        copied = problem.modes.type == TYPE_NAMES.index(COPIES)
        return flat.width, copied.astype(np.int64), column_bytes, count, coverage, mode, width, target, unit
