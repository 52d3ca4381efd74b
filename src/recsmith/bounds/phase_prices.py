"""What each table costs at least by the multipliers of a node of phase_branching.py.

The prices of all pieces on a rank add up to at most ready_multiplier * ready + rest_multiplier * rest, whatever it
holds (local_pieces.py; docs/bounds.md proves it), so the least prices of all tables bound the step.

Tables that nothing but their names tells apart are priced once (equal_tables.py).

Legend: K nodes side by side, C different tables, G fusion groups, J planes, F phases, k work terms, o options.
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.equal_tables import different_tables
from recsmith.bounds.group_costs import GroupCosts
from recsmith.bounds.linear_bounds import least_opening
from recsmith.bounds.local_pieces import LocalPieces
from recsmith.bounds.multipliers import Multipliers, PhaseRanges, least_product, stacked
from recsmith.bounds.relaxation import Relaxation
from recsmith.bounds.shared_relaxations import shared_relaxation
from recsmith.bounds.tolerances import BYTES_ROUNDING
from recsmith.costs.protocol import Evaluator


class TablePrices:
    """The least price of every different table in every fusion group, for many nodes at once.

    copies (C,): how many tables are like each. costs: what the groups in use cost. numbers: how many numbers one
    evaluation of one node works on, about.
    """

    def __init__(self, evaluator: Evaluator, dominated: Bools) -> None:
        """dominated: groups (G,) that no table needs to be placed in; what they cost is not worked out."""
        problem = evaluator.problem
        self.groups, self.world = evaluator.groups, problem.cluster.world_size
        self.capacity = float(problem.capacity.sum())
        opening = least_opening(evaluator)
        self.costs = GroupCosts(evaluator, opening)
        slopes: Floats = np.stack([plane.slopes for plane in evaluator.planes])  # (J, F, k)
        relaxation = shared_relaxation(evaluator)
        relaxation = relaxation.reopened(dominated[relaxation.option_group])

        def prepared(tables: Ints) -> LocalPieces:
            self._set_worldwide(evaluator, relaxation, slopes, tables)
            return LocalPieces(evaluator, relaxation, opening, slopes, dominated, tables)

        tables = np.arange(len(problem.tables))
        self.pieces = prepared(tables)
        first, self.copies = different_tables(len(tables), [self._worldwide_facts(), self.pieces.facts()])
        if len(first) < len(tables):
            self.pieces = prepared(first)
        key = np.concatenate([self.worldwide_key, self.pieces.key])  # different table * G + group of each price
        self.order = np.argsort(key, kind="stable")
        self.cells, self.first = np.unique(key[self.order], return_index=True)
        self.numbers = self.pieces.numbers + len(key)

    def _set_worldwide(self, evaluator: Evaluator, relaxation: Relaxation, slopes: Floats, tables: Ints) -> None:
        """Options of some tables that span the world: seconds by each plane on every rank (o, J), bytes, and group."""
        problem, options = evaluator.problem, evaluator.problem.options
        mine = relaxation.option_fits & relaxation.option_worldwide & np.isin(options.table, tables)
        mine = np.flatnonzero(mine)
        modes, width = options.mode[mine], problem.pieces.width[options.piece[mine, 0]]
        self.worldwide = np.einsum("ok,jfk->oj", evaluator.terms(modes, width), slopes)
        self.worldwide_bytes, self.worldwide_group = relaxation.option_bytes[mine], evaluator.group[modes]
        self.worldwide_key = np.searchsorted(tables, options.table[mine]) * self.groups + self.worldwide_group

    def _worldwide_facts(self) -> tuple[Ints, Floats]:
        """The tables (o,) of options that span the world, and all that their prices rest on."""
        facts: Floats = np.array([*self.worldwide.T, self.worldwide_bytes, self.worldwide_group], dtype=np.float64).T
        return self.worldwide_key // self.groups, facts

    def least(self, ranges: Sequence[PhaseRanges], multipliers: Sequence[Multipliers]) -> tuple[Floats, Floats]:
        """(least prices of different tables in each group (K, C, G), seconds of ranges and bytes (K,)) of nodes."""
        nodes = stacked(ranges, multipliers)
        byte_price = nodes.byte_price
        everywhere = (
            np.einsum("oj,koj->ko", self.worldwide, nodes.mix[:, self.worldwide_group])
            + byte_price[:, None] * self.worldwide_bytes
        )  # fmt: skip
        local = self.pieces.cheapest(nodes, byte_price * self.world) / self.world
        values = np.concatenate([everywhere, local], axis=1)[:, self.order]
        least = np.full((len(ranges), len(self.copies) * self.groups), np.inf)
        least[:, self.cells] = np.minimum.reduceat(values, self.first, axis=1)
        constant = (
            least_product(1 - nodes.ready_multiplier, nodes.ready)
            + least_product(1 - nodes.rest_multiplier, nodes.rest)
            - byte_price * self.capacity * (1 + BYTES_ROUNDING)
        )
        return least.reshape(len(ranges), len(self.copies), self.groups), constant
