"""Better multipliers for nodes of phase_branching.py: changes are tried, and those that raise the bound are taken.

Small changes of its own multipliers leave many a node at a local optimum. What raised the bound of another node lately
often raises it further, so that is tried as well. Any multipliers give a valid bound (docs/bounds.md), so the ascent
may stop anywhere.

Legend: K nodes side by side, C different tables, G fusion groups.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recsmith._types import Floats
from recsmith.bounds.multipliers import Multipliers
from recsmith.bounds.phase_nodes import PhaseNode
from recsmith.bounds.phase_prices import TablePrices
from recsmith.bounds.tolerances import ROUNDING

LEAST_STEP = 0.06  # relative change of multipliers below which an ascent ends
GAIN = 2e-4  # relative rise of a bound for which an ascent goes on with the same step; with less, the step is halved
LEAST_BYTE_PRICE = 0.1  # of the byte price of the root, from where a price that has fallen to 0 may rise again
MOST_RECENT = 4  # multipliers of other nodes that are tried; 8 gained no more in the same work
CALL = 500_000  # numbers that could be worked on while Python sets up one evaluation: so many are counted for it


class MultiplierAscent:
    """Evaluates nodes, and improves their multipliers.

    work: numbers worked on so far, about; the same on every machine.
    """

    def __init__(self, prices: TablePrices, byte_price: float, always: Sequence[Multipliers] = ()) -> None:
        """byte_price: seconds per byte at which the selected options fit the devices, 0 if they fit without.

        always: multipliers that are tried in every node.
        """
        self.prices, self.byte_price, self.always = prices, byte_price, always
        self.work = 0
        self._recent: list[Multipliers] = []

    def remember(self, multipliers: Multipliers) -> None:
        """Have other nodes try these multipliers, until MOST_RECENT others are remembered after them."""
        self._recent = [*self._recent, multipliers][-MOST_RECENT:]

    def evaluate(self, nodes: Sequence[PhaseNode], multipliers: Sequence[Multipliers]) -> tuple[Floats, Floats]:
        """(bounds (K,), least price of different tables in each group (K, C, G)) of nodes with these multipliers."""
        least, constant = self.prices.least([node.ranges for node in nodes], multipliers)
        self.work += CALL + len(nodes) * self.prices.numbers
        selected = np.where(np.stack([node.open for node in nodes]), least, np.inf).min(axis=2) @ self.prices.copies
        certain = np.array([self.prices.costs.certain(node.paid) for node in nodes])
        lowest = np.array([node.ranges.ready[0] + node.ranges.rest[0] for node in nodes])
        return (np.maximum(selected + constant, lowest) + certain) * (1 - ROUNDING), least

    def improve(self, nodes: Sequence[PhaseNode], rounds: int) -> None:
        """Raise the bound of each node, by changes of one or two multipliers at a time; at most so many rounds."""
        live = list(nodes)
        for _ in range(rounds):
            if not live:
                return
            tried = [(node, self._changes(node)) for node in live]
            values, least = self.evaluate(
                [node for node, changes in tried for _ in changes], [each for _, changes in tried for each in changes]
            )
            first, live = 0, live[:0]
            for node, changes in tried:
                best = first + int(values[first : first + len(changes)].argmax())
                gained = values[best] - values[first] > GAIN * abs(values[best])
                node.value = max(node.value, float(values[best]))
                node.multipliers, node.least = changes[best - first], least[best]
                if gained:
                    self.remember(node.multipliers)
                else:
                    node.step /= 2
                if gained or node.step > LEAST_STEP:
                    live.append(node)
                first += len(changes)

    def _changes(self, node: PhaseNode) -> list[Multipliers]:
        """The multipliers of a node as they are, small changes of them, and those of other nodes."""
        now, step = node.multipliers, node.step
        scales = ((1, 1), (1 - step, 1 - step), (1 + step, 1 + step), (1, 1 - step), (1, 1 + step), (1 - step, 1))
        changes = [
            replace(now, ready_multiplier=now.ready_multiplier * a, rest_multiplier=now.rest_multiplier * b)
            for a, b in scales
        ]
        changes += self._other_planes(now, step)
        changes += [each for each in (*self.always, *self._recent) if each is not now]
        if self.byte_price:
            higher = max(now.byte_price, LEAST_BYTE_PRICE * self.byte_price) * (1 + step)
            changes += [replace(now, byte_price=price) for price in (0.0, now.byte_price * (1 - step), higher)]
        return changes

    def _other_planes(self, now: Multipliers, step: float) -> list[Multipliers]:
        """Mixes a step nearer to each plane, in groups that span the world or in all others; and other planes."""
        changes: list[Multipliers] = []
        planes, worldwide = now.mix.shape[1], self.prices.costs.worldwide
        for plane in range(planes):
            for groups in (worldwide, ~worldwide) if planes > 1 else ():
                mix = now.mix.copy()
                mix[groups] = (1 - step) * mix[groups] + step * np.eye(planes)[plane]
                changes.append(replace(now, mix=mix))
            if plane != now.plane:
                changes.append(replace(now, plane=plane))
        return changes
