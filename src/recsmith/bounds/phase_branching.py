"""A tighter bound for small problems, by branch and bound over the seconds of the slowest rank in each phase.

A node of the search says which fusion groups a plan uses, which tables span the world, and between which seconds lie
`ready`, the most that pieces beyond those of the world cost a rank in the first phase, and `rest`, the same summed over
the later phases. Multipliers then price every piece so that the prices on a rank add up to at most

    ready_multiplier * ready + rest_multiplier * rest,

whatever the rank holds (phase_prices.py); what each table costs at least by these prices bounds the step. The least
bound of all open nodes holds for every plan (docs/bounds.md).

Tables that nothing tells apart count as one, as many times as there are (equal_tables.py).

Legend: C different tables, G fusion groups, J planes.
"""

import heapq
from dataclasses import replace

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.bounds.linear_bounds import tightest_mix
from recsmith.bounds.multipliers import Multipliers, PhaseRanges
from recsmith.bounds.phase_ascent import MultiplierAscent
from recsmith.bounds.phase_nodes import Pair, PhaseNode, split_by_group, split_by_range, split_by_table
from recsmith.bounds.phase_prices import TablePrices
from recsmith.costs.protocol import Evaluator

FIRST_STEP = 0.5  # relative change of multipliers in the first round of the root's ascent
CHILD_STEP = 0.12  # the same of children, at least: they inherit multipliers that are nearly right
FIRST_ROUNDS = 6  # of the root's ascent; children have one
NARROW = 0.05  # of a node's bound: where both ranges are narrower, tables are split as well
WORSE_CAP, BETTER_CAP = 1.05, 1.2  # times a node's bound: more does not count, of the worse and of the better half
BETTER_WEIGHT = 0.1  # of the better half's bound in the choice of a split: the worse half decides, this breaks ties


class PhaseBranching:
    """The search; `solve(work)` may be called again to go on, until it is `done` or its bound is high enough."""

    def __init__(self, evaluator: Evaluator, *, dominated: Bools, below: float, byte_price: float) -> None:
        """dominated: groups (G,) that a best plan can do without; below: no plan that takes more seconds matters.

        byte_price: seconds per byte at which the selected options fit the devices, 0 if they fit without.
        """
        self.prices = TablePrices(evaluator, dominated)
        groups, tables, planes = evaluator.groups, len(self.prices.copies), len(evaluator.planes)
        start = Multipliers(1.0, 1.0, byte_price, np.full((groups, planes), 1 / planes), 0)
        tightest = replace(start, mix=tightest_mix(evaluator))
        self.ascent = MultiplierAscent(self.prices, byte_price, always=[tightest])
        rest = (0.0, below if evaluator.step_rule.several_phases else 0.0)
        root = PhaseNode(
            0.0, 0, PhaseRanges((0.0, below), rest), np.tile(~dominated, (tables, 1)), np.zeros(groups, dtype=bool),
            start, FIRST_STEP, np.zeros((tables, groups)),
        )  # fmt: skip
        self.ascent.improve([root], FIRST_ROUNDS)
        self.heap, self.made, self.done = [root], 1, False

    @property
    def bound(self) -> float:
        """Seconds that no plan can undercut; infinite where none is below the seconds that matter."""
        return self.heap[0].value if self.heap else np.inf

    @property
    def work(self) -> int:
        """Numbers worked on so far, about; the same on every machine."""
        return self.ascent.work

    def solve(self, work: int, enough: float = np.inf) -> None:
        """Branch until the bound reaches `enough`, `work` numbers have been worked on, or nothing is left to split."""
        while self.heap and self.work < work and self.bound < enough:
            children = self._children(self.heap[0])
            if children is None:
                self.done = True
                return
            heapq.heappop(self.heap)
            for child in children:
                heapq.heappush(self.heap, child)

    def _children(self, node: PhaseNode) -> list[PhaseNode] | None:
        """The two halves of the split that raises the bound most; None where no split matters."""
        pairs = self._splits(node)
        if not pairs:
            return None if node.settled else [self._settled(node)]
        nodes = [replace(child, step=max(node.step, CHILD_STEP)) for pair in pairs for child in pair]
        values, _ = self.ascent.evaluate(nodes, [child.multipliers for child in nodes])
        values = np.maximum(values, node.value).reshape(-1, 2)
        best = 2 * _best_split(values, node.value)
        halves = zip(nodes[best : best + 2], values[best // 2], strict=True)
        children = [child for child, value in halves if value < np.inf]
        self.ascent.improve(children, 1)
        for child in children:
            child.number = self.made
            self.made += 1
        return children

    def _splits(self, node: PhaseNode) -> list[Pair]:
        """All splits of a node that are tried."""
        pairs = [*split_by_group(node, self.prices.costs), *split_by_range(node)]
        widths = [high - low for low, high in (node.ranges.ready, node.ranges.rest)]
        if max(widths) < NARROW * node.value or not pairs:
            pairs += split_by_table(node, self.prices.costs.worldwide, self.prices.copies == 1)
        return pairs

    def _settled(self, node: PhaseNode) -> PhaseNode:
        """A node that cannot be split, with the best multipliers that can be found for it."""
        node = replace(node, step=FIRST_STEP, settled=True)
        self.ascent.improve([node], FIRST_ROUNDS)
        return node


def _best_split(values: Floats, value: float) -> int:
    """The number of the split whose halves' bounds (splits, 2) raise that of their node most, the worse half first."""
    worse = np.minimum(values.min(axis=1), WORSE_CAP * value)
    return int((worse + BETTER_WEIGHT * np.minimum(values.max(axis=1), BETTER_CAP * value)).argmax())
