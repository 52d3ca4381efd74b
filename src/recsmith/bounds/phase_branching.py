"""A tighter bound for small problems: branch and bound over how high the slowest rank stands in each phase.

docs/bounds.md proves it. A node says which fusion groups a plan uses, which tables are spread over the world, and
between which seconds lie `ready`, the most that pieces beyond those of the world cost a rank in the first phase, and
`rest`, the same summed over the later phases. Multipliers then price every piece so that the prices on a rank add up to
at most

    ready_multiplier * ready + rest_multiplier * rest,

whatever stands there (phase_prices.py); what each table costs at least, by these prices, bounds the step.

Legend: K nodes side by side, T tables, G fusion groups, J planes.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.bounds.phase_prices import Multipliers, PhaseRange, PiecePrices
from recsmith.costs.protocol import Evaluator

FIRST_STEP, LEAST_STEP, CHILD_STEP = 0.5, 0.06, 0.12  # by which multipliers are changed, relative
GAIN = 2e-4  # relative, for which an ascent goes on
NARROW = 0.05
FINE = 1e-3  # of the bound: splits that matter less are not made
FIRST_ROUNDS = 6  # of the ascent of the root; children have one
MOST_TESTED = 2  # tables whose fixing is tried in one node
HALVES = 1 / 6  # of the upper end: from where on a box is split in the middle of its logarithm
CALL = 500_000  # numbers that could be worked on while Python sets up one evaluation
ROUNDING = 1e-9


@dataclass(order=True)
class _PhaseNode:
    value: float
    number: int
    box: PhaseRange = field(compare=False)
    open: Bools = field(compare=False)  # (T, G): groups that each table may pick
    paid: Bools = field(compare=False)  # (G,): groups that the plan uses for certain
    multipliers: Multipliers = field(compare=False)
    step: float = field(compare=False)
    least: Floats = field(compare=False)  # (T, G): what each table costs at least in each group
    settled: bool = field(compare=False, default=False)  # whether its multipliers were looked for as long as the root's


class PhaseBranching:
    """The search; `solve(work)` may be called again to go on, until it is `done`."""

    def __init__(self, evaluator: Evaluator, *, needless: Bools, below: float, byte: float) -> None:
        """needless: groups (G,) that a best plan can do without; below: no plan that costs more matters.

        byte: a price per byte at which what tables pick fits the devices, 0 if it fits for free.
        """
        self.prices = PiecePrices(evaluator)
        self.byte, self.work = byte, 0
        groups, tables = evaluator.groups, len(evaluator.problem.tables)
        planes = len(evaluator.planes)
        start = Multipliers(1.0, 1.0, byte, np.full((groups, planes), 1 / planes), 0)
        rest = (0.0, below if len(evaluator.phases) > 1 else 0.0)
        root = _PhaseNode(
            0.0, 0, PhaseRange((0.0, below), rest), np.tile(~needless, (tables, 1)), np.zeros(groups, dtype=bool),
            start, FIRST_STEP, np.zeros((tables, groups)),
        )  # fmt: skip
        self._ascend([root], FIRST_ROUNDS)
        self.heap, self.made, self.done = [root], 1, False

    @property
    def bound(self) -> float:
        """Seconds that no plan can undercut."""
        return self.heap[0].value if self.heap else np.inf

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

    # --- branching --------------------------------------------------------------------------------------------------

    def _children(self, node: _PhaseNode) -> list[_PhaseNode] | None:
        """The two halves of the split that lifts the bound most; None where no split matters."""
        pairs = [*self._by_group(node), *self._by_box(node)]
        spans = [high - low for low, high in (node.box.ready, node.box.rest)]
        if max(spans) < NARROW * node.value or not pairs:
            pairs += self._by_table(node)
        if not pairs:
            return None if node.settled else [self._settled(node)]
        nodes = [replace(child, step=max(node.step, CHILD_STEP)) for pair in pairs for child in pair]
        values, _ = self._evaluate(nodes, [child.multipliers for child in nodes])
        values = np.maximum(values, node.value).reshape(-1, 2)
        lifted = np.minimum(values.min(axis=1), 1.05 * node.value) + 0.1 * np.minimum(
            values.max(axis=1), 1.2 * node.value
        )
        best = int(lifted.argmax())
        children = [
            child for child, value in zip(nodes[2 * best : 2 * best + 2], values[best], strict=True) if value < np.inf
        ]
        self._ascend(children, 1)
        for child in children:
            child.number = self.made
            self.made += 1
        return children

    def _settled(self, node: _PhaseNode) -> _PhaseNode:
        """A node that cannot be split, with the best multipliers that can be found for it."""
        node = replace(node, step=FIRST_STEP, settled=True)
        self._ascend([node], FIRST_ROUNDS)
        return node

    def _by_group(self, node: _PhaseNode) -> list[tuple[_PhaseNode, _PhaseNode]]:
        """The dearest group that tables pick without paying for it: used, or closed."""
        used = np.zeros(len(node.paid), dtype=bool)
        used[np.where(node.open, node.least, np.inf).argmin(axis=1)] = True
        cost = np.where(used & ~node.paid, self.prices.opening_of(node.paid), 0.0)
        group = int(cost.argmax())
        if cost[group] <= FINE * node.value:
            return []
        paid, open_ = node.paid.copy(), node.open.copy()
        paid[group], open_[:, group] = True, False
        return [(replace(node, open=open_), replace(node, paid=paid))]

    def _by_box(self, node: _PhaseNode) -> list[tuple[_PhaseNode, _PhaseNode]]:
        """Lower or upper half, of the first phase or of the rest."""
        pairs: list[tuple[_PhaseNode, _PhaseNode]] = []
        for name, (low, high) in (("ready", node.box.ready), ("rest", node.box.rest)):
            if high - low > FINE * node.value:
                middle = float(np.sqrt(max(low, high * HALVES) * high))
                below, above = replace(node.box, **{name: (low, middle)}), replace(node.box, **{name: (middle, high)})
                pairs.append((replace(node, box=below), replace(node, box=above)))
        return pairs

    def _by_table(self, node: _PhaseNode) -> list[tuple[_PhaseNode, _PhaseNode]]:
        """A table spread over the world, or not: those first for which both cost much the same."""
        world = self.prices.worldwide
        least = np.where(node.open, node.least, np.inf)
        spread = np.where(world, least, np.inf).min(axis=1)
        placed = np.where(world, np.inf, least).min(axis=1)
        both = np.isfinite(spread) & np.isfinite(placed)
        tied = np.where(
            both,
            np.minimum(spread, placed) - np.abs(np.subtract(spread, placed, where=both, out=np.zeros(len(both)))),
            0.0,
        )
        pairs: list[tuple[_PhaseNode, _PhaseNode]] = []
        for table in np.argsort(-tied, kind="stable")[:MOST_TESTED].tolist():
            if tied[table] > FINE * node.value:
                one, other = node.open.copy(), node.open.copy()
                one[table, world], other[table, ~world] = False, False
                pairs.append((replace(node, open=one), replace(node, open=other)))
        return pairs

    # --- multipliers ------------------------------------------------------------------------------------------------

    def _ascend(self, nodes: Sequence[_PhaseNode], rounds: int) -> None:
        """Better multipliers for each node, by trying changes of one or two at a time."""
        live = list(nodes)
        for _ in range(rounds):
            if not live:
                return
            tried = [(node, self._moves(node)) for node in live]
            values, least = self._evaluate(
                [node for node, moves in tried for _ in moves], [move for _, moves in tried for move in moves]
            )
            first, live = 0, live[:0]
            for node, moves in tried:
                best = first + int(values[first : first + len(moves)].argmax())
                gained = values[best] - values[first] > GAIN * abs(values[best])
                node.value = max(node.value, float(values[best]))
                node.multipliers, node.least = moves[best - first], least[best]
                if not gained:
                    node.step /= 2
                if gained or node.step > LEAST_STEP:
                    live.append(node)
                first += len(moves)

    def _moves(self, node: _PhaseNode) -> list[Multipliers]:
        """The multipliers as they are, and small changes of them."""
        now, step = node.multipliers, node.step
        scales = ((1, 1), (1 - step, 1 - step), (1 + step, 1 + step), (1, 1 - step), (1, 1 + step), (1 - step, 1))
        moves = [
            replace(now, ready_multiplier=now.ready_multiplier * a, rest_multiplier=now.rest_multiplier * b)
            for a, b in scales
        ]
        for plane in range(now.mix.shape[1]):
            for groups in (self.prices.worldwide, ~self.prices.worldwide) if now.mix.shape[1] > 1 else ():
                mix = now.mix.copy()
                mix[groups] = (1 - step) * mix[groups] + step * np.eye(mix.shape[1])[plane]
                moves.append(replace(now, mix=mix))
            if plane != now.plane:
                moves.append(replace(now, plane=plane))
        if self.byte:
            moves += [
                replace(now, byte=byte)
                for byte in (0.0, now.byte * (1 - step), max(now.byte, 0.1 * self.byte) * (1 + step))
            ]
        return moves

    def _evaluate(self, nodes: Sequence[_PhaseNode], multipliers: Sequence[Multipliers]) -> tuple[Floats, Floats]:
        """(bounds (K,), least cost of each table in each group (K, T, G))."""
        least, constant = self.prices.least([node.box for node in nodes], multipliers)
        self.work += CALL + len(nodes) * self.prices.numbers
        chosen = np.where(np.stack([node.open for node in nodes]), least, np.inf).min(axis=2).sum(axis=1)
        certain = np.array([self.prices.certain(node.paid) for node in nodes])
        lowest = np.array([node.box.ready[0] + node.box.rest[0] for node in nodes])
        return (np.maximum(chosen + constant, lowest) + certain) * (1 - ROUNDING), least
