"""The search of phase_branching.py continued by what one rank can hold, for problems of few different tables.

It begins with the open nodes of such a search. The lowest one is priced by fillings of a rank (rank_fillings.py), and
split if these do not raise it. The least bound of all open nodes holds for every plan (docs/bounds.md).

Legend: G fusion groups, L large pieces.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.phase_branching import PhaseBranching
from recsmith.bounds.phase_nodes import FINE, Pair, PhaseNode, split_by_range, split_by_table
from recsmith.bounds.rank_fillings import FillingMultipliers, RankFillings
from recsmith.bounds.table_choices import has_few_choices
from recsmith.costs.protocol import Evaluator

FEW = 4  # different tables up to which a search begins anew: few nodes are enough, and the open ones are cut finely
MOST_FILLINGS = 4_000  # most fillings of a node
BEYOND = 1.01  # times the bound: a node above that is left until it is the lowest again
FINE_FILLINGS = 40_000  # most fillings of a node that cannot be split any more


@dataclass(order=True, slots=True)
class FilledNode:
    """A node and its state: the pieces (L,) of its fillings; groups (G,) in use, None before it was priced.

    most: most fillings when it was priced. proof: of its value; None if that is by the multipliers of its node.
    """

    value: float
    number: int
    node: PhaseNode = field(compare=False)
    large: Ints = field(compare=False)
    groups: Bools | None = field(compare=False, default=None)
    most: int = field(compare=False, default=MOST_FILLINGS)
    proof: FillingMultipliers | None = field(compare=False, default=None)


class FillingBranching:
    """The search; call `solve(work)` again to continue, until it is `done` or its bound is high enough.

    impossible: nodes without a plan.
    """

    def __init__(self, search: PhaseBranching, most_bytes: float, *, anew: bool) -> None:
        """search: whose open nodes it begins with. anew: begin with the node of all plans instead.

        most_bytes: largest device memory of any rank.
        """
        self.prices, self.done = search.prices, False
        self.fillings = RankFillings(search.prices, most_bytes)
        none: Ints = np.zeros(0, dtype=np.int64)
        nodes = [search.root] if anew else sorted(search.heap)
        self.heap = [FilledNode(node.value, number, node, none) for number, node in enumerate(nodes)]
        self.made = len(self.heap)
        self.impossible = [] if anew else [FilledNode(np.inf, 0, node, none) for node in search.impossible]

    @property
    def bound(self) -> float:
        """Seconds that no plan can undercut; infinite if no plan is below the limit that matters."""
        return self.heap[0].value if self.heap else np.inf

    @property
    def work(self) -> int:
        """Numbers worked on so far, approximately; the same on every machine."""
        return self.fillings.work

    @property
    def open_nodes(self) -> list[PhaseNode]:
        """The nodes that together hold all plans that matter, with the seconds that no plan of each undercuts."""
        return [replace(each.node, value=each.value) for each in self.heap]

    def solve(self, work: int, enough: float = np.inf) -> None:
        """Continue until the bound is `enough`, `work` numbers have been worked on, or nothing is left to split."""
        while self.heap and self.work < work and self.bound < enough and not self.done:
            lowest = self.heap[0]
            if lowest.groups is None:
                self._fill(lowest)
            elif (pair := self._split(lowest.node, lowest.groups)) is not None:
                heapq.heappop(self.heap)
                for half in pair:
                    made = FilledNode(lowest.value, self.made, half, lowest.large, proof=lowest.proof)
                    heapq.heappush(self.heap, made)
                    self.made += 1
            elif lowest.most < FINE_FILLINGS:
                lowest.most = FINE_FILLINGS
                self._fill(lowest)
            else:
                self.done = True

    def _fill(self, lowest: FilledNode) -> None:
        """Price the lowest node by fillings."""
        found = self.fillings.filled(lowest.node, lowest.large, lowest.most, BEYOND * self.bound)
        if found.value > lowest.value:
            lowest.value, lowest.proof = found.value, found.multipliers
        lowest.large = found.large
        lowest.groups = found.groups if found.ended else None
        heapq.heappop(self.heap)
        if lowest.value < np.inf:
            heapq.heappush(self.heap, lowest)
        else:
            self.impossible.append(lowest)

    def _split(self, node: PhaseNode, used: Bools) -> Pair | None:
        """Split by the costliest group in use (G,) that is not paid for, else by the wider range, or by a table."""
        costs = self.prices.costs
        cost: Floats = np.where(used & ~node.paid, costs.added(node.paid), 0.0)
        group = int(cost.argmax())
        if cost[group] > FINE * self.bound:
            paid, open_ = node.paid.copy(), node.open.copy()
            paid[group], open_[:, group] = True, False
            return node.halved("group", group, 0.0, {"open": open_}, {"paid": paid})
        pairs = split_by_range(node)
        widths = [high - low for low, high in (node.ranges.ready, node.ranges.rest)]
        if len(pairs) > 1:
            return pairs[int(widths[1] > widths[0])]
        pairs += split_by_table(node, costs.worldwide, self.prices.copies == 1)
        return pairs[0] if pairs else None


def filling_branchings(evaluator: Evaluator, search: PhaseBranching) -> Iterator[FillingBranching]:
    """Searches by fillings, each better for some problems: anew if different tables are few, and from open nodes.

    Yields none if tables or their splits are too many, if heads bend, or on a single device.
    """
    prices, most_bytes = search.prices, float(evaluator.problem.capacity.max())
    if search.heap and prices.suits_fillings() and has_few_choices(prices):
        if len(prices.copies) <= FEW:
            yield FillingBranching(search, most_bytes, anew=True)
        yield FillingBranching(search, most_bytes, anew=False)
