"""From the plan of a running job to one for changed tables, statistics or devices, without moving much.

Tables whose bytes together stay within what may move are planned anew; all others are pinned to where they are. Bytes
are very unequal: most tables are small, so a small share of the bytes frees most of the tables (freeing.py says which).
What a round did not move is left for the next, which frees other tables.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

from recsmith._types import noun
from recsmith.bounds import first_bound
from recsmith.clusters import Cluster
from recsmith.costs import Evaluator
from recsmith.errors import Infeasible, NoPlanFound
from recsmith.files import Source
from recsmith.planners import OnImprove, Planner, Solution
from recsmith.planners.annealing.warm import anneal_warm
from recsmith.planners.protocol import Search
from recsmith.planning.changed_problem import ChangedProblem, Moves
from recsmith.planning.freeing import Freed, free_tables
from recsmith.planning.options import SearchOptions, SearchWords
from recsmith.planning.registry import find_planner
from recsmith.planning.result import Result
from recsmith.plans import Plan, load_plan
from recsmith.problems import Constraints, footprint_of, placements_of
from recsmith.units import format_size
from recsmith.workloads import Workload

ROUNDS = 4  # the first moves what must move, the others free tables; trade-off: more find more, each takes seconds
MOSTLY = 0.5  # of the weights that stay: where as much is free, the planner plans as if nothing were placed
WORTH = 1e-3  # of the step's seconds: a round that gains less is the last
FAR = 0.05  # above the bound: from there a first plan with other tables freed is worth its time
MAX_MOVED = "5%"  # of the weights of the tables that stay: what may move if nothing is said


@noun
class Replanned:
    """A plan for the new problem, and what the job must move to get there from the old one.

    moved_bytes: weights of tables that stay which a device receives that did not hold them. new_bytes: weights of new
    tables, which nobody has to move. staying_bytes: weights of all tables that stay, of which moved_bytes are a share.
    slowest_receives_bytes: the most that one device receives of moved_bytes.
    """

    result: Result
    moved_bytes: int
    new_bytes: int
    staying_bytes: int
    slowest_receives_bytes: int


def replan(
    old: Plan | Source,
    workload: Workload | Source | None = None,
    cluster: Cluster | Source | None = None,
    *,
    max_moved: int | str = MAX_MOVED,
    planner: str | Planner = "auto",
    constraints: Constraints | Source | None = None,
    on_improve: OnImprove | None = None,
    **words: Unpack[SearchWords],
) -> Replanned:
    """A plan for changed tables, statistics or devices that moves at most so much of the weights of the old plan.

    old: the plan that runs. workload, cluster: what holds from now on; the old plan's where nothing is said.
    max_moved: bytes, a size such as '200GiB', or a share such as '5%' of the weights of the tables that stay. Tables
    that are new, or of another shape, are not moved but made.

    Rank r of the new job has what rank r of the old one had; ranks beyond the old world have nothing.

    Raises:
        UsageError: a name, value or file breaks a rule.
        Infeasible: no plan exists, proved. NoPlanFound: none was found that moves so little; the message says how much
            the least that was found moves.
    """
    old = load_plan(old)
    options = SearchOptions(**words)
    changed = ChangedProblem.of(old, workload, cluster, constraints, options)
    return Replanning(changed, find_planner(planner), options, on_improve).within(changed.bytes_of(max_moved))


@dataclass(frozen=True)
class Replanning:
    """How the problem of an old plan is planned. `within` plans for one limit of bytes."""

    changed: ChangedProblem
    planner: Planner
    options: SearchOptions
    on_improve: OnImprove | None = None

    def within(self, limit: int, start: Replanned | None = None) -> Replanned:
        """The best plan found that moves at most `limit` bytes; never worse than `start`, if that moves as little."""
        begun = time.perf_counter()
        best = (
            self._first(limit, begun) if start is None else _Round(self.changed.moves(start.result.plan.placements), 1)
        )
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
        return self._checked(self._replanned(best, time.perf_counter() - begun), limit)

    def _first(self, limit: int, begun: float) -> "_Round":
        """A plan that moves only what must move; where that is far from the bound or has no room, others are freed."""
        carried = self.changed.carried
        must = {name: size for name, size in carried.sizes.items() if name not in carried.placements}
        found: list[_Round] = []
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

    def _is_far(self, found: "_Round") -> bool:
        """Whether a plan is far above the bound of the problem without pins."""
        bound_s = first_bound(self.changed.evaluator).bound.value_s
        return bound_s is not None and found.moves.total_s > (1 + FAR) * bound_s and not found.truncated

    def _freed(self, limit: int, moved: dict[str, int], tried: frozenset[str], order: Sequence[str]) -> Freed:
        """Which tables the next round may move."""
        return free_tables(self.changed.carried, moved, limit, tried, self.changed.problem.cluster.world_size, order)

    def _round(self, freed: Freed, best: "_Round | None", begun: float) -> "_Round":
        """Plan with all tables that stay pinned, but for the free ones."""
        carried = self.changed.carried
        now = carried.placements if best is None else {each.table: each for each in best.moves.placements}
        limits = freed.constraints(
            self.changed.constraints, [now[name] for name in sorted(carried.sizes) if name in now]
        )
        try:
            evaluator = self.changed.pinned(limits)
            solution = self._solution(evaluator, best, begun, freed)
        except (Infeasible, NoPlanFound) as error:
            raise NoPlanFound(f"no plan was found that moves so little: {error}; allow more with --max-moved") from None
        moves = self.changed.moves(placements_of(evaluator.problem, solution.footprint))
        number, iterations = (0, 0) if best is None else (best.number, best.iterations)
        return _Round(moves, number + 1, iterations + solution.iterations, solution.truncated)

    def _solution(self, evaluator: Evaluator, best: "_Round | None", begun: float, freed: Freed) -> Solution:
        """A plan annealed from the best so far; made by the planner where there is none, or a poor one, or few pins."""
        start = None if best is None else footprint_of(evaluator.problem, best.moves.placements)
        budget = self.options.budget.less(time.perf_counter() - begun)
        search = Search(evaluator, budget, start, self.on_improve)
        mostly_pinned = freed.share(self.changed.carried) < MOSTLY
        if best is not None and start is not None and mostly_pinned and not self._is_far(best):
            with search.interruptible():
                found = anneal_warm(evaluator, start, self.options.seed + best.number, lambda: not search.stop)
                if found is not None:
                    search.try_(found[1])
                    return search.found(self.planner.name)
        return self.planner.plan(
            evaluator.problem, evaluator, seed=self.options.seed, budget=budget, start=start, on_improve=self.on_improve
        )

    def _replanned(self, found: "_Round", elapsed_s: float) -> Replanned:
        plan = self.changed.plan_of(found.moves, self.planner.name)
        return Replanned(
            result=Result(plan=plan, elapsed_s=elapsed_s, iterations=found.iterations, truncated=found.truncated),
            moved_bytes=int(found.moves.devices.sum()),
            new_bytes=found.moves.new,
            staying_bytes=self.changed.staying_bytes,
            slowest_receives_bytes=int(found.moves.devices.max()),
        )

    def _checked(self, best: Replanned, limit: int) -> Replanned:
        """The plan itself, if it keeps the limit."""
        if best.moved_bytes <= limit:
            return best
        raise NoPlanFound(
            f"no plan was found that moves at most {format_size(limit)}; the least that was found moves "
            f"{format_size(best.moved_bytes)}; allow that with --max-moved"
        )


@dataclass(frozen=True)
class _Round:
    """What the rounds so far found; iterations are of all of them."""

    moves: Moves
    number: int = 0
    iterations: int = 0
    truncated: bool = False
