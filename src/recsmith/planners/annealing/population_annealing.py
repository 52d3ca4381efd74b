"""Annealing by array operations: many plans side by side change at random, and while they are hot also for the worse.

One step changes every plan once: a piece moves, two pieces trade places, columns pass from one piece of a table to
another, or a table is placed again. Half of the changes begin on a slowest rank. The colder the plans, the fewer
changes for the worse are accepted (Metropolis). From time to time copies of the cheapest quarter of the plans replace
the costliest quarter, as in population annealing. For few devices.

Legend: K plans, T tables, P the most pieces of an option, W ranks, F phases.
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.elementary import log1p
from recsmith.planners.annealing.population import (
    AnnealingOptions,
    GroupChange,
    Population,
    PopulationChange,
    bytes_between,
    merged_parts,
    terms_between,
)
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState
from recsmith.sharding.coverage import by_target

MOST_PLANS, LEAST_PLANS = 128, 16  # plans side by side; trade-off: more find better plans, but a step takes longer
NUMBERS = 60_000  # loads of all plans (plans times AnnealingOptions.numbers), from which the number of plans follows
HOT, COLD = 1e-2, 1e-4  # temperatures at start and end, as shares of a plan's cost
BLUNT, SHARP = 24.0, 384.0  # powers of the loads' norm that is minimized, at start and end
KINDS = (0.35, 0.25, 0.15, 0.25)  # shares of changes: move a piece, swap two, pass columns, place a table again
GENERATION = 100  # steps after which the worst quarter is replaced
GUIDED = 0.5  # share of steps that change something on a slowest rank; the others keep the search from going in circles
STAYING = 0.5  # share of tables placed again whose pieces keep their targets if they can
NOISE = 0.1  # relative deviation of the loads that rank targets by load, so that no target is always first


class Annealing:
    """A population of plans that cools down. starts: the plans it begins from, in turn.

    best_s: seconds of the best plan met; it falls whenever `assignment` changes.
    """

    def __init__(
        self, devices: DeviceState, options: AnnealingOptions, starts: Sequence[Assignment], seed: int
    ) -> None:
        self.random = np.random.default_rng(seed)
        population = self.population = Population(
            devices, options, starts, max(LEAST_PLANS, min(MOST_PLANS, NUMBERS // options.numbers))
        )
        changes = RandomChanges(population, options, self.random)
        self.changes, self.limited = changes, devices.legality.any
        self.kinds = (changes.move_piece, changes.swap_pieces, changes.shift_columns, changes.replace_table)
        self.plans = population.plans
        self.best_s, self.best = np.inf, (population.option[0], population.target[0])
        self._note(population.total)

    def cool(self, first: int, last: int, steps: int) -> None:
        """Make the steps `first` to `last` of a cooling that has `steps` altogether."""
        for step in range(first, last):
            progress = step / steps
            if step % GENERATION == 0:
                self.population.sharpness = BLUNT * (SHARP / BLUNT) ** progress
                self._renew()
            change = self.kinds[self.random.choice(len(KINDS), p=KINDS)]()
            self._step(change, HOT * (COLD / HOT) ** progress)

    def assignment(self) -> Assignment:
        """The best plan met."""
        return self.population.assignment(*self.best)

    def _renew(self) -> None:
        """Replace the costliest quarter of the plans by copies of the cheapest quarter."""
        self.population.refresh()
        order, quarter = np.argsort(self.population.score, kind="stable"), len(self.plans) // 4
        self.population.copy(order[-quarter:], order[:quarter])

    def _step(self, change: PopulationChange, heat: float) -> None:
        """Try one random change of each plan, and apply it if it is accepted."""
        effect, score = self.population.try_(change), self.population.score
        if self.limited:
            change.legal = change.legal & self.changes.kept(change)
        luck = -heat * score * log1p(-self.random.random(len(self.plans)))
        taken = np.flatnonzero(change.legal & effect.fits & (effect.score <= score + luck))
        self.population.take(taken, change, effect)
        mine = np.full(len(self.plans), np.inf)
        mine[taken] = effect.total[taken]
        self._note(mine)

    def _note(self, total: Floats) -> None:
        """Remember the best plan, from totals (K,)."""
        plan = int(total.argmin())
        if total[plan] < self.best_s:
            self.best_s = float(total[plan])
            self.best = (self.population.option[plan].copy(), self.population.target[plan].copy())


# --- random changes ---------------------------------------------------------------------------------------------------


class RandomChanges:
    """Draws a change for each plan at once. A change that a plan may not take is marked illegal, not drawn again."""

    def __init__(self, population: Population, options: AnnealingOptions, random: np.random.Generator) -> None:
        self.population, self.options, self.random = population, options, random
        self.plans = population.plans

    def kept(self, change: PopulationChange) -> Bools:
        """Which plans (K,) leave pinned tables alone, and put tables on ranks that are open to them."""
        legality, options = self.population.devices.legality, self.options
        kept = np.ones(len(self.plans), dtype=bool)
        for table, option, target in change.tables:
            kept &= ~legality.pinned[table]
            size = options.size[option]
            for coverage in np.unique(size).tolist() if legality.open is not None else ():
                assert legality.open is not None
                some = np.flatnonzero(size == coverage)
                open_: Bools = np.all(by_target(legality.open[table[some]], coverage), axis=-1)
                last = open_.shape[1] - 1  # changes that are illegal anyway may name ranks as targets of hosts' pieces
                there: Bools = open_[np.arange(len(some))[:, None], np.minimum(target[some], last)]
                kept[some] &= (there | (target[some] == NOWHERE)).all(axis=1)
        return kept

    # --- pieces -----------------------------------------------------------------------------------------------------

    def move_piece(self) -> PopulationChange:
        """Move a piece of one rank to another rank."""
        population, options = self.population, self.options
        table, place, piece = self._some_piece()
        option, target = population.option[self.plans, table], population.target[self.plans, table]
        here, there = target[self.plans, place], self.random.integers(len(population.world), size=len(self.plans))
        legal = self._single(option) & (here != there) & self._may_meet(option, target, there)
        target[self.plans, place] = there
        sign = np.array([-1, 1])
        part = GroupChange(options.group[option], np.zeros_like(option), terms_between(options.terms[piece], sign))
        ranks, device = np.stack([here, there], axis=1), bytes_between(options.tail[piece], sign)
        host = bytes_between(options.host_tail[piece], sign) if options.on_hosts else None
        return PopulationChange(ranks, (part,), device, host, ((table, option, target),), legal)

    def swap_pieces(self) -> PopulationChange:
        """Let pieces of two tables trade places."""
        (one, mine, piece), (other, theirs, partner) = self._some_piece(), self._some_piece(guided=False)
        options, state = self.options, self.population
        option, target = state.option[self.plans, one], state.target[self.plans, one]
        option2, target2 = state.option[self.plans, other], state.target[self.plans, other]
        here, there = target[self.plans, mine], target2[self.plans, theirs]
        legal = self._single(option) & self._single(option2) & (here != there) & (one != other)
        legal &= self._may_meet(option, target, there) & self._may_meet(option2, target2, here)
        target[self.plans, mine], target2[self.plans, theirs] = there, here
        sign, none = np.array([-1, 1]), np.zeros_like(option)
        first = GroupChange(options.group[option], none, terms_between(options.terms[piece], sign))
        second = GroupChange(options.group[option2], none, terms_between(options.terms[partner], -sign))
        device = bytes_between(options.tail[piece] - options.tail[partner], sign)
        host = None
        if options.on_hosts:
            host = bytes_between(options.host_tail[piece] - options.host_tail[partner], sign)
        tables = (one, option, target), (other, option2, target2)
        ranks = np.stack([here, there], axis=1)
        return PopulationChange(ranks, merged_parts(second, first), device, host, tables, legal)

    def _some_piece(self, *, guided: bool = True) -> tuple[Ints, Ints, Ints]:
        """(a table of each plan, the slot of one of its pieces, the piece); guided: often on a slowest rank."""
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
        """(a table, the slot of one of its pieces) on the slowest rank of some phase, for each plan."""
        ranks = self.population.ranks[self.random.integers(len(self.population.ranks))]
        here: Bools = self.population.target == ranks.argmax(axis=1)[:, None, None]  # (K, T, P)
        table = (here.any(axis=2) * (1 + self.random.random(here.shape[:2]))).argmax(axis=1)
        places = here[self.plans, table]
        return table, (places * (1 + self.random.random(places.shape))).argmax(axis=1)

    def _single(self, option: Ints) -> Bools:
        """Whether the pieces of an option may move by themselves, from rank to rank."""
        return (self.options.size[option] == 1) & ~self.options.together[option]

    def _may_meet(self, option: Ints, target: Ints, there: Ints) -> Bools:
        """Whether a piece may be placed where other pieces of its table may be."""
        return ~(self.options.apart[option] & (target == there[:, None]).any(axis=1))

    # --- tables -----------------------------------------------------------------------------------------------------

    def shift_columns(self) -> PopulationChange:
        """Pass columns between the pieces of a table, which keep their targets."""
        table, _, _ = self._some_piece()
        before = self.population.option[self.plans, table]
        option = self.options.near[before, self.random.integers(2, size=len(self.plans))]
        target = self.population.target[self.plans, table]
        return self._placed(table, option, target, (option != before) & self._lawful(option, target))

    def replace_table(self) -> PopulationChange:
        """Give a table another of its options; pieces keep their targets if they can, or all get the least loaded."""
        options = self.options
        table, _, _ = self._some_piece()
        option = options.tried[table, self.random.integers(options.count[table])]
        before, target = self.population.option[self.plans, table], self._least_loaded(option)
        if self.random.random() < STAYING:
            stays = np.arange(options.most) < np.minimum(options.pieces[option], options.pieces[before])[:, None]
            stays &= (options.size[option] == options.size[before])[:, None]
            target = np.where(stays, self.population.target[self.plans, table], target)
        return self._placed(table, option, target, self._lawful(option, target))

    def _least_loaded(self, option: Ints) -> Ints:
        """Targets (K, P) for the pieces of options: the least loaded targets, with some noise."""
        load: Floats = self.population.ranks.sum(axis=0)  # (K, W)
        load = load * (1 + NOISE * self.random.standard_normal(load.shape))
        places = np.arange(self.options.most)
        size, target = self.options.size[option], np.full((len(self.plans), self.options.most), NOWHERE)
        for coverage in np.unique(size).tolist():
            some = np.flatnonzero(size == coverage)
            order = by_target(load[some], coverage).sum(axis=2).argsort(axis=1, kind="stable")
            target[some] = order[:, places % order.shape[1]]
        target[places >= self.options.pieces[option][:, None]] = NOWHERE
        return target

    def _lawful(self, option: Ints, target: Ints) -> Bools:
        """Whether no two pieces that may not share a rank do so."""
        ordered = np.sort(target, axis=1)
        meet = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NOWHERE)).any(axis=1)
        return ~self.options.together[option] & ~(self.options.apart[option] & meet)

    def _placed(self, table: Ints, option: Ints, target: Ints, legal: Bools) -> PopulationChange:
        """The change of a table (K,) in each plan to another option (K,) on these targets (K, P)."""
        options, before = self.options, self.population.option[self.plans, table]
        gone, freed, left = self.population.on_ranks(before, self.population.target[self.plans, table])
        come, taken, joined = self.population.on_ranks(option, target)
        first = GroupChange(options.group[before], -options.pieces[before], -gone)
        second = GroupChange(options.group[option], options.pieces[option], come)
        host = None if joined is None or left is None else joined - left
        ranks = np.tile(self.population.world, (len(self.plans), 1))
        parts, tables = merged_parts(second, first), ((table, option, target),)
        return PopulationChange(ranks, parts, taken - freed, host, tables, legal, everywhere=True)
