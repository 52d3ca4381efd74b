"""Annealing: many plans side by side change at random, uphill too while it is hot; the worst start anew from the best.

One step changes every plan once, by a few array operations for all of them together: a piece moves, two pieces trade
places, or a table is laid in another way. Changes for the worse are taken the less the colder it is (Metropolis); every
now and then the dearest quarter of the plans gives way to copies of the cheapest, as in population annealing. For
few devices; its cost grows with plans times devices times fusion groups, a step.

Legend: K plans, T tables, O options, P pieces of an option at most, W ranks, H hosts, G fusion groups in reach,
F phases, k work terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.relaxation import Relaxation
from recsmith.planners._assignment import NOWHERE, Assignment
from recsmith.planners._ledger import Ledger
from recsmith.problems import NO_PIECE

MOST_PLANS, LEAST_PLANS = 128, 16
NUMBERS = 60_000  # loads that one step works out: so many plans take part
WIDE = 1_000  # ranks times groups times terms of a plan up to which a step is quick
MOST_TABLES = 300  # of a problem: with more, a table is hardly ever asked
MOST_PIECES = 16  # of a table
WAYS_OF_A_KIND = 2  # options tried of each fusion group and number of pieces, the cheapest
DEAREST_WAY = 3.0  # of a table's cheapest option: dearer ones are not tried, but the lightest is
HOT, COLD = 1e-2, 1e-4  # temperatures at start and end, as shares of a plan's cost
BLUNT, SHARP = 24.0, 384.0  # powers of the loads whose norm is lowered, at start and end
KINDS = (0.4, 0.25, 0.35)  # how often a piece moves, two trade places, a table is laid anew
STIR = 0.1  # how far loads are shaken before a table's pieces go to the least loaded ranks
GENERATION = 50  # steps after which the worst quarter gives way


@dataclass
class _Loads:
    """What every rank carries in each plan."""

    sums: Floats  # (K, G, W, k)
    free: Ints  # (K, W)
    host_free: Ints  # (K, H)
    in_group: Ints  # (K, G): pieces

    def copy(self) -> "_Loads":
        return _Loads(self.sums.copy(), self.free.copy(), self.host_free.copy(), self.in_group.copy())

    def take(self, plans: Ints, other: "_Loads", theirs: Ints) -> None:
        """Plans become what others are."""
        self.sums[plans], self.free[plans] = other.sums[theirs], other.free[theirs]
        self.host_free[plans], self.in_group[plans] = other.host_free[theirs], other.in_group[theirs]

    def fits(self) -> Bools:
        """Which plans keep to every device's and host's memory (K,)."""
        return np.logical_and((self.free >= 0).all(axis=1), (self.host_free >= 0).all(axis=1))


@dataclass
class _Change:
    """One table of each plan laid in another way: table and option (K,), target (K, P), and whether it is legal."""

    table: Ints
    option: Ints
    target: Ints
    legal: Bools


class Annealing:
    """A crowd of plans that cools down. `starts` are where they begin, in turn; see `reaches` for which may."""

    def __init__(self, ledger: Ledger, ways: "Ways", starts: Sequence[Assignment], seed: int) -> None:
        self.ledger, self.ways = ledger, ways
        self.random = np.random.default_rng(seed)
        plans = max(LEAST_PLANS, min(MOST_PLANS, NUMBERS // ways.numbers))
        self.plans = np.arange(plans)
        first = [starts[plan % len(starts)] for plan in range(plans)]
        self.option: Ints = np.stack([draft.option for draft in first])
        self.target: Ints = np.stack([_padded(draft, ways.most) for draft in first])
        problem = ledger.problem
        self.now = _Loads(
            np.zeros((plans, ways.groups, len(problem.capacity), ledger.terms.shape[1])),
            np.tile(problem.capacity, (plans, 1)), np.tile(problem.host_capacity, (plans, 1)),
            np.zeros((plans, ways.groups), dtype=np.int64),
        )  # fmt: skip
        for table in range(len(problem.tables)):
            self._add(self.now, self.option[:, table], self.target[:, table], 1)
        self.sharpness = BLUNT
        self.score, total = self._priced(self.now)
        self.best_s, self.best = np.inf, (self.option[0], self.target[0])
        self._note(total)

    def cool(self, first: int, last: int, steps: int) -> None:
        """Steps `first` to `last` of as many as the cooling takes altogether."""
        for step in range(first, last):
            progress = step / steps
            self.sharpness = BLUNT * (SHARP / BLUNT) ** progress
            if step % GENERATION == 0:
                self._renew()
            self._step(HOT * (COLD / HOT) ** progress)

    def assignment(self) -> Assignment:
        """The best plan met."""
        option, target = self.best
        made = Assignment.of(self.ledger.problem, option)
        made.target[:] = target[target != NOWHERE]
        return made

    def _renew(self) -> None:
        """Copies of the cheapest quarter take the place of the dearest."""
        self.score, _ = self._priced(self.now)
        order, quarter = np.argsort(self.score, kind="stable"), len(self.plans) // 4
        better, worse = order[:quarter], order[-quarter:]
        self.now.take(worse, self.now, better)
        for each in (self.option, self.target, self.score):
            each[worse] = each[better]

    def _step(self, heat: float) -> None:
        """One random change to each plan, taken or not."""
        kind = (self._moved, self._traded, self._laid_anew)[self.random.choice(len(KINDS), p=KINDS)]
        changes, after = kind(), self.now.copy()
        legal = np.ones(len(self.plans), dtype=bool)
        for change in changes:
            legal &= change.legal
            self._add(after, self.option[self.plans, change.table], self.target[self.plans, change.table], -1)
            self._add(after, change.option, change.target, 1)
        after.sums[after.in_group == 0] = 0.0  # what rounding has left
        score, total = self._priced(after)
        luck = -heat * self.score * np.log1p(-self.random.random(len(self.plans)))
        taken = np.flatnonzero(legal & after.fits() & (score <= self.score + luck))
        self.now.take(taken, after, taken)
        self.score[taken] = score[taken]
        for change in changes:
            self.option[taken, change.table[taken]] = change.option[taken]
            self.target[taken, change.table[taken]] = change.target[taken]
        mine = np.full(len(self.plans), np.inf)
        mine[taken] = total[taken]
        self._note(mine)

    def _note(self, total: Floats) -> None:
        plan = int(total.argmin())
        if total[plan] < self.best_s:
            self.best_s, self.best = float(total[plan]), (self.option[plan].copy(), self.target[plan].copy())

    # --- changes ----------------------------------------------------------------------------------------------------

    def _moved(self) -> list[_Change]:
        """A piece of a table goes elsewhere."""
        change, piece = self._some_piece()
        size, world = self.ways.size[change.option], self.now.free.shape[1]
        target = self.random.integers(world, size=len(self.plans)) // size
        change.legal &= (size < world) & (change.target[self.plans, piece] != target)
        change.legal &= ~(self.ways.apart[change.option] & (change.target == target[:, None]).any(axis=1))
        change.target[self.plans, piece] = target
        return [change]

    def _traded(self) -> list[_Change]:
        """Pieces of two tables trade places."""
        (one, mine), (other, theirs) = self._some_piece(), self._some_piece()
        here, there = one.target[self.plans, mine], other.target[self.plans, theirs]
        for change, piece, target in ((one, mine, there), (other, theirs, here)):
            change.legal &= (self.ways.size[change.option] == 1) & (here != there) & (one.table != other.table)
            change.legal &= ~(self.ways.apart[change.option] & (change.target == target[:, None]).any(axis=1))
            change.target[self.plans, piece] = target
        return [one, other]

    def _some_piece(self) -> tuple[_Change, Ints]:
        """(a table of each plan as it stands, one of its pieces)."""
        table = self.random.integers(self.option.shape[1], size=len(self.plans))
        option = self.option[self.plans, table]
        piece = (self.random.random(len(self.plans)) * self.ways.pieces[option]).astype(np.int64)
        return _Change(table, option, self.target[self.plans, table], ~self.ways.fixed[option]), piece

    def _laid_anew(self) -> list[_Change]:
        """A table takes another of its ways, its pieces on the least loaded targets, more or less."""
        ways = self.ways
        table = self.random.integers(self.option.shape[1], size=len(self.plans))
        option = ways.options[table, self.random.integers(ways.count[table])]
        load: Floats = self.ledger.evaluator.loads(self.now.sums).sum(axis=(0, 2))  # (K, W)
        load *= 1 + STIR * self.random.standard_normal(load.shape)
        size, target = ways.size[option], np.full((len(self.plans), ways.most), NOWHERE)
        for span in np.unique(size).tolist():
            some = np.flatnonzero(size == span)
            level: Floats = load[some].reshape(len(some), -1, span).sum(axis=2)
            order = level.argsort(axis=1)
            target[some] = order[:, np.arange(ways.most) % order.shape[1]]
        target[np.arange(ways.most) >= ways.pieces[option][:, None]] = NOWHERE
        return [_Change(table, option, target, np.ones(len(self.plans), dtype=bool))]

    # --- costs ------------------------------------------------------------------------------------------------------

    def _priced(self, loads: _Loads) -> tuple[Floats, Floats]:
        """(a smooth stand-in of the step, the step) (K,)."""
        ranks = np.maximum(self.ledger.evaluator.loads(loads.sums).sum(axis=2), 0.0)  # (F, K, W)
        common = np.einsum("gf,kg->k", self.ways.shared, loads.in_group > 0)
        slowest = ranks.max(axis=2)
        relative = ranks / np.maximum(slowest, 1e-300)[:, :, None]
        norm = slowest * (relative**self.sharpness).sum(axis=2) ** (1 / self.sharpness)
        return norm.sum(axis=0) + common, slowest.sum(axis=0) + common

    def _add(self, loads: _Loads, option: Ints, target: Ints, sign: int) -> None:
        """Put options of each plan (K,) on targets (K, P), or take them back."""
        ways = self.ways
        ranks = np.arange(len(self.ledger.problem.capacity))
        size, group = ways.size[option], ways.group[option]
        on: Bools = ranks // size[:, None, None] == target[:, :, None]  # (K, P, W)
        first: Bools = ways.first[option][:, :, None]
        wide: Ints = (on & first).sum(axis=1)  # (K, W): pieces of each width
        narrow: Ints = (on & ~first).sum(axis=1)
        last: Bools = ranks % size[:, None] == size[:, None] - 1
        for number, piece in ((wide, ways.wide[option]), (narrow, ways.narrow[option])):
            signed = sign * number
            loads.sums[self.plans, group] += signed[:, :, None] * ways.terms[piece][:, None, :]
            loads.free -= signed * np.where(last, ways.tail[piece][:, None], ways.head[piece][:, None])
            if ways.on_hosts:
                held = signed * np.where(last, ways.host_tail[piece][:, None], ways.host_head[piece][:, None])
                loads.host_free -= held.reshape(*loads.host_free.shape, -1).sum(axis=2)
        loads.in_group[self.plans, group] += sign * ways.pieces[option]


class Ways:
    """In which ways the tables of a problem may be laid, as padded arrays over options."""

    def __init__(self, ledger: Ledger, relaxation: Relaxation) -> None:
        problem = ledger.problem
        options, pieces = problem.options, problem.pieces
        self.pieces: Ints = options.count.sum(axis=1)  # (O,)
        few = self.pieces <= min(MOST_PIECES, len(problem.capacity) + 4)
        self.fixed = ledger.on_one_host  # pieces that only move together
        self.apart: Bools = ledger.tied  # pieces of different widths may not meet
        room = self.pieces * problem.modes.coverage[options.mode] <= len(problem.capacity)
        tried = relaxation.option_fits & few & ~self.fixed & (room | ~self.apart)
        self.most = int(self.pieces[few & relaxation.option_fits].max(initial=1))
        listed = [_ways_of(relaxation, tried, table, self.pieces) for table in range(len(problem.tables))]
        self.count = np.array([len(each) for each in listed])
        self.options = np.stack([np.resize(each, max(1, self.count.max())) for each in listed])
        self.reached: Bools = relaxation.option_fits & (self.pieces <= self.most)
        groups = np.unique(relaxation.option_group[self.reached])
        self.group, self.groups = np.searchsorted(groups, relaxation.option_group), len(groups)
        self.shared: Floats = ledger.shared[groups]  # (G, F)
        self.size: Ints = problem.modes.coverage[options.mode]
        empty = len(pieces.mode)  # stands for no piece
        self.wide, self.narrow = np.where(options.piece == NO_PIECE, empty, options.piece).T  # (O,)
        self.first: Bools = np.arange(self.most) < options.count[:, :1]  # (O, P): pieces of the first width
        self.terms = np.vstack([ledger.terms, np.zeros_like(ledger.terms[:1])])
        self.head, self.tail = np.append(pieces.head.device, 0), np.append(pieces.tail.device, 0)
        self.host_head, self.host_tail = np.append(pieces.head.host, 0), np.append(pieces.tail.host, 0)
        self.on_hosts = bool(self.host_tail.any() or self.host_head.any())
        self.numbers = self.groups * len(problem.capacity) * ledger.terms.shape[1]

    @property
    def usable(self) -> bool:
        """Whether every table has a way, and a plan is small enough to anneal."""
        return bool(self.count.all()) and self.numbers <= WIDE and len(self.count) <= MOST_TABLES

    def reaches(self, draft: Assignment) -> bool:
        """Whether a draft's options are among those that plans may hold."""
        return bool(self.reached[draft.option].all())


