"""Prices of plans that are changed by hand: an evaluator kept in memory prices each change in a few milliseconds.

A move changes the target of one piece; its mode and width, and thus its work terms, stay the same.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from recsmith.analyses.placed_costs import PlacedCosts
from recsmith.bounds import first_bound, lower_bound
from recsmith.costs import Evaluator, price
from recsmith.costs import cost_model as find_cost_model
from recsmith.errors import UsageError
from recsmith.files import did_you_mean
from recsmith.planning.result import assemble_plan
from recsmith.planning.simulate import GIVEN
from recsmith.plans import Bound, Placement, Plan, StepCost
from recsmith.plans.check import check_placement
from recsmith.problems import (
    Problem,
    broken_constraint,
    build_problem,
    constraints_from_raw,
    fits,
    footprint_of,
    in_space,
    problem_holding,
)
from recsmith.sharding import Span
from recsmith.units import counted
from recsmith.web.serving.asked import changed
from recsmith.web.serving.edits import PieceMove, ProblemChanges

BenchKey = tuple[str, str, str, ProblemChanges | None]
PAST_BOUND = 1e-9  # relative rounding error by which a plan may be below its bound


@dataclass(frozen=True)
class HandPrice:
    """What a changed plan costs. broken: broken rules, in sentences. placements: after the moves, by table name."""

    cost: StepCost
    bound: Bound
    gap: float | None
    broken: tuple[str, ...]
    placements: tuple[Placement, ...]


class Bench:
    """A plan on its own or a changed problem, with all that is needed to price it again."""

    def __init__(self, plan: Plan, changes: ProblemChanges | None) -> None:
        workload, cluster = changed(plan.workload, plan.cluster, changes)
        if cluster.world_size != plan.cluster.world_size or cluster.hosts != plan.cluster.hosts:
            raise UsageError(
                f"the plan is for {counted(plan.cluster.world_size, 'device')}, not {cluster.world_size}; its shards "
                "have no place on other devices: plan again"
            )
        self.plan = plan
        self.problem: Problem = build_problem(workload, cluster, *constraints_from_raw(plan.constraints, "plan"))
        self.wider = problem_holding(self.problem, plan.placements)
        model = find_cost_model(plan.cost_model)
        self.evaluator: Evaluator = model.compile(self.problem)
        self.pricing = self.evaluator if self.wider is self.problem else model.compile(self.wider)
        self.is_plans_own = workload == plan.workload and cluster == plan.cluster
        self.bound = plan.bound if self.is_plans_own else first_bound(self.evaluator).bound
        self.tables = {table.name: table for table in workload.tables}
        self.placed = {placement.table: placement for placement in plan.placements}
        self.footprint = footprint_of(self.wider, plan.placements)
        table = self.wider.modes.table[self.footprint.mode]
        self.first = {each.name: int(np.searchsorted(table, t)) for t, each in enumerate(self.wider.tables)}
        self.is_in_space = in_space(self.problem, plan.placements)

    def price(self, moves: tuple[PieceMove, ...]) -> HandPrice:
        """The cost of the plan after the moves; UsageError or PlanMismatch if a move cannot be run."""
        placed, target = dict(self.placed), self.footprint.target.copy()
        for move in moves:
            self._check_table(move)
            placed[move.table] = moved = self._moved(placed[move.table], move)
            target[self.first[move.table] + move.piece] = moved.kind.targets(moved.ranks, self.problem.cluster)[
                move.piece
            ]
        placements = tuple(placed.values())  # in order of names, as in the plan
        footprint = replace(self.footprint, target=target)
        cost = price(self.pricing, footprint)
        broken = tuple(self._broken(cost, placements, has_room=fits(self.wider, footprint)))
        gap = None if broken or self._is_below_bound(cost) else self.bound.gap(cost.total_s)
        return HandPrice(cost, self.bound, gap, broken, placements)

    def _check_table(self, move: PieceMove) -> None:
        if move.table not in self.placed:
            raise UsageError(f"no table is called '{move.table[:60]}'{did_you_mean(move.table, list(self.placed))}")

    def _moved(self, placement: Placement, move: PieceMove) -> Placement:
        cluster, kind = self.problem.cluster, placement.kind
        targets = list(kind.targets(placement.ranks, cluster))
        if kind.span == Span.WORLD:
            raise UsageError(f"table '{move.table}' is {kind.name}: it lies on every device, and cannot be moved")
        if not 0 <= move.piece < len(targets):
            raise UsageError(f"table '{move.table}' has {counted(len(targets), 'piece')}; piece {move.piece} is none")
        if not 0 <= move.rank < cluster.world_size:
            raise UsageError(f"rank {move.rank} is not one of the cluster's 0 .. {cluster.world_size - 1}")
        targets[move.piece] = move.rank // kind.coverage(cluster)
        moved = replace(placement, ranks=kind.ranks(targets, cluster))
        check_placement(moved, self.tables[move.table], cluster)
        return moved

    def _broken(self, cost: StepCost, placements: tuple[Placement, ...], *, has_room: bool) -> Iterator[str]:
        if cost.overfull:
            ranks = ", ".join(str(device.rank) for device in cost.overfull[:8])
            yield f"rank {ranks} needs more memory than there is"
        elif not has_room:
            yield "a host needs more memory than there is"
        problem = self.problem
        asked_anew = problem.legality.any  # otherwise legality does not depend on ranks, all that a move changes
        broken = broken_constraint(problem.constraints, placements, problem.tables, problem.cluster)
        if broken:
            yield broken
        elif not (in_space(self.problem, placements) if asked_anew else self.is_in_space):
            yield "a table lies outside of the space that was searched"

    def _is_below_bound(self, cost: StepCost) -> bool:
        return self.bound.value_s is not None and cost.total_s < self.bound.value_s * (1 - PAST_BOUND)

    def seconds_of_tables(self) -> dict[str, float]:
        """Table name -> by how many seconds the device that spends most on it would be faster without it."""
        placed = PlacedCosts(self.pricing, self.footprint)
        saved = placed.most_saved.tolist()
        return {
            table.name: float(value) if np.isfinite(value) else 0.0
            for table, value in zip(self.wider.tables, saved, strict=True)
        }

    def plan_of(self, found: HandPrice) -> Plan:
        """The priced plan, which can be kept and downloaded; its bound takes a second of work, as in `simulate`."""
        bound = self.bound if self.is_plans_own else lower_bound(self.evaluator).bound
        gap = None if found.gap is None else bound.gap(found.cost.total_s)
        return assemble_plan(
            self.problem, found.placements, found.cost, planner=GIVEN, cost_model=self.plan.cost_model,
            bound=bound, gap=gap, evaluator=self.evaluator,
        )  # fmt: skip


class Benches:
    """The benches used last, by the ids of their plans; thread-safe."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.warm: OrderedDict[BenchKey, Bench] = OrderedDict()
        self.lock = threading.Lock()

    def of(self, key: str, plan: Plan, changes: ProblemChanges | None) -> Bench:
        """The bench of a plan; it is made if it is not in memory."""
        whole = (key, plan.digest, plan.cost_model, changes)  # with the digest, because the file of an id may change
        found = self._at_hand(whole)
        return found if found is not None else self._keep(whole, Bench(plan, changes))

    def _at_hand(self, key: BenchKey) -> Bench | None:
        with self.lock:
            if key in self.warm:
                self.warm.move_to_end(key)
            return self.warm.get(key)

    def _keep(self, key: BenchKey, bench: Bench) -> Bench:
        with self.lock:
            self.warm[key] = bench
            while len(self.warm) > self.most:
                self.warm.popitem(last=False)
        return bench
