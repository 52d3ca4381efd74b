"""Compiled annealing of many plans side by side: each round cools the best plans of the last one again, for longer.

Plans begin in different sets of fusion groups (starts.py) and at two temperatures. They cool on threads, one per
core at most, and the outcome does not depend on the number of threads.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from itertools import cycle
from threading import Event
from typing import NamedTuple

import numpy as np

from recsmith.bounds.first import always
from recsmith.bounds.linear_bounds import kept_for
from recsmith.bounds.relaxation import Relaxation
from recsmith.costs.group_loads import GroupLoads
from recsmith.planners.annealing.kernel import KINDS, SHARPNESS, SLOWEST, Cooling, FlatOptions, FlatPlan, FlatProblem
from recsmith.planners.annealing.starts import Start, TriedOptions
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import Footprint

STEPS, PIECE_STEPS = 50_000, 200  # steps of a first cooling: at least, and for each piece of the best start
AT_ONCE = 50_000  # steps between two checks whether to stop: 10 to 50 ms
HEAT, CROWD = 0.28, 1.5  # the first temperature is HEAT / devices ** CROWD: one rank of many changes the step less
COLD = 0.01  # temperature at the end, as a share of the first


class Round(NamedTuple):
    """One round: how many of the best plans cool, at which shares of HEAT, and for how many times the first steps.

    sharpness: of norms, one for each of the heats, or one for all.
    """

    plans: int
    heats: tuple[float, ...]
    times: int
    sharpness: tuple[tuple[int, int], ...] = (SHARPNESS,)


ROUNDS = (Round(12, (1.0, 3.0), 1), Round(8, (1.0,), 1), Round(4, (0.5,), 2), Round(2, (0.25,), 4))
LATER_ROUNDS = (Round(12, (1.0,), 1), Round(4, (0.5,), 1), Round(2, (0.25,), 4))  # of turns after the first
SOME_PIECES, MANY_PIECES = 100, 300  # numbers of pieces above which problems take SOME_ROUNDS and LONG_ROUNDS
SOME_ROUNDS = (Round(12, (8.0, 2.0), 1), Round(4, (1.0,), 2), Round(2, (0.5,), 4), Round(2, (0.5,), 8))
SOME_HEAT = 0.1  # first temperature of SOME_ROUNDS, times pieces: the more pieces, the less each changes the step
BLUNT = 6, 7  # norms that begin blunter and end as sharp: some problems end with much shorter steps, some with longer
LONG_ROUNDS = (  # for problems of many pieces; trade-off: without the last round, steps are 0.1 to 0.9 % longer
    Round(8, (1.0,), 1), Round(3, (2.0,), 2),
    Round(1, (0.5, 2.0), 8, (SHARPNESS, BLUNT)), Round(1, (0.5, 2.0), 16, (SHARPNESS, BLUNT)),
)  # fmt: skip
SPREAD_ROUNDS = (Round(12, (1.0,), 1), Round(3, (2.0, 1.0, 0.5), 2), Round(2, (0.5, 0.25), 4))  # if one table is costly
BESIDE_SPREADS = 4  # starts in addition to those from a spread of the heaviest table; they seldom end as low
FAR, FAR_PIECES = 0.03, 600  # relative gap after two rounds, and most pieces, of problems that then take FAR_ROUND
FAR_ROUND = Round(1, (2.0, 8.0), 64, (SHARPNESS, BLUNT))  # steps are 0.1 to 0.6 % shorter, in twice the time
FIRST_ROUNDS = 2  # short rounds at the start of a turn, after which searches are compared
ALIKE, SAME = 4, 1e-9  # this many best plans of a round with equal seconds, up to a share, end a later turn
LONG_HEAT = 2e-4  # first temperature of LONG_ROUNDS for any number of devices: better than HEAT's on 64, 128 and 512
GROUP_KINDS = (0.1, 0.2, 0.4, 0.1, 0.2)  # if two groups may cost less than one: more changes of groups
LONG_KINDS = (0.1, 0.2, 0.53, 0.15, 0.02)  # shares of changes for LONG_ROUNDS, as in KINDS
LONG_STEPS, MANY_DEVICES = 300_000, 128  # most steps for LONG_ROUNDS; number of devices beyond which steps grow with it
# From this many devices on, and above FAR_PIECES, this share of changes begins at a slowest rank. The steps below then
# replace PIECE_STEPS and LONG_STEPS: fewer steps do as much.
CROWDED, CROWDED_SLOWEST = 64, 15 / 16
CROWDED_PIECE_STEPS, CROWDED_STEPS = 120, 140_000


@dataclass
class AnnealedPlan:
    """A plan that takes part: its seconds, the options that it may take, and the plan itself.

    spread: whether it began with one spread of the heaviest table's columns; such plans do not compete too early.
    first: options for its first round alone, which replace `options`.
    """

    seconds: float
    options: FlatOptions
    plan: FlatPlan
    spread: bool = False
    first: FlatOptions | None = None


class SuccessiveHalving:
    """The rounds of one search. `run` may be called again: the next turn continues from the best plans of the last.

    effort: steps of the last round over all its plans, in units of AT_ONCE. unasked: number of turns that are worth
    their time without a budget. is_crowded: whether most changes begin at a slowest rank, and rounds are so long that
    only the better of two searches runs the last one. is_short: whether pieces are so few that some more rounds take
    little time. has_long_rounds: whether the best plan cools for long in each turn.
    """

    rounds: tuple[Round, ...]

    def __init__(
        self, devices: DeviceState, relaxation: Relaxation, group_loads: GroupLoads, starts: Sequence[Start],
        seed: int, *, bound_s: float = 0.0, any_widths: bool = True, keep_on: Callable[[], bool] = always,
    ) -> None:  # fmt: skip
        self.bound_s = bound_s
        self.seed, self.turn, self.effort, self.unasked, ranks = seed, 0, 0, 2, len(devices.free)
        pieces = len(starts[0].draft.piece) if starts else 0
        self.rounds, self.heat, kinds, slowest = ROUNDS, HEAT / ranks**CROWD, KINDS, SLOWEST
        self.may_be_far = MANY_PIECES < pieces <= FAR_PIECES and not group_loads.shares
        self.is_short, self.has_long_rounds = pieces <= FAR_PIECES, pieces > MANY_PIECES
        self.is_crowded = pieces > FAR_PIECES and ranks >= CROWDED
        self.steps = max(STEPS, PIECE_STEPS * pieces)
        if SOME_PIECES < pieces <= MANY_PIECES:
            self.rounds, self.heat, self.unasked = SOME_ROUNDS, SOME_HEAT / pieces, 1
        if pieces > MANY_PIECES:
            self.rounds, self.heat, kinds, most = LONG_ROUNDS, LONG_HEAT, LONG_KINDS, LONG_STEPS
            if self.is_crowded:
                self.steps, most, slowest = CROWDED_PIECE_STEPS * pieces, CROWDED_STEPS, CROWDED_SLOWEST
            self.steps = min(most, self.steps * max(MANY_DEVICES, ranks) // MANY_DEVICES)
            self.steps *= 2 if ranks > MANY_DEVICES else 1  # on more devices, half of these steps did not suffice
        elif devices.linear_pieces is None:
            kinds = GROUP_KINDS
        self.flat = kept_for(
            devices.evaluator, ("flat problem", any_widths, kinds, slowest),
            lambda: FlatProblem(devices.evaluator, group_loads, any_widths=any_widths, kinds=kinds, slowest=slowest),
        )  # fmt: skip
        self.plans: list[AnnealedPlan] = []
        most, spreads = self.rounds[0].plans, sum(start.spread for start in starts)
        if spreads and self.rounds is ROUNDS:
            most, self.unasked, self.rounds = spreads + BESIDE_SPREADS, 1, SPREAD_ROUNDS
        for start in starts:
            if self.plans and (len(self.plans) == most or not keep_on()):
                break
            flat, opened = self.flat, relaxation
            if start.barred is not None:
                opened = relaxation.reopened(devices.problem.options.barred | start.barred)
            if start.spread and start.barred is not None:  # the table with the spread columns keeps its widths
                free = any_widths & ~np.isin(devices.problem.modes.table, devices.problem.options.table[start.barred])
                flat = FlatProblem(devices.evaluator, group_loads, any_widths=free, kinds=kinds, slowest=slowest)
            options = FlatOptions(flat, TriedOptions(devices, opened.within(start.groups)))
            plan = flat.plan(start.draft)
            if options.usable and plan is not None:
                self.plans.append(AnnealedPlan(start.seconds, options, plan, start.spread))

    def another(self, plans: Sequence[AnnealedPlan], rounds: tuple[Round, ...]) -> "SuccessiveHalving":
        """A search of the same problem from other plans, in its own rounds, which end like those of a later turn."""
        other = copy(self)
        other.plans, other.rounds, other.may_be_far = list(plans), rounds, False
        other.turn, other.steps = 1, self.steps // 2  # a turn has twice the steps of the one before
        return other

    def take(self, other: "SuccessiveHalving") -> None:
        """Adopt the best plan of another search of the same problem, if it is better than all plans of this one."""
        if other.plans and self.plans and other.plans[0].seconds < self.plans[0].seconds:
            self.plans = [other.plans[0], *self.plans]

    def run(
        self, hear: Callable[[Footprint], bool], keep_on: Callable[[], bool],
        rivals: Iterable[Sequence[AnnealedPlan]] = (),
    ) -> None:  # fmt: skip
        """Run the rounds, each turn with twice the steps; hear(plan) gets a round's best plan and may end the turn.

        After a turn that found nothing better than its first round did, the next turn is no longer worth its time.

        keep_on: asked now and then whether to continue; the best so far is kept. rivals: for each round after
        FIRST_ROUNDS, plans of other searches that take part in it; the iterator is advanced when that round begins.
        """
        for _ in self.in_rounds(hear, keep_on, rivals):
            pass

    def in_rounds(
        self, hear: Callable[[Footprint], bool], keep_on: Callable[[], bool],
        rivals: Iterable[Sequence[AnnealedPlan]] = (),
    ) -> Iterator[None]:  # fmt: skip
        """Run the rounds, and yield after each of them."""
        plans, found_s, others = self.plans, np.inf, iter(rivals)
        for number, each in enumerate(self._rounds()):
            joining = next(others, ()) if number >= FIRST_ROUNDS else ()
            plans = sorted([*plans, *joining], key=lambda annealed: annealed.seconds) if joining else plans
            plans = self._cooled(plans[: each.plans], each, number, keep_on)
            best = min((*plans, *self.plans[:1]), key=lambda annealed: annealed.seconds)
            self.plans = [best, *(other for other in self.plans if other is not best)]
            found_s = best.seconds if number == 0 else found_s
            if hear(best.options.flat.footprint(best.plan)) or not keep_on() or (self.turn and _are_alike(plans)):
                break
            yield
        if self.plans and found_s <= self.plans[0].seconds * (1 + SAME):
            self.unasked = min(self.unasked, self.turn + 1)
        self.turn += 1

    def _rounds(self) -> Iterator[Round]:
        """The rounds of a turn; if the plan is far from the bound after two rounds, a longer one replaces the rest."""
        rounds = LATER_ROUNDS if self.turn and self.rounds in (ROUNDS, SPREAD_ROUNDS) else self.rounds
        yield from rounds[:FIRST_ROUNDS]
        is_far = self.may_be_far and self.plans[0].seconds > self.bound_s * (1 + FAR)
        yield from (FAR_ROUND,) if is_far else rounds[FIRST_ROUNDS:]

    def _cooled(
        self, plans: Sequence[AnnealedPlan], each: Round, number: int, keep_on: Callable[[], bool]
    ) -> list[AnnealedPlan]:
        """The plans after a round of cooling, best first."""
        steps = each.times * self.steps * 2**self.turn
        ways = list(zip(each.heats, cycle(each.sharpness), strict=False))
        jobs = [
            (annealed, share * self.heat, sharp, steps, seed)
            for way, (share, sharp) in enumerate(ways)
            for annealed, seed in zip(plans, self._seeds(number, way, len(plans)), strict=True)
        ]
        self.effort = len(jobs) * -(-steps // AT_ONCE)
        over = Event()
        with ThreadPoolExecutor(min(len(jobs), os.cpu_count() or 1) or 1) as pool:
            try:
                runs = [pool.submit(cool, *job, lambda: keep_on() and not over.is_set()) for job in jobs]
                found = [run.result() for run in runs]
            except BaseException:
                over.set()  # before the pool waits for its threads
                raise
        return _spreads_first(sorted(found, key=lambda annealed: annealed.seconds))

    def _seeds(self, number: int, way: int, plans: int) -> list[int]:
        """A seed for each plan; a plan's seed does not depend on how many follow, because a time limit may cut them."""
        return np.random.SeedSequence((self.seed, self.turn, number, way)).generate_state(plans).tolist()


