"""What of an old plan can stay as it is under another workload or cluster.

Legend: N pieces, F phases.
"""

import random
from dataclasses import dataclass

import numpy as np

from recsmith.costs import Evaluator
from recsmith.errors import PlanMismatch, UsageError
from recsmith.plans import Placement, Plan
from recsmith.plans.diff import is_same_table
from recsmith.problems import Problem, in_space
from recsmith.workloads import Table

DRAWN = 1  # orders of tables by chance, where others made no room


@dataclass(frozen=True)
class Carried:
    """Tables of the old plan that the new problem still has.

    sizes: bytes of weights of those whose weights can be carried over, by name. placements: of those whose old
    placement is also legal in the new problem, by name. seconds: what those placements cost all devices, by name.
    """

    sizes: dict[str, int]
    placements: dict[str, Placement]
    seconds: dict[str, float]

    def by_worth(self) -> list[str]:
        """Names of placed tables, those first whose seconds a byte are highest: freeing them costs least."""
        return sorted(self.placements, key=lambda name: (-self.seconds[name] / max(self.sizes[name], 1), name))

    def other_orders(self) -> list[list[str]]:
        """Orders that make room where memory is short: the largest tables first, and some by chance."""
        names = sorted(self.placements)
        drawn = [random.Random(seed).sample(names, len(names)) for seed in range(DRAWN)]
        return [sorted(names, key=lambda name: (-self.sizes[name], name)), *drawn]


def carry_over(old: Plan, evaluator: Evaluator) -> Carried:
    """What of the old plan the evaluator's problem can keep."""
    problem = evaluator.problem
    before = {table.name: table for table in old.workload.tables}
    after = {table.name: table for table in problem.tables}
    same = {name for name in before.keys() & after.keys() if is_same_table(before[name], after[name])}
    placed = [each for each in old.placements if each.table in same and _is_legal(each, after[each.table], problem)]
    return Carried(
        sizes={name: after[name].weight_bytes for name in sorted(same)},
        placements={each.table: each for each in placed},
        seconds=_seconds_of(placed, evaluator),
    )


def _is_legal(placement: Placement, table: Table, problem: Problem) -> bool:
    """Whether the table can be placed so on the new cluster, in its space and under its rules."""
    try:
        placement.kind.check(table, placement.ranks, placement.widths_of(table.embedding_dim), problem.cluster)
        return in_space(problem, (placement,))
    except (PlanMismatch, UsageError):
        return False


def _seconds_of(placements: list[Placement], evaluator: Evaluator) -> dict[str, float]:
    """Seconds that each placement's pieces take, each alone on its device, summed over devices."""
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
