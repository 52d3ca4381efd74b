"""Annealing: many plans side by side change at random, uphill too while it is hot; the worst start anew from the best.

One step changes every plan once (_herd.py): a piece moves, two pieces trade places, columns pass from one piece of a
table to another, or a table is laid in another way. Half of the changes begin on a slowest rank. Changes for the worse
are taken the less the colder it is (Metropolis); every now and then the dearest quarter of the plans gives way to
copies of the cheapest, as in population annealing. For few devices.

Legend: K plans, T tables, P pieces of an option at most, W ranks, F phases.
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.planners._assignment import NOWHERE, Assignment
from recsmith.planners._herd import Change, Herd, Part
from recsmith.planners._ledger import Ledger
from recsmith.planners._ways import Ways

MOST_PLANS, LEAST_PLANS = 128, 16
NUMBERS = 60_000  # loads of all plans: so many take part
HOT, COLD = 1e-2, 1e-4  # temperatures at start and end, as shares of a plan's cost
BLUNT, SHARP = 24.0, 384.0  # powers of the loads whose norm is lowered, at start and end
KINDS = (0.35, 0.25, 0.15, 0.25)  # how often a piece moves, two trade places, columns pass, a table is laid anew
GUIDED = 0.5  # share of steps that change something on a slowest rank
KEPT = 0.5  # share of tables laid anew whose pieces stay where they can
STIR = 0.1  # how far loads are shaken before a table's pieces go to the least loaded ranks
GENERATION = 100  # steps after which the worst quarter gives way


class Annealing:
    """A crowd of plans that cools down. `starts` are where they begin, in turn; see `Ways.reaches` for which may."""

    def __init__(self, ledger: Ledger, ways: Ways, starts: Sequence[Assignment], seed: int) -> None:
        self.ways = ways
        self.random = np.random.default_rng(seed)
        herd = self.herd = Herd(ledger, ways, starts, max(LEAST_PLANS, min(MOST_PLANS, NUMBERS // ways.numbers)))
        self.plans = herd.plans
        self.best_s, self.best = np.inf, (herd.option[0], herd.target[0])
        self._note(herd.total)

    def cool(self, first: int, last: int, steps: int) -> None:
        """Steps `first` to `last` of as many as the cooling takes altogether."""
        kinds = (self._moved, self._traded, self._passed, self._laid_anew)
        for step in range(first, last):
            progress = step / steps
            if step % GENERATION == 0:
                self.herd.sharpness = BLUNT * (SHARP / BLUNT) ** progress
                self._renew()
            change = kinds[self.random.choice(len(KINDS), p=KINDS)]()
            self._step(change, HOT * (COLD / HOT) ** progress)

    def assignment(self) -> Assignment:
        """The best plan met."""
        return self.herd.assignment(*self.best)

    def _renew(self) -> None:
        """Copies of the cheapest quarter take the place of the dearest."""
        self.herd.refresh()
        order, quarter = np.argsort(self.herd.score, kind="stable"), len(self.plans) // 4
        self.herd.copy(order[-quarter:], order[:quarter])

    def _step(self, change: Change, heat: float) -> None:
        """One random change to each plan, taken or not."""
        outcome, score = self.herd.try_(change), self.herd.score
        luck = -heat * score * np.log1p(-self.random.random(len(self.plans)))
        taken = np.flatnonzero(change.legal & outcome.fits & (outcome.score <= score + luck))
        self.herd.take(taken, change, outcome)
        mine = np.full(len(self.plans), np.inf)
        mine[taken] = outcome.total[taken]
        self._note(mine)

    def _note(self, total: Floats) -> None:
        plan = int(total.argmin())
        if total[plan] < self.best_s:
            self.best_s = float(total[plan])
            self.best = (self.herd.option[plan].copy(), self.herd.target[plan].copy())

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _moved(self) -> Change:
        """A piece of one rank goes to another."""
        table, place, piece = self._some_piece()
        option, target = self.herd.option[self.plans, table], self.herd.target[self.plans, table]
        here, there = target[self.plans, place], self.random.integers(len(self.herd.world), size=len(self.plans))
        legal = self._free(option) & (here != there) & self._may_meet(option, target, there)
        target[self.plans, place] = there
        sign = np.array([-1, 1])
        part = Part(self.ways.group[option], np.zeros_like(option), _both(self.ways.terms[piece], sign))
        ranks, device = np.stack([here, there], axis=1), _both_bytes(self.ways.tail[piece], sign)
        host = _both_bytes(self.ways.host_tail[piece], sign) if self.ways.on_hosts else None
        return Change(ranks, (part,), device, host, ((table, option, target),), legal)

    def _traded(self) -> Change:
        """Pieces of two tables trade places."""
        (one, mine, piece), (other, theirs, partner) = self._some_piece(), self._some_piece(guided=False)
        ways, state = self.ways, self.herd
        option, target = state.option[self.plans, one], state.target[self.plans, one]
        option2, target2 = state.option[self.plans, other], state.target[self.plans, other]
        here, there = target[self.plans, mine], target2[self.plans, theirs]
        legal = self._free(option) & self._free(option2) & (here != there) & (one != other)
        legal &= self._may_meet(option, target, there) & self._may_meet(option2, target2, here)
        target[self.plans, mine], target2[self.plans, theirs] = there, here
        sign, none = np.array([-1, 1]), np.zeros_like(option)
        first = Part(ways.group[option], none, _both(ways.terms[piece], sign))
        second = Part(ways.group[option2], none, _both(ways.terms[partner], -sign))
        device = _both_bytes(ways.tail[piece] - ways.tail[partner], sign)
        host = _both_bytes(ways.host_tail[piece] - ways.host_tail[partner], sign) if ways.on_hosts else None
        tables = (one, option, target), (other, option2, target2)
        return Change(np.stack([here, there], axis=1), _merged(second, first), device, host, tables, legal)

    def _some_piece(self, *, guided: bool = True) -> tuple[Ints, Ints, Ints]:
        """(a table of each plan, the place of one of its pieces, the piece); guided: often of a slowest rank."""
        state, plans = self.herd, len(self.plans)
        if guided and self.random.random() < GUIDED:
            table, place = self._on_slowest()
        else:
            table = self.random.integers(state.option.shape[1], size=plans)
            option = state.option[self.plans, table]
            place = (self.random.random(plans) * self.ways.pieces[option]).astype(np.int64)
        option = state.option[self.plans, table]
        piece: Ints = np.where(self.ways.first[option, place], self.ways.wide[option], self.ways.narrow[option])
        return table, place, piece

    def _on_slowest(self) -> tuple[Ints, Ints]:
        """(table, place of a piece) of the slowest rank of some phase, of each plan."""
        ranks = self.herd.ranks[self.random.integers(len(self.herd.ranks))]
        here: Bools = self.herd.target == ranks.argmax(axis=1)[:, None, None]  # (K, T, P)
        table = (here.any(axis=2) * (1 + self.random.random(here.shape[:2]))).argmax(axis=1)
        places = here[self.plans, table]
        return table, (places * (1 + self.random.random(places.shape))).argmax(axis=1)

    def _free(self, option: Ints) -> Bools:
        """Whether each piece of an option may move by itself, from rank to rank."""
        return (self.ways.size[option] == 1) & ~self.ways.fixed[option]

    def _may_meet(self, option: Ints, target: Ints, there: Ints) -> Bools:
        """Whether a piece may go where others of its table may be."""
        return ~(self.ways.apart[option] & (target == there[:, None]).any(axis=1))

    # --- tables -----------------------------------------------------------------------------------------------------

    def _passed(self) -> Change:
        """Columns pass between the pieces of a table, which stay where they are."""
        table, _, _ = self._some_piece()
        before = self.herd.option[self.plans, table]
        option = self.ways.near[before, self.random.integers(2, size=len(self.plans))]
        target = self.herd.target[self.plans, table]
        return self._laid(table, option, target, (option != before) & self._lawful(option, target))

    def _laid_anew(self) -> Change:
        """A table takes another of its ways; pieces stay where they can, or all go to the least loaded ranks."""
        ways = self.ways
        table, _, _ = self._some_piece()
        option = ways.options[table, self.random.integers(ways.count[table])]
        before, target = self.herd.option[self.plans, table], self._least_loaded(option)
        if self.random.random() < KEPT:
            stays = np.arange(ways.most) < np.minimum(ways.pieces[option], ways.pieces[before])[:, None]
            stays &= (ways.size[option] == ways.size[before])[:, None]
            target = np.where(stays, self.herd.target[self.plans, table], target)
        return self._laid(table, option, target, self._lawful(option, target))

    def _least_loaded(self, option: Ints) -> Ints:
        """Targets (K, P) for the pieces of options: the least loaded, more or less."""
        load: Floats = self.herd.ranks.sum(axis=0)  # (K, W)
        load = load * (1 + STIR * self.random.standard_normal(load.shape))
        places = np.arange(self.ways.most)
        size, target = self.ways.size[option], np.full((len(self.plans), self.ways.most), NOWHERE)
        for span in np.unique(size).tolist():
            some = np.flatnonzero(size == span)
            level: Floats = load[some].reshape(len(some), -1, span).sum(axis=2)
            order = level.argsort(axis=1)
            target[some] = order[:, places % order.shape[1]]
        target[places >= self.ways.pieces[option][:, None]] = NOWHERE
        return target

    def _lawful(self, option: Ints, target: Ints) -> Bools:
        """Whether pieces that must stand apart do."""
        ordered = np.sort(target, axis=1)
        meet = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NOWHERE)).any(axis=1)
        return ~self.ways.fixed[option] & ~(self.ways.apart[option] & meet)

    def _laid(self, table: Ints, option: Ints, target: Ints, legal: Bools) -> Change:
        """A table of each plan laid in another way."""
        ways, before = self.ways, self.herd.option[self.plans, table]
        gone, freed, left = self.herd.spread(before, self.herd.target[self.plans, table])
        come, taken, joined = self.herd.spread(option, target)
        first = Part(ways.group[before], -ways.pieces[before], -gone)
        second = Part(ways.group[option], ways.pieces[option], come)
        host = None if joined is None or left is None else joined - left
        ranks = np.tile(self.herd.world, (len(self.plans), 1))
        return Change(ranks, _merged(second, first), taken - freed, host, ((table, option, target),), legal, True)


def _both(terms: Floats, sign: Ints) -> Floats:
    """Terms (K, k) that leave one rank and come to another (K, 2, k)."""
    return terms[:, None] * sign[:, None]


def _both_bytes(size: Ints, sign: Ints) -> Ints:
    """Bytes (K,) that leave one rank and come to another (K, 2)."""
    return size[:, None] * sign


def _merged(second: Part, first: Part) -> tuple[Part, Part]:
    """Both parts; where they are of one group all of it is in the last one, which is the one that is kept."""
    same = second.group == first.group
    terms = first.terms + np.where(same[:, None, None], second.terms, 0.0)
    rest = Part(second.group, np.where(same, 0, second.count), np.where(same[:, None, None], 0.0, second.terms))
    return rest, Part(first.group, first.count + np.where(same, second.count, 0), terms)
