"""Annealing in planner auto: turns, each longer than the last; in compiled code if possible."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from threading import Event

import numpy as np

from recsmith._types import Ints
from recsmith.bounds import LowerBound, lower_bound
from recsmith.bounds.column_spreads import HeavyTableBound
from recsmith.bounds.tightening import heaviest_table
from recsmith.bounds.work import has_selections
from recsmith.planners.annealing.gathered_starts import gathered_starts
from recsmith.planners.annealing.kernel import is_compiled
from recsmith.planners.annealing.population import AnnealingOptions
from recsmith.planners.annealing.population_annealing import Annealing
from recsmith.planners.annealing.starts import Start, selected_starts, starts_of
from recsmith.planners.annealing.successive_halving import (
    FIRST_ROUNDS,
    AnnealedPlan,
    SuccessiveHalving,
    halving_of,
)
from recsmith.planners.auto.drafts import Drafts
from recsmith.planners.auto.improvement import StoppingRule
from recsmith.planners.auto.last_turns import WIDE_GAP, LastTurns
from recsmith.problems import Footprint

FEW_CELLS = 4_000  # tables times devices up to which two turns are taken even without a budget
LEAST_STEPS, STEPS, MOST_STEPS = 100, 20, 2000  # steps of array operations: at least, per table, and at most
SELECTED_GAP = 5e-3  # relative gap above which a turn begins from what tables select in the branches of lowest bound
BEHIND = 5e-3  # relative gap between two searches after FIRST_ROUNDS beyond which the worse of both ends
AT_ONCE = 20  # steps of array operations between two checks of the budget


class AnnealingTurns:
    """Annealing from the best drafts of a search, which keeps the best plan found."""

    def __init__(self, stopping: StoppingRule, drafts: Drafts, known: LowerBound) -> None:
        self.stopping, self.drafts, self.known = stopping, drafts, known
        self.search, self.devices = stopping.search, drafts.devices
        self.turns, self.insisted = 0, False
        self._heavy: Future[HeavyTableBound | None] = Future()
        self._bound: Future[LowerBound] = Future()

    def insist(self) -> None:
        """Anneal however little it may gain, because there is a budget to spend."""
        self.insisted = True
        if vars(self).get("halving", self) is None:
            del self.halving

    @property
    def is_compiled(self) -> bool:
        """Whether the problem is annealed by compiled code."""
        return self.halving is not None

    @property
    def lacks_compiler(self) -> bool:
        """Whether compiled code would anneal the problem if the package had been built with a C compiler."""
        if is_compiled() or not self.drafts.starts or not self._may_gain:
            return False
        return self.devices.compiled_loads is not None

    @contextmanager
    def tightening(self, keep_on: Callable[[], bool]) -> Generator[None]:
        """Tighten the bound on a thread of its own while drafts and the first turns run.

        keep_on: asked now and then whether to continue tightening.
        """
        over, evaluator = Event(), self.devices.evaluator
        with ThreadPoolExecutor(1) as pool:
            ask = (evaluator, lambda: keep_on() and not over.is_set())
            self._heavy = pool.submit(lambda: heaviest_table(*ask) if self._keep_on() else None)
            self._bound = pool.submit(lower_bound, *ask)
            try:
                yield
            except BaseException:
                over.set()  # before the pool waits for its thread
                raise

    def first_turns(self) -> bool:
        """Take one turn or two while the bound is tightened; returns False if no turn was possible."""
        self._heavy.result()  # starts need it, too
        if not self.is_compiled:
            self._bound.result()  # else array operations on two threads would wait for each other
        begun = self.turn()
        if begun and self.suffices and not self.stopping.reached:
            self._second_turn()
        self._await_bound()
        return begun

    def _await_bound(self) -> None:
        self.stopping.bound_s = self._bound.result().bound.value_s or 0.0

    def selected_turn(self) -> bool:
        """A turn from what tables select in the branches of lowest bound, unless such plans joined the first turn."""
        if self.halving is None or self.halving.is_crowded:
            return False
        other = self._selected()
        if other is None:
            return False
        for number, _ in enumerate(other.in_rounds(self._hear, self._keep_on), 1):
            if number >= FIRST_ROUNDS and self._is_behind(other):
                break
        self.halving.take(other)
        return True

    def gathered_turn(self) -> bool:
        """A turn from plans that gather pieces of whole hosts on few hosts, if the best plan is far from the bound.

        It begins from what tables select in the branches of the lowest bound, and from their groups in the best plan.
        """
        if self.halving is None or not self.halving.is_short or not self._is_far:
            return False
        selections = [*lower_bound(self.devices.evaluator).selections, self._groups_now]
        other = self._halving_from(
            gathered_starts(self.devices, self.drafts.relaxation, selections, self.search.total_s, self._keep_on)
        )
        if other is None:
            return False
        other.run(self._hear, self._keep_on)
        self.halving.take(other)
        return True

    @property
    def _is_far(self) -> bool:
        """Whether the best plan is so far from the bound that more turns are worth their time."""
        return self._keep_on() and self.search.total_s > self.stopping.bound_s * (1 + WIDE_GAP)

    @property
    def _groups_now(self) -> Ints:
        """The fusion group of each table (T,) in the best plan."""
        problem, best = self.devices.problem, self.search.best
        groups: Ints = np.zeros(len(problem.tables), dtype=np.int64)
        if best is not None:
            groups[problem.modes.table[best.mode]] = self.devices.evaluator.group[best.mode]
        return groups

    def last_turns(self) -> bool:
        """Turns from the best plan, if it is still far from the bound."""
        return self.halving is not None and LastTurns(self.stopping, self.drafts, self.halving, self._hear).work()

    def _selected_rivals(self) -> Iterator[Sequence[AnnealedPlan]]:
        """Yield the best plan of a search from the bound's selections, for the first turn's third and last round.

        Both rounds are long. If the two searches are far apart after the first rounds, only the better one runs them.
        Otherwise each runs the third round, and the better of both runs the last.
        """
        self._await_bound()
        other = self._selected() if self._keep_on() else None
        if other is None or self.halving is None:
            return
        rounds = other.in_rounds(self._hear, self._keep_on)
        for _ in islice(rounds, FIRST_ROUNDS):
            pass
        leads = other.plans[0].seconds * (1 + BEHIND) < self.halving.plans[0].seconds
        yield other.plans[:1] if leads else ()
        if not leads and not self._is_behind(other):
            next(rounds, None)
            yield other.plans[:1]

    def _is_behind(self, other: SuccessiveHalving) -> bool:
        return other.plans[0].seconds > self.search.total_s * (1 + BEHIND)

    def _selected(self) -> SuccessiveHalving | None:
        """Annealing from what tables select in the branches of the lowest bound; None if the plan is near the bound.

        Plans that place some tables in other groups are many changes away, so annealing seldom reaches them by itself.
        """
        known = lower_bound(self.devices.evaluator)
        if self.search.total_s <= self.stopping.bound_s * (1 + SELECTED_GAP):
            return None
        starts = selected_starts(self.devices, self.drafts.relaxation, known, self.search.total_s, self._keep_on)
        other = self._halving_from(starts)
        return other if other is not None and self._keep_on() else None

    @property
    def suffices(self) -> bool:
        """Whether annealing is compiled and no constraint between tables needs local search as well."""
        return self.is_compiled and not self.devices.legality.groups

    def _second_turn(self) -> None:
        """Take another turn if it may still gain and two turns take about a second at most.

        The bound may turn out to show that this turn gains nothing, but waiting for the bound would take longer.
        """
        quick = self.stopping.size <= FEW_CELLS and self.halving is not None and self.turns < self.halving.unasked
        if quick and not self.stopping.near_bound(self.search.total_s):
            self.turn()

    def turn(self) -> bool:
        """The next turn, twice as long as the one before; returns False if no turn was possible."""
        if self.halving is not None:
            joins = self.halving.is_crowded and self.turns == 0 and self.suffices
            joins = joins and has_selections(self.devices.problem)  # otherwise all would wait for the bound in vain
            self.halving.run(self._hear, self._keep_on, self._selected_rivals() if joins else ())
        elif not self._anneal():
            return False
        self.turns += 1
        return True

    @cached_property
    def halving(self) -> SuccessiveHalving | None:
        """The compiled annealing; None if the package or the cost model has none, or if it can gain little."""
        if not is_compiled() or not self._may_gain:
            return None
        if self.devices.compiled_loads is None:  # checked before starts are made, because they take time
            return None
        drafts = [(seconds, draft) for seconds, _, draft in self.drafts.starts]
        relaxation = self.drafts.relaxation
        return self._halving_from(starts_of(self.devices, relaxation, self.known, drafts, self._keep_on))

    def _halving_from(self, starts: list[Start]) -> SuccessiveHalving | None:
        """Compiled annealing from these starts; None if none of them is usable."""
        return halving_of(
            self.devices, self.drafts.relaxation, starts, self.drafts.seed, bound_s=self.stopping.bound_s,
            any_widths=not self.devices.legality.groups,  # mending uses only the options' widths
            keep_on=self._keep_on,
        )  # fmt: skip

    def _keep_on(self) -> bool:
        return not self.stopping.reached

    @property
    def _may_gain(self) -> bool:
        """Whether annealing is worth its time: for many tables with additive costs, candidates are near the best."""
        many = self.devices.evaluator.additive and self.stopping.size > FEW_CELLS
        return self.insisted or not (many or self.stopping.near_bound(self.search.total_s))

    def _hear(self, footprint: Footprint) -> bool:
        """Count a round's best plan, and one iteration for each equal part of its work; returns whether to stop."""
        self.search.try_(footprint)
        for _ in range(1, self.halving.effort if self.halving else 1):
            if self.stopping.reached:
                break
            self.search.try_(None)
        return self.stopping.reached

    # --- array operations, for any cost model -----------------------------------------------------------------------

    @cached_property
    def _options(self) -> AnnealingOptions:
        return AnnealingOptions(self.devices, self.drafts.relaxation)

    def _anneal(self) -> bool:
        """Cool many plans down together; returns False if a step would take long or little can be gained."""
        problem, seed = self.devices.problem, self.drafts.seed + self.turns
        near = self.stopping.near_bound(self.search.total_s) and not self.insisted
        if near or not AnnealingOptions.suit(problem):
            return False
        options = self._options
        starts = [draft for _, _, draft in self.drafts.starts if options.usable and options.reaches(draft)]
        if not starts:
            return False
        annealing = Annealing(self.devices, options, starts, seed)
        steps = min(MOST_STEPS, LEAST_STEPS + STEPS * len(problem.tables)) * 2**self.turns
        priced, total = np.inf, np.inf  # annealing's seconds for its best plan when that was priced, and the price
        for first in range(0, steps, AT_ONCE):
            annealing.cool(first, min(first + AT_ONCE, steps), steps)
            if annealing.best_s < priced:
                priced = annealing.best_s
                total = self.search.try_(annealing.assignment().footprint(problem))
            else:
                self.search.try_(None)
            if self.stopping.reached:
                return True
        self.drafts.keep(annealing.assignment(), total)
        return True