def _are_alike(plans: Sequence[AnnealedPlan]) -> bool:
    """Whether the best plans of a round, which cooled independently, take the same seconds."""
    return len(plans) >= ALIKE and plans[ALIKE - 1].seconds <= plans[0].seconds * (1 + SAME)


def _spreads_first(plans: Sequence[AnnealedPlan]) -> list[AnnealedPlan]:
    """The best plan of each spread first, then all other plans; both best first."""
    first = {id(each.options): each for each in reversed(plans) if each.spread}
    return [*(each for each in plans if first.get(id(each.options)) is each),
            *(each for each in plans if first.get(id(each.options)) is not each)]  # fmt: skip


def halving_of(
    devices: DeviceState, relaxation: Relaxation, starts: Sequence[Start], seed: int, *, bound_s: float = 0.0,
    any_widths: bool = True, keep_on: Callable[[], bool] = always,
) -> SuccessiveHalving | None:  # fmt: skip
    """The search; None for a cost model that the compiled code does not support, or without a usable start.

    bound_s: lower bound on the seconds of any plan. any_widths: whether pieces may have widths that no option of the
    problem has. keep_on: asked after the first start whether there is time for another.
    """
    group_loads = devices.compiled_loads
    if group_loads is None or not starts:
        return None
    made = SuccessiveHalving(
        devices, relaxation, group_loads, starts, seed, bound_s=bound_s, any_widths=any_widths, keep_on=keep_on
    )
    return made if made.plans else None


def cool(
    annealed: AnnealedPlan, heat: float, sharpness: tuple[int, int], steps: int, seed: int, keep_on: Callable[[], bool]
) -> AnnealedPlan:  # fmt: skip
    """Cool a plan and return the best plan met, also if `keep_on` ends the cooling early."""
    options = annealed.first or annealed.options
    cooling = Cooling(options.flat, options, annealed.plan, seed)
    for first in range(0, steps, AT_ONCE):
        cooling.go_on(first, min(first + AT_ONCE, steps), steps, (heat, COLD * heat), sharpness)
        if not keep_on():
            break
    return replace(annealed, seconds=cooling.best_s, plan=cooling.best, first=None)
