"""Branch and bound over every plan of a small problem: what `exact` does without a solver.

Tables are laid one after the other, the heaviest first. A partial plan is given up where what it costs already, or what
all tables must cost in the mean, is no better than the best plan known; and of partial plans that differ only in which
of several equal ranks or hosts holds what, one is followed.

Legend: n arrangements to lay a table, W ranks, H hosts, G fusion groups, F phases, k work terms.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds import lower_bound
from recsmith.costs import Evaluator, phase_seconds
from recsmith.planners.solver.layouts import Shares
from recsmith.problems import Footprint, Problem

ROUNDING = 1e-12  # relative; by less no plan is better


@dataclass(frozen=True)
class Arrangements:
    """All arrangements (n,) to lay a table, and what each puts on every rank.

    share (n, W): the share that covers a rank, or the number of shares where none does. terms (n, W, k); device bytes
    (n, W); host bytes (n, H). alike: what must agree with other sequences of the collection.
    """

    group: Ints
    share: Ints
    terms: Floats
    device: Ints
    host: Ints
    alike: list[tuple[str, int] | None]


@dataclass(frozen=True)
class _PartialPlan:
    """How the first tables are arranged, and what is on every rank. equal (W,): alike on equal ranks."""

    picks: tuple[int, ...]
    sums: Floats  # (G, W, k)
    free: Ints  # (W,)
    host_free: Ints  # (H,)
    used: Bools  # (G,)
    mean: float  # least seconds of a rank in the mean, of the tables laid
    widths: dict[str, int]
    equal: Ints


def arrangements_of(problem: Problem, shares: Shares, most: int) -> list[Arrangements] | None:
    """The arrangements of every table; None where they are more than `most`."""
    found: list[Arrangements] = []
    for table in range(len(problem.tables)):
        mine = [number for number, layout in enumerate(shares.layouts) if layout.table == table]
        rows = [row for number in mine for row in _rows(problem, shares, number, most)]
        most -= len(rows)
        if most < 0:
            return None
        found.append(_arrangements(problem, shares, rows))
    return found


def _rows(problem: Problem, shares: Shares, number: int, most: int) -> list[tuple[int, list[int]]]:
    """(layout, share on each rank) of the arrangements to place a layout's columns; at most one more than `most`."""
    layout, nothing = shares.layouts[number], len(shares.layout)
    mine = np.flatnonzero(shares.layout == number)
    sizes = list(zip(mine.tolist(), shares.columns[mine].tolist(), strict=True))
    dim = int(problem.demand.dim[layout.table])
    before = [nothing] * layout.targets.start
    after = [nothing] * (problem.cluster.world_size // layout.coverage - layout.targets.stop)
    return [
        (number, [share for share in (*before, *filling, *after) for _ in range(layout.coverage)])
        for filling in islice(_fillings([(nothing, 0), *sizes], len(layout.targets), dim), most + 1)
    ]


def _fillings(sizes: list[tuple[int, int]], targets: int, columns: int) -> Iterator[tuple[int, ...]]:
    """Every choice of a share for each target that adds up to the columns."""
    if targets == 0:
        yield from [()] if columns == 0 else []
        return
    for share, size in sizes:
        if size <= columns:
            yield from ((share, *rest) for rest in _fillings(sizes, targets - 1, columns - size))


def _arrangements(problem: Problem, shares: Shares, rows: list[tuple[int, list[int]]]) -> Arrangements:
    share = np.array([row for _, row in rows], dtype=np.int64)
    layouts = [shares.layouts[number] for number, _ in rows]
    coverage = np.array([layout.coverage for layout in layouts], dtype=np.int64)[:, None]
    last = np.arange(problem.cluster.world_size) % coverage == coverage - 1
    none = np.zeros((1, 2), dtype=np.int64)
    size = np.where(last[:, :, None], np.vstack([shares.tail, none])[share], np.vstack([shares.head, none])[share])
    terms = np.vstack([shares.terms, np.zeros_like(shares.terms[:1])])
    return Arrangements(
        group=np.array([layout.group for layout in layouts]), share=share, terms=terms[share], device=size[:, :, 0],
        host=size[:, :, 1].reshape(len(rows), problem.cluster.hosts, -1).sum(axis=2),
        alike=[layout.alike for layout in layouts],
    )  # fmt: skip


class Enumeration:
    """The search; `run` may be called again to go on. below: seconds of the best plan known.

    monotone: whether plans never get cheaper by more tables; if not, only full devices end a partial plan early.
    """

    def __init__(
        self, evaluator: Evaluator, shares: Shares, arrangements: list[Arrangements], below: float, *, monotone: bool
    ) -> None:
        self.evaluator, self.problem, self.shares = evaluator, evaluator.problem, shares
        self.below, self.monotone = below, monotone
        self.order = sorted(range(len(arrangements)), key=lambda t: (-int(arrangements[t].device.sum(axis=1).max()), t))
        self.arrangements = [arrangements[table] for table in self.order]
        self.shared: Floats = phase_seconds(evaluator, evaluator.shared).sum(axis=0)
        self.means = [self._means(each) for each in self.arrangements]
        least = [float(mean.min()) for mean in self.means]
        self.rest = [sum(least[depth:]) for depth in range(len(least) + 1)]
        self.open: list[tuple[float, _PartialPlan, int]] = []  # (bound, partial plan, way of its next table)
        self._branch(self._root())

    @property
    def bound(self) -> float:
        """Seconds that no plan goes below."""
        return min([self.below, *(bound for bound, _, _ in self.open)])

    def run(self, nodes: int, hear: Callable[[Footprint], bool]) -> None:
        """Follow as many partial plans. `hear` is told of each better plan, and ends the run by True."""
        while self.open and nodes > 0:
            bound, node, way = self.open.pop()
            if bound < self.below * (1 - ROUNDING):
                nodes -= 1
                after = self._with(node, way)
                if len(after.picks) < len(self.arrangements):
                    self._branch(after)
                else:
                    self.below = bound
                    if hear(self._footprint(after)):
                        return

    def _root(self) -> _PartialPlan:
        cluster = self.problem.cluster
        ranks = np.arange(cluster.world_size)
        ends = [(ranks + 1) % size == 0 for size in (cluster.local_world_size, cluster.world_size)]  # they hold tails
        return _PartialPlan(
            picks=(), sums=np.zeros((self.evaluator.groups, len(ranks), self.shares.terms.shape[1])),
            free=self.problem.capacity, host_free=self.problem.host_capacity,
            used=np.zeros(self.evaluator.groups, dtype=bool), mean=0.0, widths={},
            equal=np.unique(np.stack([self.problem.capacity, *ends]), axis=1, return_inverse=True)[1],
        )  # fmt: skip

    def _branch(self, node: _PartialPlan) -> None:
        """Open a node for each way to lay the next table that fits; the most promising is followed first."""
        arrangements = self.arrangements[len(node.picks)]
        room = (arrangements.device <= node.free).all(axis=1) & (arrangements.host <= node.host_free).all(axis=1)
        agree = [alike is None or node.widths.get(alike[0], alike[1]) == alike[1] for alike in arrangements.alike]
        fits: Bools = room & np.array(agree)
        if not fits.any():
            return
        rows = self._unlike(node, arrangements, np.flatnonzero(fits))
        bounds = self._bounds(node, arrangements, rows)
        for i in np.argsort(-bounds, kind="stable").tolist():
            if bounds[i] < self.below * (1 - ROUNDING):
                self.open.append((float(bounds[i]), node, int(rows[i])))

    def _bounds(self, node: _PartialPlan, arrangements: Arrangements, rows: Ints) -> Floats:
        """Seconds (n,) that no plan goes below which continues a node by these arrangements."""
        group, depth = arrangements.group[rows], len(node.picks)
        before = self.evaluator.loads(node.sums)  # (F, G, W)
        after = self.evaluator.loads(node.sums[group] + arrangements.terms[rows])  # (F, n, W)
        slowest = (before.sum(axis=1)[:, None] - before[:, group] + after).max(axis=2).sum(axis=0)
        fixed = float(self.shared[node.used].sum()) + np.where(node.used[group], 0.0, self.shared[group])
        if not self.monotone:
            return slowest + fixed if depth + 1 == len(self.arrangements) else np.zeros(len(rows))
        return np.maximum(slowest, node.mean + self.means[depth][rows] + self.rest[depth + 1]) + fixed

    def _means(self, arrangements: Arrangements) -> Floats:
        """Least seconds (n,) of a rank in the mean: on planes below the cost, which add up."""
        linear = lower_bound(self.evaluator).linear
        if linear is None or not self.monotone:
            return np.zeros(len(arrangements.group))
        return np.einsum("nwk,nk->n", arrangements.terms, linear.slopes[arrangements.group]) / len(
            self.problem.capacity
        )

    def _unlike(self, node: _PartialPlan, arrangements: Arrangements, rows: Ints) -> Ints:
        """Some of the arrangements (n,), one of those that put the same on ranks and hosts that are alike."""
        held = node.equal * (len(self.shares.layout) + 1) + arrangements.share[rows]
        by_host = np.sort(held.reshape(-1, self.problem.cluster.local_world_size), axis=1)
        kinds = np.unique(by_host, axis=0, return_inverse=True)[1].reshape(len(rows), -1)
        return rows[np.sort(np.unique(np.sort(kinds, axis=1), axis=0, return_index=True)[1])]

    def _with(self, node: _PartialPlan, way: int) -> _PartialPlan:
        """A node with the next table laid."""
        depth = len(node.picks)
        arrangements, group = self.arrangements[depth], int(self.arrangements[depth].group[way])
        sums, used, alike = node.sums.copy(), node.used.copy(), arrangements.alike[way]
        sums[group] += arrangements.terms[way]
        used[group] = True
        return _PartialPlan(
            picks=(*node.picks, way), sums=sums, free=node.free - arrangements.device[way],
            host_free=node.host_free - arrangements.host[way], used=used,
            mean=node.mean + float(self.means[depth][way]),
            widths=node.widths if alike is None else {**node.widths, alike[0]: alike[1]},
            equal=np.unique(np.stack([node.equal, arrangements.share[way]]), axis=1, return_inverse=True)[1],
        )  # fmt: skip

    def _footprint(self, node: _PartialPlan) -> Footprint:
        share = np.stack(
            [arrangements.share[pick] for arrangements, pick in zip(self.arrangements, node.picks, strict=True)]
        )  # (T, W)
        table, rank = np.nonzero(share < len(self.shares.layout))
        held = share[table, rank]
        coverage = np.array([layout.coverage for layout in self.shares.layouts])[self.shares.layout[held]]
        first = rank % coverage == 0
        return self.shares.footprint(self.problem, held[first], (rank // coverage)[first])