def _ways_of(relaxation: Relaxation, tried: Bools, table: int, pieces: Ints) -> Ints:
    """The options of a table worth trying: of each group and number of pieces the cheapest, and the lightest of all."""
    start = relaxation.problem.options.start
    own = np.arange(int(start[table]), int(start[table + 1]))
    own = own[tried[own]]
    if not own.size:
        return own
    seconds = relaxation.option_seconds[own]
    kinds: dict[tuple[int, int], list[int]] = {}
    for option in own[np.argsort(seconds, kind="stable")].tolist():
        kinds.setdefault((int(relaxation.option_group[option]), int(pieces[option])), []).append(option)
    kept = np.array([option for kind in kinds.values() for option in kind[:WAYS_OF_A_KIND]])
    cheap = relaxation.option_seconds[kept] <= DEAREST_WAY * seconds.min()
    lightest = own[relaxation.option_bytes[own].argmin()]
    return np.unique(np.append(kept[cheap], lightest))


def _padded(draft: Assignment, most: int) -> Ints:
    """Targets (T, P) of a draft's pieces."""
    target = np.full((len(draft.option), most), NOWHERE)
    first = np.searchsorted(draft.table, np.arange(len(draft.option)))
    target[draft.table, np.arange(len(draft.table)) - first[draft.table]] = draft.target
    return target
