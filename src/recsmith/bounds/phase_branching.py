"""A tighter bound for small problems, by branch and bound over the seconds of the slowest rank in each phase.

A node of the search fixes which fusion groups a plan uses, which tables span the world, and ranges for two numbers of
seconds: `ready`, the most that pieces beyond those of the world cost a rank in the first phase, and `rest`, the same
summed over the later phases. Multipliers then price every piece so that the prices on a rank add up to at most

    ready_multiplier * ready + rest_multiplier * rest,

whatever the rank holds; the least cost of each table by these prices (phase_prices.py) bounds the step. The least bound
of all open nodes holds for every plan (docs/bounds.md).

Multipliers are improved by ascent. Small changes alone leave many nodes at a local optimum. Multipliers that recently
raised another node's bound often raise this one's further, so they are tried as well. Any multipliers give a valid
bound, so the ascent may stop at any time.

Legend: K nodes side by side, C different tables, G fusion groups, J planes.
"""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.bends import bent_planes
from recsmith.bounds.dual_feasible import FUNCTIONS
from recsmith.bounds.groups import replacements_by_type
from recsmith.bounds.linear_bounds import ROUNDING
from recsmith.bounds.phase_nodes import (
    NO_DUAL,
    Multipliers,
    Pair,
    PhaseNode,
    PhaseRanges,
    split_by_group,
    split_by_range,
    split_by_table,
)
from recsmith.bounds.phase_prices import TablePrices, table_prices
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import matmul

FIRST_STEP = 0.5  # relative change of multipliers in the first round of the root's ascent
CHILD_STEP = 0.12  # least relative change for children: they inherit multipliers that are nearly right
FIRST_ROUNDS = 6  # rounds of the root's ascent; children have one, or two with dual feasible functions
NARROW = 0.05  # of a node's bound: if both ranges are narrower, tables are split as well
WORSE_CAP, BETTER_CAP = 1.05, 1.2  # times a node's bound: caps on the worse and the better half's bounds in comparisons
BETTER_WEIGHT = 0.1  # of the better half's bound in the choice of a split: the worse half decides, this breaks ties
LEAST_STEP = 0.06  # relative change of multipliers below which an ascent ends
GAIN = 2e-4  # relative rise of a bound for which an ascent goes on with the same step; with less, the step is halved
LEAST_BYTE_PRICE = 0.1  # of the byte price of the root, from which a price that has fallen to 0 may rise again
DUAL_STEP, DUAL_SHARE = 2, 0.5  # share of the first phase's worth that moves to functions: times a step; at most
LITTLE = (0.02, 0.005)  # such shares for a node that cannot be split any more
DUAL_RANGE = 0.03  # of a node's bound: if the range of the first phase is wider, such functions gain nothing
STEP_SHARE = 2  # times a step: the share of the later phases' worth that moves to whole steps of width
MOST_WIDTH_STEPS = 28  # most steps that a rank may hold for this: with more, it matters little that they are whole
MOST_STEPPED = 6  # planes towards which mixes are moved one by one
MOST_RECENT = 4  # multipliers of other nodes that are tried; 8 gained no more in the same work
REST_JUMPS = (2.0, 0.5, 4.0)  # factors on rest_multiplier tried as well: a range that was cut is often worth more
LOOKED_AT = 100  # lowest nodes among which different selections of groups are sought
READY_JUMP = 2.0  # the same for ready_multiplier
CALL = 3_000_000  # numbers that could be worked on while Python sets up one evaluation, which is counted as this many


