"""Planning anew in rounds of pins, where annealing cannot count what moves (warm.py): any cost model, any constraint.

Tables whose bytes together stay within what may move are planned anew; all others are pinned to where they are. Bytes
are very unequal: most tables are small, so a small share of the bytes frees most of the tables (freeing.py says which).
What a round did not move is left for the next, which frees other tables.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from recsmith.bounds import first_bound
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.planners import OnImprove, Planner
from recsmith.planning.changed_problem import ChangedProblem, Moves
from recsmith.planning.freeing import Freed, free_tables
from recsmith.planning.options import SearchOptions
from recsmith.problems import footprint_of, placements_of

ROUNDS = 4  # the first moves what must move, the others free tables; trade-off: more find more, each takes seconds
WORTH = 1e-3  # of the step's seconds: a round that gains less is the last
FAR = 0.05  # above the bound: from there a first plan with other tables freed is worth its time


@dataclass(frozen=True)
class Found:
    """Placements with what they move, and how they were found; iterations are of all searches so far."""

    moves: Moves
    iterations: int = 0
    truncated: bool = False
    number: int = 0


@dataclass(frozen=True)
class Rounds:
    """How the problem of an old plan is planned by pins."""

    changed: ChangedProblem
    planner: Planner
    options: SearchOptions
    on_improve: OnImprove | None = None

    def within(self, limit: int, start: Moves | None = None) -> Found:
        """The best plan of some rounds; NoPlanFound where there is none. It may move more, where tables must move."""
        begun = time.perf_counter()
        best = self._first(limit, begun) if start is None else Found(start, number=1)
        tried: frozenset[str] = frozenset()
        while best.number < ROUNDS and not best.truncated:
            freed = self._freed(limit, best.moves.tables, tried, self.changed.carried.by_worth())
            if not freed.names - tried:
                break
            tried |= freed.names
            found = self._round(freed, best, begun)
            gained = found.moves.total_s < (1 - WORTH) * best.moves.total_s
            best = found
            if not gained and best.number > 2:
                break
        return best

    def _first(self, limit: int, begun: float) -> Found:
        """A plan that moves only what must move; where that is far from the bound or has no room, others are freed."""
        carried = self.changed.carried
        must = {name: size for name, size in carried.sizes.items() if name not in carried.placements}
        found: list[Found] = []
        reason = NoPlanFound("no round was made")
        for order in ((), carried.by_worth(), *carried.other_orders()):
            if found and (len(found) > 1 or not self._is_far(found[0])):
                break
            try:
                found.append(self._round(self._freed(limit, must, frozenset(), order), None, begun))
            except NoPlanFound as error:
                reason = error
        if not found:
            raise reason
        return min(found, key=lambda each: each.moves.total_s)

    def _is_far(self, found: Found) -> bool:
        """Whether a plan is far above the bound of the problem without pins."""
        bound_s = first_bound(self.changed.evaluator).bound.value_s
        return bound_s is not None and found.moves.total_s > (1 + FAR) * bound_s and not found.truncated

    def _freed(self, limit: int, moved: dict[str, int], tried: frozenset[str], order: Sequence[str]) -> Freed:
        """Which tables the next round may move."""
        return free_tables(self.changed.carried, moved, limit, tried, self.changed.problem.cluster.world_size, order)

    def _round(self, freed: Freed, best: Found | None, begun: float) -> Found:
        """Plan with all tables that stay pinned, but for the free ones."""
        carried = self.changed.carried
        now = carried.placements if best is None else {each.table: each for each in best.moves.placements}
        limits = freed.constraints(
            self.changed.constraints, [now[name] for name in sorted(carried.sizes) if name in now]
        )
        try:
            evaluator = self.changed.pinned(limits)
            solution = self.planner.plan(
                evaluator.problem, evaluator, seed=self.options.seed,
                budget=self.options.budget.less(time.perf_counter() - begun),
                start=None if best is None else footprint_of(evaluator.problem, best.moves.placements),
                on_improve=self.on_improve,
            )  # fmt: skip
        except (Infeasible, NoPlanFound) as error:
            raise NoPlanFound(f"no plan was found that moves so little: {error}; allow more with --max-moved") from None
        moves = self.changed.moves(placements_of(evaluator.problem, solution.footprint))
        number, iterations = (0, 0) if best is None else (best.number, best.iterations)
        return Found(moves, iterations + solution.iterations, solution.truncated, number + 1)
