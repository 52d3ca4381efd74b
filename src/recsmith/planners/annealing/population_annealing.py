"""Annealing: many plans side by side change at random, for the worse too while it is hot.

One step changes every plan once (random_changes.py): a piece moves, two pieces trade places, columns pass from one
piece of a table to another, or a table is placed again. Half of the changes begin on a slowest rank. Changes for the
worse are taken the less the colder it is (Metropolis); every now and then the dearest quarter of the plans gives way to
copies of the cheapest, as in population annealing. For few devices.

Legend: K plans, T tables, P pieces of an option at most.
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats
from recsmith.planners.annealing.options import AnnealingOptions
from recsmith.planners.annealing.population import Population
from recsmith.planners.annealing.population_change import PopulationChange
from recsmith.planners.annealing.random_changes import RandomChanges
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.device_state import DeviceState

MOST_PLANS, LEAST_PLANS = 128, 16  # side by side; trade-off: more meet more, and a step takes longer
NUMBERS = 60_000  # loads of all plans (plans times AnnealingOptions.numbers): as many plans as give so many take part
HOT, COLD = 1e-2, 1e-4  # temperatures at start and end, as shares of a plan's cost
BLUNT, SHARP = 24.0, 384.0  # powers of the loads whose norm is lowered, at start and end
KINDS = (0.35, 0.25, 0.15, 0.25)  # how often a piece moves, two trade places, columns pass, a table is placed again
GENERATION = 100  # steps after which the worst quarter gives way


class Annealing:
    """A population of plans that cools down. starts: where they begin, in turn.

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
        """Steps `first` to `last` of as many as the cooling takes altogether."""
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
        """Copies of the cheapest quarter take the place of the dearest."""
        self.population.refresh()
        order, quarter = np.argsort(self.population.score, kind="stable"), len(self.plans) // 4
        self.population.copy(order[-quarter:], order[:quarter])

    def _step(self, change: PopulationChange, heat: float) -> None:
        """One random change to each plan, taken or not."""
        effect, score = self.population.try_(change), self.population.score
        if self.limited:
            change.legal = change.legal & self.changes.kept(change)
        luck = -heat * score * np.log1p(-self.random.random(len(self.plans)))
        taken = np.flatnonzero(change.legal & effect.fits & (effect.score <= score + luck))
        self.population.take(taken, change, effect)
        mine = np.full(len(self.plans), np.inf)
        mine[taken] = effect.total[taken]
        self._note(mine)

    def _note(self, total: Floats) -> None:
        """Remember the best plan, by totals (K,)."""
        plan = int(total.argmin())
        if total[plan] < self.best_s:
            self.best_s = float(total[plan])
            self.best = (self.population.option[plan].copy(), self.population.target[plan].copy())
