"""Replans in rounds of pins, if annealing cannot count the moved bytes; works for any cost model and constraint.

Tables whose bytes together are within the limit are planned anew; all others are pinned to their old places. Bytes are
very unequal: most tables are small, so a small share of the bytes frees most of the tables. Bytes that a round did not
move are left for the next round, which frees other tables.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import escape

from recsmith.bounds import first_bound
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.planners import OnImprove, Planner
from recsmith.planning.changed_problem import Carried, ChangedProblem, Moves
from recsmith.planning.result import SearchOptions
from recsmith.plans import Placement
from recsmith.problems import Constraints, Pin, TableRule, footprint_of, placements_of
from recsmith.sharding import TYPE_NAMES

ROUNDS = 4  # the first moves what must move, the others free tables; trade-off: more find more, each takes seconds
WORTH = 1e-3  # share of the step's seconds: a round that gains less is the last
FAR = 0.05  # relative gap to the bound from which another first plan, with other tables freed, is worth its time
COPIES = "data_parallel"
COPIED = 0.1  # share of the limit for tables that become data_parallel, which all devices receive
# share of the limit for the copies of one table; trade-off: larger ones leave less to other tables
LARGEST_COPIES = 0.01
UNCOPIED = tuple(name for name in TYPE_NAMES if name != COPIES)


@dataclass(frozen=True)
class Found:
    """Placements with the bytes that they move, and how they were found; iterations are of all searches so far."""

    moves: Moves
    iterations: int = 0
    truncated: bool = False
    number: int = 0


@dataclass(frozen=True)
class Rounds:
    """Plans the new problem of an old plan by pins, in rounds."""

    changed: ChangedProblem
    planner: Planner
    options: SearchOptions
    on_improve: OnImprove | None = None

    def within(self, limit: int, start: Moves | None = None) -> Found:
        """The best plan of some rounds; NoPlanFound if there is none. It may exceed the limit if tables must move."""
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
        """A plan that moves only what must move; if it is far from the bound or finds no room, others are freed."""
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

    def _freed(self, limit: int, moved: dict[str, int], tried: frozenset[str], order: Sequence[str]) -> "Freed":
        """The tables that the next round may move."""
        return free_tables(self.changed.carried, moved, limit, tried, self.changed.problem.cluster.world_size, order)

    def _round(self, freed: "Freed", best: Found | None, begun: float) -> Found:
        """Plan with all staying tables pinned, except the freed ones."""
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


# --- which tables may move --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Freed:
    """Tables that a round may place anew. names: all of them. copied: those that may also become data_parallel."""

    names: frozenset[str]
    copied: frozenset[str]

    def share(self, carried: Carried) -> float:
        """The share of freed tables in the weights of all tables that stay."""
        return sum(carried.sizes[name] for name in self.names) / max(sum(carried.sizes.values()), 1)

    def constraints(self, given: Constraints, placements: Sequence[Placement]) -> Constraints:
        """The given constraints plus pins of these placements, except for freed tables."""
        pins = (
            TableRule(tables=escape(each.table), pin=Pin.of(each))
            for each in placements
            if each.table not in self.names
        )
        split = (
            TableRule(tables=escape(each.table), sharding_types=UNCOPIED)
            for each in placements
            if each.table in self.names - self.copied and each.sharding_type != COPIES
        )
        return replace(given, rules=(*given.rules, *pins, *split))


def free_tables(
    carried: Carried, moved: dict[str, int], limit: int, tried: frozenset[str], world: int, order: Sequence[str]
) -> "Freed":
    """Tables whose bytes are within the limit, together with what other tables have moved; untried ones first.

    Any placement moves a table's bytes at most once, except copies on all `world` devices. moved: bytes that each table
    moves in its current placement. order: the tables that may be freed. Tables without a placement are always free.
    """
    left = limit - sum(moved.values())
    names, copied = set[str](), set[str]()
    for group in ([name for name in order if name not in tried], [name for name in order if name in tried]):
        for_copies = min(COPIED * limit, left)
        for name in group:
            copies = carried.sizes[name] * (world - 1)
            if copies <= min(LARGEST_COPIES * limit, for_copies):
                copied.add(name)
                for_copies -= copies
                left -= copies
        for name in group:
            more = 0 if name in copied else carried.sizes[name] - moved.get(name, 0)
            if more <= left:
                names.add(name)
                left -= more
    return Freed(frozenset(names), frozenset(copied))
