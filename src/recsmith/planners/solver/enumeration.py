"""Branch and bound over every plan of a small problem: what `exact` does without a solver.

Every arrangement of every table is listed first: which of its shares is on which rank. Tables are placed one after the
other, those with the most bytes first. A partial plan is dropped if its cost so far, or the mean cost of a rank over
all tables, is no better than the best plan known. Of partial plans that differ only in which of several equal ranks or
hosts holds what, only one is extended.

Legend: n arrangements of a table, T tables, W ranks, H hosts, L ranks a host, S shares, G fusion groups, F phases, k
work terms.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds import lower_bound
from recsmith.costs import Evaluator, phase_seconds
from recsmith.planners.solver.layouts import SharedWidth, Shares, rank_marks, width_agrees
from recsmith.problems import Footprint, Problem
from recsmith.sharding.coverage import bytes_on, covering_target, first_rank, holds_tail

MOST_CELLS = 20_000_000  # arrangements times ranks: each takes some floating-point numbers
ROUNDING = 1e-12  # relative: a plan must be better by more than this, which is above the rounding errors of sums


@dataclass(frozen=True)
class Arrangements:
    """All arrangements (n,) of one table, and what each puts on every rank.

    group (n,): fusion group. share (n, W): the share that covers a rank, or S if none does. terms (n, W, k): work
    terms. device (n, W), host (n, H): bytes. shared_width: (collection, width) of column-wise sequences, else None.
    """

    group: Ints
    share: Ints
    terms: Floats
    device: Ints
    host: Ints
    shared_width: list[SharedWidth | None]


def arrangements_of(problem: Problem, shares: Shares, most: int) -> list[Arrangements] | None:
    """The arrangements of every table; None if all tables together have more than `most`."""
    found: list[Arrangements] = []
    most = min(most, MOST_CELLS // problem.cluster.world_size)
    for table in range(len(problem.tables)):
        own = [number for number, layout in enumerate(shares.layouts) if layout.table == table]
        rows = [row for number in own for row in _rows(problem, shares, number, most)]
        if problem.legality.any:
            rows = [row for row in rows if keeps_rules(problem, shares, table, row[1])]
        most -= len(rows)
        if most < 0:
            return None
        found.append(_arrangements(problem, shares, rows))
    return found


def _rows(problem: Problem, shares: Shares, number: int, most: int) -> list[tuple[int, list[int]]]:
    """(layout, share on each rank) of all spreads of a layout's columns; at most `most` + 1 of them."""
    layout, none = shares.layouts[number], len(shares.layout)
    own = np.flatnonzero(shares.layout == number)
    sizes = list(zip(own.tolist(), shares.columns[own].tolist(), strict=True))
    dim = int(problem.demand.dim[layout.table])
    before = [none] * layout.targets.start
    after = [none] * (problem.cluster.world_size // layout.coverage - layout.targets.stop)
    return [
        (number, [share for share in (*before, *filling, *after) for _ in range(layout.coverage)])
        for filling in islice(_fillings([(none, 0), *sizes], len(layout.targets), dim), most + 1)
    ]


def keeps_rules(problem: Problem, shares: Shares, table: int, held: list[int]) -> bool:
    """Whether a table with these shares on the ranks (W,) keeps the rules that concern it alone."""
    share = np.array(held)
    rank = np.flatnonzero(share < len(shares.layout))
    coverage = shares.coverage[share[rank]]
    target = covering_target(rank, coverage)
    first = first_rank(target, coverage) == rank
    pieces = shares.footprint(problem, share[rank][first], target[first])
    return not problem.legality.broken_alone(pieces)[table]


def _fillings(sizes: list[tuple[int, int]], targets: int, columns: int) -> Iterator[tuple[int, ...]]:
    """Every choice of a (share, its columns) for each target whose columns add up. sizes: the first one is no share.

    Without recursion, because there may be thousands of targets: a share is taken back if its columns do not add up.
    The columns left must fit the later targets, so that tables wider than a piece may be are not tried in vain.
    """
    none, widest = sizes[0][0], max(size for _, size in sizes)
    chosen: list[int] = []
    left, untried = [columns], [iter(sizes)]  # columns for later targets, and shares still to try, by target
    while untried:
        open_targets = targets - len(chosen)
        if left[-1] == 0:
            yield (*chosen, *[none] * open_targets)
        room = (open_targets - 1) * widest  # of later targets
        fits = (each for each in untried[-1] if open_targets and left[-1] and left[-1] - room <= each[1] <= left[-1])
        share, size = next(fits, (None, 0))
        if share is None:
            untried.pop()
            left.pop()
            if chosen:
                chosen.pop()
        else:
            chosen.append(share)
            left.append(left[-1] - size)
            untried.append(iter(sizes))


def _arrangements(problem: Problem, shares: Shares, rows: list[tuple[int, list[int]]]) -> Arrangements:
    """The arrangements for these (layout, share on each rank) rows."""
    share = np.array([row for _, row in rows], dtype=np.int64).reshape(len(rows), problem.cluster.world_size)
    layouts = [shares.layouts[number] for number, _ in rows]
    coverage = np.array([layout.coverage for layout in layouts], dtype=np.int64)
    none = np.zeros((1, 2), dtype=np.int64)
    head, tail = (np.vstack([end, none])[share] for end in (shares.head, shares.tail))  # (n, W, 2)
    size = bytes_on(np.arange(problem.cluster.world_size)[:, None], coverage[:, None, None], head, tail)
    terms = np.vstack([shares.terms, np.zeros_like(shares.terms[:1])])
    return Arrangements(
        group=np.array([layout.group for layout in layouts], dtype=np.int64), share=share, terms=terms[share],
        device=size[:, :, 0],
        host=size[:, :, 1].reshape(len(rows), problem.cluster.hosts, problem.cluster.local_world_size).sum(axis=2),
        shared_width=[layout.shared_width for layout in layouts],
    )  # fmt: skip


# --- branch and bound -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartialPlan:
    """The arrangements chosen for the first tables, and the state of every device after them.

    sums (G, W, k): summed work terms. free (W,), host_free (H,): free bytes. used (G,): groups with a piece. mean:
    least mean seconds of a rank, for the placed tables. widths: of the sequences of each collection. symmetry (W,):
    equal for ranks with equal capacity and contents.
    """

    chosen: tuple[int, ...]
    sums: Floats
    free: Ints
    host_free: Ints
    used: Bools
    mean: float
    widths: dict[str, int]
    symmetry: Ints


class Enumeration:
    """The search for plans of less than `best_s` seconds; each plan found lowers that.

    monotone: whether more tables never make a plan cheaper; if not, only full devices end a partial plan early. open:
    (bound, partial plan, arrangement of its next table), the next one last; the search ends when it is empty.
    """

    def __init__(
        self, evaluator: Evaluator, shares: Shares, arrangements: list[Arrangements], best_s: float, *, monotone: bool
    ) -> None:
        self.evaluator, self.problem, self.shares = evaluator, evaluator.problem, shares
        self.best_s, self.monotone = best_s, monotone
        order = sorted(
            range(len(arrangements)), key=lambda t: (-int(arrangements[t].device.sum(axis=1).max(initial=0)), t)
        )
        self.order, self.arrangements = order, [arrangements[table] for table in order]
        self.shared: Floats = phase_seconds(evaluator, evaluator.shared).sum(axis=0)  # (G,)
        self.means = [self._means(each) for each in self.arrangements]
        least = [float(mean.min(initial=np.inf)) for mean in self.means]
        self.mean_left = [sum(least[depth:]) for depth in range(len(least) + 1)]  # of tables not yet placed
        self.open: list[tuple[float, PartialPlan, int]] = []
        self._branch(self._empty())

    @property
    def bound(self) -> float:
        """Lower bound on the seconds of any plan."""
        return min([self.best_s, *(bound for bound, _, _ in self.open)])

    def run(self, nodes: int, on_plan: Callable[[Footprint], bool]) -> None:
        """Extend this many partial plans; call again to continue.

        on_plan: gets each better plan, and ends the run by returning True.
        """
        while self.open and nodes > 0:
            bound, node, row = self.open.pop()
            if bound < self.best_s * (1 - ROUNDING):
                nodes -= 1
                after = self._extended(node, row)
                if len(after.chosen) < len(self.arrangements):
                    self._branch(after)
                else:
                    self.best_s = bound
                    if on_plan(self.footprint(after)):
                        return

    def footprint(self, node: PartialPlan) -> Footprint:
        """The placed pieces of a partial plan."""
        rows = zip(self.arrangements, node.chosen, strict=False)
        share = np.stack([arrangements.share[row] for arrangements, row in rows])  # (T, W)
        table, rank = np.nonzero(share < len(self.shares.layout))
        held = share[table, rank]
        coverage = self.shares.coverage[held]
        target = covering_target(rank, coverage)
        first = first_rank(target, coverage) == rank
        return self.shares.footprint(self.problem, held[first], target[first])

    def _empty(self) -> PartialPlan:
        """The plan of no tables; ranks that hold the tails of hosts or of the world differ from all others."""
        cluster = self.problem.cluster
        ranks = np.arange(cluster.world_size)
        tails = [holds_tail(ranks, coverage) for coverage in (cluster.local_world_size, cluster.world_size)]
        differ = [*tails, rank_marks(self.problem)]
        return PartialPlan(
            chosen=(), sums=np.zeros((self.evaluator.groups, len(ranks), self.shares.terms.shape[1])),
            free=self.problem.capacity, host_free=self.problem.host_capacity,
            used=np.zeros(self.evaluator.groups, dtype=bool), mean=0.0, widths={},
            symmetry=np.unique(np.stack([self.problem.capacity, *differ]), axis=1, return_inverse=True)[1],
        )  # fmt: skip

    def _branch(self, node: PartialPlan) -> None:
        """Open a node for each arrangement of the next table that fits; the most promising is extended first."""
        arrangements = self.arrangements[len(node.chosen)]
        room = (arrangements.device <= node.free).all(axis=1) & (arrangements.host <= node.host_free).all(axis=1)
        agree = [width_agrees(shared_width, node.widths) for shared_width in arrangements.shared_width]
        fits: Bools = room & np.array(agree, dtype=bool)
        if self.problem.legality.groups:
            fits &= self._kept(node, arrangements)
        if not fits.any():
            return
        rows = self._distinct(node, arrangements, np.flatnonzero(fits))
        bounds = self._bounds(node, arrangements, rows)
        for i in np.argsort(-bounds, kind="stable").tolist():
            if bounds[i] < self.best_s * (1 - ROUNDING):
                self.open.append((float(bounds[i]), node, int(rows[i])))

    def _kept(self, node: PartialPlan, arrangements: Arrangements) -> Bools:
        """Arrangements (n,) of the next table that keep the constraints between it and the placed tables."""
        legality, none, number = self.problem.legality, len(self.shares.layout), self.order[len(node.chosen)]
        own, kept = int(legality.row[number]), np.ones(len(arrangements.group), dtype=bool)
        if own < 0:
            return kept
        count = np.append(self.shares.count, 0)
        on = legality.nothing_placed()
        for table, placed, row in zip(self.order, self.arrangements, node.chosen, strict=False):
            if legality.row[table] >= 0:
                on[legality.row[table]] = count[np.minimum(placed.share[row], none)]
        shards = count[np.minimum(arrangements.share, none)]
        for group in legality.groups_of.get(number, []):
            kept &= group.holds_with(on, own, shards)
        return kept

    def _bounds(self, node: PartialPlan, arrangements: Arrangements, rows: Ints) -> Floats:
        """Lower bound on the seconds of plans that continue a node by these arrangements, one for each."""
        group, depth = arrangements.group[rows], len(node.chosen)
        before = self.evaluator.loads(node.sums)  # (F, G, W)
        after = self.evaluator.loads(node.sums[group] + arrangements.terms[rows])  # (F, n, W)
        slowest = (before.sum(axis=1)[:, None] - before[:, group] + after).max(axis=2).sum(axis=0)
        fixed = float(self.shared[node.used].sum()) + np.where(node.used[group], 0.0, self.shared[group])
        if not self.monotone:
            return slowest + fixed if depth + 1 == len(self.arrangements) else np.zeros(len(rows))
        return np.maximum(slowest, node.mean + self.means[depth][rows] + self.mean_left[depth + 1]) + fixed

    def _means(self, arrangements: Arrangements) -> Floats:
        """Least mean seconds (n,) of a rank: by the linear lower bound on the cost, which is additive over tables."""
        linear = lower_bound(self.evaluator).linear if self.monotone else None
        if linear is None:
            return np.zeros(len(arrangements.group))
        slopes = linear.slopes[arrangements.group]
        return np.einsum("nwk,nk->n", arrangements.terms, slopes) / len(self.problem.capacity)

    def _distinct(self, node: PartialPlan, arrangements: Arrangements, rows: Ints) -> Ints:
        """One of each set of arrangements that differ only in which of several equal ranks or hosts holds what."""
        held = node.symmetry * (len(self.shares.layout) + 1) + arrangements.share[rows]
        by_host = np.sort(held.reshape(-1, self.problem.cluster.local_world_size), axis=1)
        kinds = np.unique(by_host, axis=0, return_inverse=True)[1].reshape(len(rows), -1)
        return rows[np.sort(np.unique(np.sort(kinds, axis=1), axis=0, return_index=True)[1])]

    def _extended(self, node: PartialPlan, row: int) -> PartialPlan:
        """The node after the next table is placed in one of its arrangements."""
        depth = len(node.chosen)
        arrangements, group = self.arrangements[depth], int(self.arrangements[depth].group[row])
        sums, used, shared_width = node.sums.copy(), node.used.copy(), arrangements.shared_width[row]
        sums[group] += arrangements.terms[row]
        used[group] = True
        return PartialPlan(
            chosen=(*node.chosen, row), sums=sums, free=node.free - arrangements.device[row],
            host_free=node.host_free - arrangements.host[row], used=used,
            mean=node.mean + float(self.means[depth][row]),
            widths=node.widths if shared_width is None else {**node.widths, shared_width[0]: shared_width[1]},
            symmetry=np.unique(np.stack([node.symmetry, arrangements.share[row]]), axis=1, return_inverse=True)[1],
        )  # fmt: skip
