"""Replanning: from the plan of a running job to one for changed tables, statistics or devices, with few bytes moved.

A fresh plan shows how new tables are best split and placed; all other tables return to their old places. From there,
compiled annealing continues, which makes moves that pay and counts their bytes (planners/annealing/warm_start.py). If
it cannot be used, tables are pinned and freed in rounds (rounds.py).
"""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Unpack

from recsmith._types import noun
from recsmith.clusters import Cluster
from recsmith.errors import NoPlanFound
from recsmith.files import Source
from recsmith.planners import OnImprove, Planner
from recsmith.planners.annealing.warm_start import OriginalPlacements, anneal_warm
from recsmith.planning.changed_problem import ChangedProblem
from recsmith.planning.registry import find_planner
from recsmith.planning.result import Result, SearchArguments, SearchOptions, whole_steps
from recsmith.planning.rounds import Found, Rounds
from recsmith.planning.simulate import load_priced
from recsmith.plans import Plan
from recsmith.problems import Constraints, footprint_of, placements_of
from recsmith.units import format_size
from recsmith.workloads import Workload

MAX_MOVED = "5%"  # default limit of moved bytes, as a share of the weights of the tables that stay
FRESH = 0.5  # share of a time limit for the fresh plan


@noun
class Replanned:
    """A plan for the new problem, and the bytes that the job must move from the old plan.

    moved_bytes: weights of staying tables that devices receive because they did not hold them.
    new_bytes: weights of new tables, which need not be moved.
    staying_bytes: weights of all tables that stay, of which moved_bytes are a share.
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
    **options: Unpack[SearchArguments],
) -> Replanned:
    """A plan for changed tables, statistics or devices that moves only a limited part of the old plan's weights.

    Rank r of the new job holds what rank r of the old one held; ranks beyond the old world size hold nothing.

    Args:
        old: the running plan.
        workload: the new workload; None for that of the old plan.
        cluster: the new cluster; None for that of the old plan.
        max_moved: bytes, a size such as '200GiB', or a share such as '5%' of the weights of the tables that stay.
            Tables that are new, or of another shape, are not moved but created.
        planner: a name, or an object of your own.
        constraints: the new constraints; None for those of the old plan.
        on_improve: called with the seconds of each better plan.
        options: as in SearchOptions; without a cost model or space, those of the old plan.

    Raises:
        UsageError: a name, value or file breaks a rule.
        Infeasible: no plan exists, proved. NoPlanFound: none was found within the limit; the message says how much the
            best attempt moves.
    """
    old = load_priced(old)
    search = SearchOptions(**options)
    changed = ChangedProblem.of(old, workload, cluster, constraints, search)
    return Replanning(changed, find_planner(planner), search, on_improve).within(changed.bytes_of(max_moved))


@dataclass
class Replanning:
    """Plans the new problem of an old plan; `within` plans for one limit of bytes."""

    changed: ChangedProblem
    planner: Planner
    options: SearchOptions
    on_improve: OnImprove | None = None

    def __post_init__(self) -> None:
        """Make `on_improve` receive the seconds of whole steps."""
        problem = self.changed.problem
        self.on_improve = whole_steps(self.on_improve, problem.workload, problem.cluster)

    def within(self, limit: int, start: Replanned | None = None) -> Replanned:
        """The best plan found that moves at most `limit` bytes; never worse than `start`, if that keeps the limit."""
        begun = time.perf_counter()
        before = None if start is None else Found(self.changed.moves(start.result.plan.placements))
        found = self._fresh
        if found is None or found.moves.moved > limit:
            annealed = None if found is None else self._annealed(found, limit, begun)
            found = annealed or self._in_rounds(limit, before)
        best = min((each for each in (before, found) if each), key=lambda each: each.moves.total_s)
        return self._checked(self._replanned(best, time.perf_counter() - begun), limit)

    def _in_rounds(self, limit: int, before: Found | None) -> Found | None:
        """The result of pinning and freeing in rounds; NoPlanFound if there is none and no earlier plan is known."""
        try:
            return Rounds(self.changed, self.planner, self.options, self.on_improve).within(
                limit, before.moves if before else None
            )
        except NoPlanFound:
            if before is None:
                raise
            return None

    @cached_property
    def _fresh(self) -> Found | None:
        """The plan for the new problem as if nothing were placed; None if the planner finds none."""
        changed, budget = self.changed, self.options.budget
        if budget.time_limit_s is not None:
            budget = budget.less(FRESH * budget.time_limit_s)
        try:
            made = self.planner.plan(changed.problem, changed.evaluator, seed=self.options.seed, budget=budget)
        except NoPlanFound:
            return None
        return Found(changed.moves(placements_of(changed.problem, made.footprint)), made.iterations, made.truncated)

    def _annealed(self, fresh: Found, limit: int, begun: float) -> Found | None:
        """The fresh plan with staying tables put back, annealed within the limit; None if that finds no plan."""
        changed = self.changed
        stay = changed.carried.placements
        new = fresh.moves.placements
        returned, anew = (
            footprint_of(changed.problem, each) for each in (tuple(stay.get(p.table, p) for p in new), new)
        )
        originals = OriginalPlacements.of(changed.old, changed.carried.sizes, frozenset(stay), limit)
        ends = begun + (self.options.time_limit_s or float("inf"))
        made = anneal_warm(
            changed.evaluator, returned, anew, originals, self.options.seed, lambda: time.perf_counter() < ends
        )
        if made is None:
            return None
        moves = changed.moves(placements_of(changed.problem, made))
        if changed.broken(moves.placements):
            return None
        if self.on_improve is not None:
            self.on_improve(moves.total_s)
        return Found(moves, fresh.iterations + 1, fresh.truncated or time.perf_counter() >= ends)

    def _replanned(self, found: Found, elapsed_s: float) -> Replanned:
        plan = self.changed.plan_of(found.moves, self.planner.name)
        return Replanned(
            result=Result(plan=plan, elapsed_s=elapsed_s, iterations=found.iterations, truncated=found.truncated),
            moved_bytes=found.moves.moved,
            new_bytes=found.moves.new,
            staying_bytes=self.changed.staying_bytes,
            slowest_receives_bytes=int(found.moves.devices.max()),
        )

    def _checked(self, best: Replanned, limit: int) -> Replanned:
        """The plan itself, if it keeps the limit and the constraints; else NoPlanFound."""
        broken = self.changed.broken(best.result.plan.placements)
        if broken:
            raise NoPlanFound(f"only a plan was found that breaks a constraint: {broken}; allow more with --max-moved")
        if best.moved_bytes <= limit:
            return best
        raise NoPlanFound(
            f"no plan was found that moves at most {format_size(limit)}; the least that was found moves "
            f"{format_size(best.moved_bytes)}; allow that with --max-moved"
        )
