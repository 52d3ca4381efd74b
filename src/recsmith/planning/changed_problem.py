"""The new problem of an old plan: which placements can stay, and what new placements cost and move.

The problem is new because the workload, the cluster or the constraints changed.

Legend: N pieces, F phases.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from recsmith import problems
from recsmith._types import Ints
from recsmith.bounds import lower_bound
from recsmith.clusters import Cluster, load_cluster
from recsmith.costs import CostModel, Evaluator, price
from recsmith.costs import cost_model as find_cost_model
from recsmith.errors import PlanMismatch, UsageError
from recsmith.files import Source
from recsmith.planning.feasibility import check_feasible
from recsmith.planning.result import SearchOptions, assemble_plan
from recsmith.plans import Placement, Plan
from recsmith.plans.diff import is_same_table, moved_bytes, with_columns_kept
from recsmith.problems import Constraints, Problem
from recsmith.problems.constraints import members
from recsmith.problems.plain_reserve import estimated_anew
from recsmith.problems.stashing import with_stash
from recsmith.units import parse_size
from recsmith.workloads import Table, Workload, load_workload

DRAWN = 1  # random orders of tables, used if others made no room


@dataclass(frozen=True)
class Moves:
    """Placements in the new problem, with columns kept where possible: seconds of the step, and bytes to move.

    tables: bytes that each staying table moves.
    devices (W,): bytes of staying tables that each device receives.
    new: bytes of tables that are created.
    """

    placements: tuple[Placement, ...]
    total_s: float
    tables: dict[str, int]
    devices: Ints
    new: int

    @property
    def moved(self) -> int:
        """Bytes of staying tables that all devices receive."""
        return int(self.devices.sum())


@dataclass(frozen=True)
class ChangedProblem:
    """The new problem of an old plan. evaluator: for it, without pins. carried: the parts of the plan that can stay."""

    old: Plan
    evaluator: Evaluator
    model: CostModel
    carried: "Carried"
    constraints: Constraints

    @classmethod
    def of(
        cls,
        old: Plan,
        workload: Workload | Source | None,
        cluster: Cluster | Source | None,
        constraints: Constraints | Source | None,
        options: SearchOptions,
    ) -> "ChangedProblem":
        """Read names and files, and find out what can stay; Infeasible if the new problem has no plan.

        Arguments that are None are taken from the old plan.
        """
        new_workload = old.workload if workload is None else load_workload(workload)
        new_cluster = old.cluster if cluster is None else load_cluster(cluster)
        new_cluster = estimated_anew(new_cluster, old.workload, new_workload)
        space, limits = problems.constraints_from_raw(old.constraints, "the old plan")
        space = space if options.space is None else options.space
        names = [table.name for table in new_workload.tables]
        limits = _for_other_tables(limits, names) if constraints is None else _given(constraints, limits)
        model = find_cost_model(options.cost_model or old.cost_model)
        evaluator = model.compile(problems.build_problem(new_workload, new_cluster, space, limits))
        check_feasible(evaluator, model)
        return cls(old, evaluator, model, carry_over(old, evaluator), limits)

    @property
    def problem(self) -> Problem:
        """The new problem."""
        return self.evaluator.problem

    @cached_property
    def pinned_tables(self) -> set[str]:
        """The names of tables that constraints pin."""
        return {self.problem.tables[t].name for t, rule in self.problem.legality.splits.items() if rule.pin}

    def broken(self, placements: Sequence[Placement]) -> str | None:
        """The first constraint that placements break, as a sentence; None if they keep all."""
        problem = self.problem
        return problems.broken_constraint(problem.constraints, placements, problem.tables, problem.cluster)

    @property
    def staying_bytes(self) -> int:
        """Bytes of weights of all tables that the old plan has, too."""
        return sum(self.carried.sizes.values())

    def bytes_of(self, limit: int | str) -> int:
        """Bytes of a limit on moved bytes; UsageError if it is neither a size nor a share."""
        if isinstance(limit, int):
            size = limit
        elif not isinstance(limit, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"{limit} is no limit; give bytes as a whole number, or a text such as '5%' or '200GiB'")
        elif limit.strip().endswith("%"):
            size = round(self.staying_bytes * _share(limit))
        else:
            size = parse_size(limit)
        if size < 0:
            raise UsageError(f"at most {limit} may move; the limit must be at least 0")
        return size

    def pinned(self, constraints: Constraints) -> Evaluator:
        """An evaluator for the same problem under other constraints."""
        problem = self.problem
        return self.model.compile(problems.build_problem(problem.workload, problem.cluster, problem.space, constraints))

    def moves(self, placements: Sequence[Placement]) -> Moves:
        """The cost of placements, and the bytes that must move to reach them."""
        old = {each.table: each for each in self.old.placements}
        dims = {table.name: table.embedding_dim for table in self.problem.tables}
        stay = self.carried.sizes.keys()
        free = stay - self.pinned_tables  # the columns of these tables may be in any order
        kept = tuple(
            with_columns_kept(each, old[each.table], dims[each.table]) if each.table in free else each
            for each in placements
        )
        received = moved_bytes(self.old, kept, self.problem.workload, self.problem.cluster)
        devices = np.zeros(self.problem.cluster.world_size, dtype=np.int64)
        for name in stay:
            for rank, size in received[name]:
                devices[rank] += size
        everything = sum(size for shards in received.values() for _, size in shards)
        return Moves(
            placements=kept,
            total_s=price(self.evaluator, problems.footprint_of(self.problem, kept)).total_s,
            tables={name: sum(size for _, size in received[name]) for name in stay},
            devices=devices,
            new=everything - int(devices.sum()),
        )

    def plan_of(self, moves: Moves, planner: str) -> Plan:
        """The plan of these placements, with the bound of the problem without pins."""
        footprint = problems.footprint_of(self.problem, moves.placements)
        cost, bound = price(self.evaluator, footprint), lower_bound(self.evaluator).bound
        placements = with_stash(self.problem, tuple(moves.placements), footprint)
        return assemble_plan(
            self.problem, placements, cost, planner=planner, cost_model=self.model.name, bound=bound,
            gap=bound.gap(cost.total_s), evaluator=self.evaluator,
        )  # fmt: skip


def _for_other_tables(constraints: Constraints, tables: list[str]) -> Constraints:
    """The old plan's constraints, without patterns and rules that match only tables that are gone."""

    def known(patterns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(pattern for pattern in patterns if members((pattern,), tables))

    return replace(
        constraints,
        rules=tuple(rule for rule in constraints.rules if known(rule.patterns)),
        together=tuple(replace(each, tables=known(each.tables)) for each in constraints.together if known(each.tables)),
        apart=tuple(replace(each, tables=known(each.tables)) for each in constraints.apart if known(each.tables)),
        per_rank=tuple(replace(each, tables=known(each.tables)) for each in constraints.per_rank if known(each.tables)),
    )


def _given(constraints: Constraints | Source, old: Constraints) -> Constraints:
    """The given constraints; what a file cannot state is the old plan's: memory accounting, exactness, stashing."""
    if isinstance(constraints, Constraints):
        return constraints
    given = problems.load_constraints(constraints)
    return replace(given, memory=old.memory, keep_exact=old.keep_exact, stash=old.stash)


def _share(text: str) -> float:
    """A share such as 5% as a number; UsageError if the text is none."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        raise UsageError(f"'{text}' is no share; write for example 5%, or a size such as 200GiB") from None
    if not 0 <= share <= 1:
        raise UsageError(f"'{text}' is no share of what can move; shares are from 0% to 100%")
    return share


# --- what can stay ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    """Tables of the old plan that the new problem still has.

    sizes: bytes of weights of tables whose weights can be kept, by name.
    placements: old placements that are also legal in the new problem, by table name.
    seconds: seconds of these placements over all devices, by table name.
    """

    sizes: dict[str, int]
    placements: dict[str, Placement]
    seconds: dict[str, float]

    def by_worth(self) -> list[str]:
        """Names of placed tables by seconds per byte, highest first: freeing these gains most for the bytes moved."""
        return sorted(self.placements, key=lambda name: (-self.seconds[name] / max(self.sizes[name], 1), name))

    def other_orders(self) -> list[list[str]]:
        """Orders for cases in which memory is short: the largest tables first, and random orders."""
        names = sorted(self.placements)
        drawn = [random.Random(seed).sample(names, len(names)) for seed in range(DRAWN)]
        return [sorted(names, key=lambda name: (-self.sizes[name], name)), *drawn]


def carry_over(old: Plan, evaluator: Evaluator) -> Carried:
    """The parts of the old plan that the evaluator's problem can keep."""
    problem = evaluator.problem
    before = {table.name: table for table in old.workload.tables}
    after = {table.name: table for table in problem.tables}
    same = {name for name in before.keys() & after.keys() if is_same_table(before[name], after[name])}
    space = problems.PlannedSpace(problem)
    placed = [each for each in old.placements
              if each.table in same and _is_legal(each, after[each.table], problem.cluster, space)]  # fmt: skip
    return Carried(
        sizes={name: after[name].weight_bytes for name in sorted(same)},
        placements={each.table: each for each in placed},
        seconds=_seconds_of(placed, evaluator),
    )


def _is_legal(placement: Placement, table: Table, cluster: Cluster, space: problems.PlannedSpace) -> bool:
    """Whether this placement of the table is legal on the new cluster, in its space and under its rules."""
    try:
        placement.kind.check(table, placement.ranks, placement.widths_of(table.embedding_dim), cluster)
        return space.holds((placement,))
    except (PlanMismatch, UsageError):
        return False


def _seconds_of(placements: list[Placement], evaluator: Evaluator) -> dict[str, float]:
    """Seconds of each placement's pieces, each alone on its device, summed over devices."""
    problem = evaluator.problem
    index = {table.name: t for t, table in enumerate(problem.tables)}
    rows: list[tuple[int, int, int]] = []
    for i, each in enumerate(placements):
        t = index[each.table]
        mode = problem.find_mode(t, each.sharding_type, each.compute_kernel, each.load_factor)
        rows += [(i, mode or 0, width) for width in each.widths_of(problem.tables[t].embedding_dim)]
    if not rows:
        return {}
    owner, modes, widths = np.array(rows, dtype=np.int64).T
    alone = evaluator.loads(evaluator.terms(modes, widths)).sum(axis=0) * problem.modes.coverage[modes]
    total = np.bincount(owner, alone, minlength=len(placements)).tolist()
    return {each.table: seconds for each, seconds in zip(placements, total, strict=True)}