class PhaseBranching:
    """The search; call `solve(work)` again to continue, until it is `done` or its bound is high enough."""

    def __init__(
        self, evaluator: Evaluator, *, dominated: Bools, below: float, byte_price: float, mix: Floats | None = None,
        prices: TablePrices | None = None, closed: tuple[int, Bools] | None = None, dual: bool = False,
    ) -> None:  # fmt: skip
        """dominated: groups (G,) that a best plan can do without; below: plans that take more seconds do not matter.

        byte_price: seconds per byte at which the selected options fit the devices, 0 if they fit without. mix (G, J):
        shares of the planes in a bound found before. Every node tries it, and the best mix for its groups; without one,
        nodes step from the mean of all planes alone, unless planes bend. prices: of the tables, if they are known.
        closed: a different table, and groups (G,) in which it is not placed. dual: whether pieces may cost more if few
        of them fit on a rank (dual_feasible.py).
        """
        planes = prices.planes if prices else bent_planes(evaluator)
        self.replaced = replacements_by_type(evaluator) if planes.bent else {}
        dominated = dominated & (not planes.bent)  # two groups may cost less than one with the pieces of both
        self.prices = prices or table_prices(evaluator, dominated)
        groups, tables = evaluator.groups, len(self.prices.copies)
        mean = np.tile((np.arange(self.prices.mixed) < planes.flat) / planes.flat, (groups, 1))
        start = Multipliers(1.0, 1.0, byte_price, mean, 0)
        mix = planes.mix(np.ones(groups, dtype=bool)) if planes.bent else mix
        always = [] if mix is None else [start._replace(mix=self.prices.padded(mix))]
        self.ascent = MultiplierAscent(self.prices, byte_price, always, dual=dual and not planes.bent)
        rest = (0.0, below if evaluator.step_rule.several_phases else 0.0)
        root = PhaseNode(
            0.0, 0, PhaseRanges((0.0, below), rest), np.tile(~dominated, (tables, 1)), np.zeros(groups, dtype=bool),
            start, FIRST_STEP, np.zeros((tables, groups)),
        )  # fmt: skip
        if closed is not None:
            root.open[closed[0], closed[1]] = False
        self.ascent.improve([root], FIRST_ROUNDS)
        self.root = root
        self.heap, self.made, self.done, self.start = [root], 1, False, root.multipliers
        self.impossible: list[PhaseNode] = []  # parts without a plan, by their multipliers

    @property
    def bound(self) -> float:
        """Seconds that no plan can undercut; infinite if no plan is below the limit that matters."""
        return self.heap[0].value if self.heap else np.inf

    @property
    def work(self) -> int:
        """Numbers worked on so far, approximately; the same on every machine."""
        return self.ascent.work

    @property
    def open_nodes(self) -> list[PhaseNode]:
        """The nodes that together hold all plans that matter."""
        return self.heap

    def selections(self, most: int) -> tuple[Ints, ...]:
        """The group that each table (T,) selects in the lowest nodes, without repetitions: `most` at most."""
        found: dict[bytes, Ints] = {}
        for node in heapq.nsmallest(LOOKED_AT, self.heap):
            selected = np.where(node.open, node.least, np.inf).argmin(axis=1)
            found.setdefault(selected.tobytes(), selected[self.prices.like])
            if len(found) == most:
                break
        return tuple(found.values())

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
        """The two halves of the split that raises the bound most; None if no split matters."""
        pairs = self._splits(node)
        if not pairs:
            return None if node.settled else [self._settled(node)]
        nodes = [self._mixed_anew(child, node) for pair in pairs for child in pair]
        for child in nodes:
            child.step = max(node.step, CHILD_STEP)
        values, _ = self.ascent.evaluate(nodes, [child.multipliers for child in nodes])
        values = np.maximum(values, node.value).reshape(-1, 2)
        best = 2 * _best_split(values, node.value)
        halves = list(zip(nodes[best : best + 2], values[best // 2], strict=True))
        children = [child for child, value in halves if value < np.inf]
        self.impossible += [child for child, value in halves if value == np.inf]
        self.ascent.improve(children, 2 if len(self.ascent.dual) else 1)
        for child in children:
            child.number = self.made
            self.made += 1
        return children

    def _mixed_anew(self, child: PhaseNode, node: PhaseNode) -> PhaseNode:
        """A child of a node, with a new mix if planes bend and it has fewer groups than the node."""
        groups: Bools = np.logical_or.reduce(child.open, axis=0)
        if not self.prices.planes.bent or (groups == node.open.any(axis=0)).all():
            return child
        mix = self.prices.mix(groups)
        return replace(child, multipliers=child.multipliers._replace(mix=mix))

    def _splits(self, node: PhaseNode) -> list[Pair]:
        """All splits of a node that should be tried."""
        pairs = [*split_by_group(node, self.prices.costs, self.replaced), *split_by_range(node, self._step_s(node))]
        widths = [high - low for low, high in (node.ranges.ready, node.ranges.rest)]
        if max(widths) < NARROW * node.value or not pairs or self.prices.planes.bent:
            pairs += split_by_table(node, self.prices.costs.worldwide, self.prices.copies == 1)
        return pairs

    def _step_s(self, node: PhaseNode) -> float:
        """Seconds of a step of width in the later phases if a rank holds few steps, else 0."""
        return self.prices.pieces.step_s if self.ascent.has_few_steps(node) else 0.0

    def _settled(self, node: PhaseNode) -> PhaseNode:
        """A node that cannot be split, with the best multipliers that can be found for it."""
        node = replace(node, step=FIRST_STEP, settled=True)
        self.ascent.improve([node], FIRST_ROUNDS)
        return node


def _other_steps(now: Multipliers, share: float) -> list[Multipliers]:
    """Move this share of the later phases' worth to whole steps of width, and back."""
    rest, whole = now.rest_multiplier, now.step_multiplier
    moved = [now._replace(rest_multiplier=rest * (1 - share), step_multiplier=whole + rest * share)]
    if whole > 0:
        moved.append(now._replace(rest_multiplier=rest + whole * share, step_multiplier=whole * (1 - share)))
    return moved


def _best_split(values: Floats, value: float) -> int:
    """The index of the split whose halves' bounds (splits, 2) raise their node's most; the worse half counts most."""
    worse = np.minimum(values.min(axis=1), WORSE_CAP * value)
    return int((worse + BETTER_WEIGHT * np.minimum(values.max(axis=1), BETTER_CAP * value)).argmax())


def _is_narrow(node: PhaseNode) -> bool:
    """Whether the range of the first phase is so narrow that dual feasible functions of its upper end may gain."""
    return node.ranges.ready[1] - node.ranges.ready[0] < DUAL_RANGE * node.value


# --- better multipliers ----------------------------------------------------------------------------------------------


class MultiplierAscent:
    """Evaluates nodes, and improves their multipliers.

    work: numbers worked on so far, about; the same on every machine.
    """

    def __init__(
        self, prices: TablePrices, byte_price: float, always: Sequence[Multipliers] = (), *, dual: bool = False
    ) -> None:
        """byte_price: seconds per byte at which the selected options fit the devices, 0 if they fit without.

        always: multipliers that every node tries, as well as the best mix for its groups; if empty, neither is tried.
        dual: whether multipliers of dual feasible functions are tried.
        """
        self.dual: Floats = np.eye(len(FUNCTIONS)) if dual else np.zeros((0, len(FUNCTIONS)))
        self.pairs = [(one + other) / 2 for one, other in combinations(self.dual, 2)]
        self.prices, self.byte_price, self.always = prices, byte_price, always
        worldwide = prices.costs.worldwide[:, None]
        self._either = worldwide, ~worldwide  # (G, 1)
        self.work = 0
        self._recent: list[Multipliers] = []

    def remember(self, multipliers: Multipliers) -> None:
        """Have other nodes try these multipliers, until MOST_RECENT later ones replace them."""
        self._recent = [*self._recent, multipliers][-MOST_RECENT:]

    def evaluate(self, nodes: Sequence[PhaseNode], multipliers: Sequence[Multipliers]) -> tuple[Floats, Floats]:
        """(bounds (K,), least price of different tables in each group (K, C, G)) of nodes with these multipliers."""
        own, places = list[PhaseNode](), list[int]()
        for node in nodes:  # equal nodes follow each other, so their data is collected once
            if not own or node is not own[-1]:
                own.append(node)
            places.append(len(own) - 1)
        which: Ints = np.array(places)
        open_, paid = np.array([node.open for node in own]), np.array([node.paid for node in own])
        usable: Bools = np.logical_or.reduce(open_, axis=1)
        least, constant = self.prices.least([node.ranges for node in nodes], multipliers, usable[which], paid[which])
        self.work += CALL + len(nodes) * self.prices.numbers
        selected = matmul(self.prices.selected(least, open_, which), self.prices.copies)
        certain = np.array([self.prices.costs.certain(node.paid) for node in own])[which]
        lowest = np.array([node.ranges.ready[0] + node.ranges.rest[0] for node in own])[which]
        return (np.maximum(selected + constant, lowest) + certain) * (1 - ROUNDING), least

    def improve(self, nodes: Sequence[PhaseNode], rounds: int) -> None:
        """Raise the bound of each node by changing one or two multipliers at a time, for at most `rounds` rounds."""
        live = list(nodes)
        for _ in range(rounds):
            if not live:
                return
            tried = [
                (node, self.changes(node.multipliers, node.step, node.open, functions=_is_narrow(node),
                                    pairs=node.settled, steps=self.has_few_steps(node)))
                for node in live
            ]  # fmt: skip
            values, least = self.evaluate(
                [node for node, changes in tried for _ in changes], [each for _, changes in tried for each in changes]
            )
            first, live = 0, live[:0]
            for node, changes in tried:
                best = first + int(values[first : first + len(changes)].argmax())
                gained = values[best] > values[first] + GAIN * abs(values[best])  # False for two infinite values
                node.value = max(node.value, float(values[best]))
                node.multipliers, node.least = changes[best - first], least[best]
                if gained:
                    self.remember(node.multipliers)
                else:
                    node.step /= 2
                if gained or node.step > LEAST_STEP:
                    live.append(node)
                first += len(changes)

    def changes(
        self,
        now: Multipliers,
        step: float,
        open_: Bools,
        *,
        functions: bool = False,
        pairs: bool = False,
        steps: bool = False,
    ) -> list[Multipliers]:
        """The multipliers as they are, changes of them by a step, and those of other nodes.

        open_ (C, G): groups that each table may use. functions: whether changes of dual feasible functions may gain;
        pairs: also changes of two at once. steps: whether changes of whole steps of width may gain.
        """
        scales = (
            (1, 1), (1 - step, 1 - step), (1 + step, 1 + step), (1, 1 - step), (1, 1 + step), (1 - step, 1),
            (1 + step, 1), (READY_JUMP, 1),
        )  # fmt: skip
        ready, rest, byte_price, mix, plane, dual, whole = now
        changes = [
            Multipliers(ready * a, rest * b, byte_price, mix, plane, dual if dual is NO_DUAL else dual * a, whole * b)
            for a, b in scales
        ]
        changes += [now._replace(rest_multiplier=rest * jump, step_multiplier=whole * jump) for jump in REST_JUMPS]
        if steps:
            changes += _other_steps(now, min(STEP_SHARE * step, 1.0))
        changes += self._other_planes(now, step)
        if functions:
            changes += self._other_functions(now, min(DUAL_STEP * step, DUAL_SHARE), pairs)
            for share in LITTLE if pairs else ():
                changes += self._other_functions(now, share, False)
        changes += [each for each in (*self.always, *self._recent) if each is not now]
        if self.always:
            best = self.prices.mix(np.logical_or.reduce(open_, axis=0))
            changes.append(Multipliers(1.0, 1.0, byte_price, best, plane, dual))
            if self.prices.planes.bent:
                changes.append(now._replace(mix=(1 - step) * mix + step * best))
        if self.byte_price:
            higher = max(byte_price, LEAST_BYTE_PRICE * self.byte_price) * (1 + step)
            prices = (0.0, byte_price * (1 - step), higher)
            changes += [now._replace(byte_price=price) for price in prices]
        return changes

    def has_few_steps(self, node: PhaseNode) -> bool:
        """Whether a rank holds so few steps of width that it matters that they are whole."""
        return 0 < node.ranges.rest[1] < MOST_WIDTH_STEPS * self.prices.pieces.step_s

    def _other_functions(self, now: Multipliers, share: float, pairs: bool) -> list[Multipliers]:
        """Move this share of the first phase's worth to each dual feasible function, or to each pair in equal parts."""
        ready, dual = now.ready_multiplier, now.dual
        moved, ready, kept = share * (ready + float(dual.sum())), ready * (1 - share), dual * (1 - share)
        return [
            now._replace(ready_multiplier=ready, dual=kept + moved * one)
            for one in (*self.dual, *(self.pairs if pairs else ()))
        ]

    def _other_planes(self, now: Multipliers, step: float) -> list[Multipliers]:
        """Mixes a step nearer to each plane, in groups that span the world or in all others; and other planes."""
        changes: list[Multipliers] = []
        mix, plane = now.mix, now.plane
        planes, kept = mix.shape[1], (1 - step) * mix
        for other in range(planes):
            if 1 < planes <= MOST_STEPPED:
                mixed = kept.copy()
                mixed[:, other] += step
                changes += [now._replace(mix=np.where(groups, mixed, mix)) for groups in self._either]
            if other != plane and other < self.prices.planes.flat:
                changes.append(now._replace(plane=other))
        return changes
