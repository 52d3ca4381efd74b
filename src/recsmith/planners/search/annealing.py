"""Annealing: many plans side by side change at random, uphill too while it is hot; the worst start anew from the best.

One step changes every plan once (population.py): a piece moves, two pieces trade places, columns pass from one piece
of a table to another, or a table is laid in another way. Half of the changes begin on a slowest rank. Changes for the
worse are taken the less the colder it is (Metropolis); every now and then the dearest quarter of the plans gives way to
copies of the cheapest, as in population annealing. For few devices.

Legend: K plans, T tables, P pieces of an option at most, W ranks, F phases.
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.planners.search.annealing_options import AnnealingOptions
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.population import GroupChange, Population, PopulationChange

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
    """A population of plans that cools down. `starts` are where they begin, in turn."""

    def __init__(self, ledger: DeviceState, options: AnnealingOptions, starts: Sequence[Assignment], seed: int) -> None:
        self.options = options
        self.random = np.random.default_rng(seed)
        population = self.population = Population(
            ledger, options, starts, max(LEAST_PLANS, min(MOST_PLANS, NUMBERS // options.numbers))
        )
        self.plans = population.plans
        self.best_s, self.best = np.inf, (population.option[0], population.target[0])
        self._note(population.total)

    def cool(self, first: int, last: int, steps: int) -> None:
        """Steps `first` to `last` of as many as the cooling takes altogether."""
        kinds = (self._moved, self._traded, self._passed, self._laid_anew)
        for step in range(first, last):
            progress = step / steps
            if step % GENERATION == 0:
                self.population.sharpness = BLUNT * (SHARP / BLUNT) ** progress
                self._renew()
            change = kinds[self.random.choice(len(KINDS), p=KINDS)]()
            self._step(change, HOT * (COLD / HOT) ** progress)

    def assignment(self) -> Assignment:
        """The best plan met."""
        return self.population.assignment(*self.best)

    def _renew(self) -> None:
        """Copies of the cheapest quarter take the place of the dearest."""
        self.population.refresh()
        order, quarter = np.argsort(self.population.score, kind="stable"), len(self.plans) // 4
        self.population.copy(order[-quarter:], order[:quarter])

    def _step(self, change: PopulationChange, heat: float) -> None:
        """One random change to each plan, taken or not."""
        outcome, score = self.population.try_(change), self.population.score
        luck = -heat * score * np.log1p(-self.random.random(len(self.plans)))
        taken = np.flatnonzero(change.legal & outcome.fits & (outcome.score <= score + luck))
        self.population.take(taken, change, outcome)
        mine = np.full(len(self.plans), np.inf)
        mine[taken] = outcome.total[taken]
        self._note(mine)

    def _note(self, total: Floats) -> None:
        plan = int(total.argmin())
        if total[plan] < self.best_s:
            self.best_s = float(total[plan])
            self.best = (self.population.option[plan].copy(), self.population.target[plan].copy())

    # --- pieces -----------------------------------------------------------------------------------------------------

    def _moved(self) -> PopulationChange:
        """A piece of one rank goes to another."""
        table, place, piece = self._some_piece()
        option, target = self.population.option[self.plans, table], self.population.target[self.plans, table]
        here, there = target[self.plans, place], self.random.integers(len(self.population.world), size=len(self.plans))
        legal = self._free(option) & (here != there) & self._may_meet(option, target, there)
        target[self.plans, place] = there
        sign = np.array([-1, 1])
        part = GroupChange(self.options.group[option], np.zeros_like(option), _both(self.options.terms[piece], sign))
        ranks, device = np.stack([here, there], axis=1), _both_bytes(self.options.tail[piece], sign)
        host = _both_bytes(self.options.host_tail[piece], sign) if self.options.on_hosts else None
        return PopulationChange(ranks, (part,), device, host, ((table, option, target),), legal)

    def _traded(self) -> PopulationChange:
        """Pieces of two tables trade places."""
        (one, mine, piece), (other, theirs, partner) = self._some_piece(), self._some_piece(guided=False)
        options, state = self.options, self.population
        option, target = state.option[self.plans, one], state.target[self.plans, one]
        option2, target2 = state.option[self.plans, other], state.target[self.plans, other]
        here, there = target[self.plans, mine], target2[self.plans, theirs]
        legal = self._free(option) & self._free(option2) & (here != there) & (one != other)
        legal &= self._may_meet(option, target, there) & self._may_meet(option2, target2, here)
        target[self.plans, mine], target2[self.plans, theirs] = there, here
        sign, none = np.array([-1, 1]), np.zeros_like(option)
        first = GroupChange(options.group[option], none, _both(options.terms[piece], sign))
        second = GroupChange(options.group[option2], none, _both(options.terms[partner], -sign))
        device = _both_bytes(options.tail[piece] - options.tail[partner], sign)
        host = _both_bytes(options.host_tail[piece] - options.host_tail[partner], sign) if options.on_hosts else None
        tables = (one, option, target), (other, option2, target2)
        return PopulationChange(np.stack([here, there], axis=1), _merged(second, first), device, host, tables, legal)

    def _some_piece(self, *, guided: bool = True) -> tuple[Ints, Ints, Ints]:
        """(a table of each plan, the place of one of its pieces, the piece); guided: often of a slowest rank."""
        state, plans = self.population, len(self.plans)
        if guided and self.random.random() < GUIDED:
            table, place = self._on_slowest()
        else:
            table = self.random.integers(state.option.shape[1], size=plans)
            option = state.option[self.plans, table]
            place = (self.random.random(plans) * self.options.pieces[option]).astype(np.int64)
        option = state.option[self.plans, table]
        piece: Ints = np.where(
            self.options.first[option, place], self.options.wide[option], self.options.narrow[option]
        )
        return table, place, piece

    def _on_slowest(self) -> tuple[Ints, Ints]:
        """(table, place of a piece) of the slowest rank of some phase, of each plan."""
        ranks = self.population.ranks[self.random.integers(len(self.population.ranks))]
        here: Bools = self.population.target == ranks.argmax(axis=1)[:, None, None]  # (K, T, P)
        table = (here.any(axis=2) * (1 + self.random.random(here.shape[:2]))).argmax(axis=1)
        places = here[self.plans, table]
        return table, (places * (1 + self.random.random(places.shape))).argmax(axis=1)

    def _free(self, option: Ints) -> Bools:
        """Whether each piece of an option may move by itself, from rank to rank."""
        return (self.options.size[option] == 1) & ~self.options.fixed[option]

    def _may_meet(self, option: Ints, target: Ints, there: Ints) -> Bools:
        """Whether a piece may go where others of its table may be."""
        return ~(self.options.apart[option] & (target == there[:, None]).any(axis=1))

    # --- tables -----------------------------------------------------------------------------------------------------

    def _passed(self) -> PopulationChange:
        """Columns pass between the pieces of a table, which stay where they are."""
        table, _, _ = self._some_piece()
        before = self.population.option[self.plans, table]
        option = self.options.near[before, self.random.integers(2, size=len(self.plans))]
        target = self.population.target[self.plans, table]
        return self._laid(table, option, target, (option != before) & self._lawful(option, target))

    def _laid_anew(self) -> PopulationChange:
        """A table takes another of its options; pieces stay where they can, or all go to the least loaded ranks."""
        options = self.options
        table, _, _ = self._some_piece()
        option = options.options[table, self.random.integers(options.count[table])]
        before, target = self.population.option[self.plans, table], self._least_loaded(option)
        if self.random.random() < KEPT:
            stays = np.arange(options.most) < np.minimum(options.pieces[option], options.pieces[before])[:, None]
            stays &= (options.size[option] == options.size[before])[:, None]
            target = np.where(stays, self.population.target[self.plans, table], target)
        return self._laid(table, option, target, self._lawful(option, target))

    def _least_loaded(self, option: Ints) -> Ints:
        """Targets (K, P) for the pieces of options: the least loaded, more or less."""
        load: Floats = self.population.ranks.sum(axis=0)  # (K, W)
        load = load * (1 + STIR * self.random.standard_normal(load.shape))
        places = np.arange(self.options.most)
        size, target = self.options.size[option], np.full((len(self.plans), self.options.most), NOWHERE)
        for span in np.unique(size).tolist():
            some = np.flatnonzero(size == span)
            level: Floats = load[some].reshape(len(some), -1, span).sum(axis=2)
            order = level.argsort(axis=1)
            target[some] = order[:, places % order.shape[1]]
        target[places >= self.options.pieces[option][:, None]] = NOWHERE
        return target

    def _lawful(self, option: Ints, target: Ints) -> Bools:
        """Whether pieces that must stand apart do."""
        ordered = np.sort(target, axis=1)
        meet = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NOWHERE)).any(axis=1)
        return ~self.options.fixed[option] & ~(self.options.apart[option] & meet)

    def _laid(self, table: Ints, option: Ints, target: Ints, legal: Bools) -> PopulationChange:
        """A table of each plan laid in another way."""
        options, before = self.options, self.population.option[self.plans, table]
        gone, freed, left = self.population.spread(before, self.population.target[self.plans, table])
        come, taken, joined = self.population.spread(option, target)
        first = GroupChange(options.group[before], -options.pieces[before], -gone)
        second = GroupChange(options.group[option], options.pieces[option], come)
        host = None if joined is None or left is None else joined - left
        ranks = np.tile(self.population.world, (len(self.plans), 1))
        return PopulationChange(
            ranks, _merged(second, first), taken - freed, host, ((table, option, target),), legal, True
        )


def _both(terms: Floats, sign: Ints) -> Floats:
    """Terms (K, k) that leave one rank and come to another (K, 2, k)."""
    return terms[:, None] * sign[:, None]


def _both_bytes(size: Ints, sign: Ints) -> Ints:
    """Bytes (K,) that leave one rank and come to another (K, 2)."""
    return size[:, None] * sign


def _merged(second: GroupChange, first: GroupChange) -> tuple[GroupChange, GroupChange]:
    """Both parts; where they are of one group all of it is in the last one, which is the one that is kept."""
    same = second.group == first.group
    terms = first.terms + np.where(same[:, None, None], second.terms, 0.0)
    rest = GroupChange(second.group, np.where(same, 0, second.count), np.where(same[:, None, None], 0.0, second.terms))
    return rest, GroupChange(first.group, first.count + np.where(same, second.count, 0), terms)
