"""SurCo-zero (Ferber et al., ICML 2023) on any cost model: linear costs, learned for one problem alone.

The step is no linear function of who holds what, and a solver of linear problems cannot minimise it. It can minimise a
stand-in: costs c of item i on device d, whose cheapest assignment within memory (solver/linear_assignment.py) is the
plan. c is learned: solve, see by how much each single placement lengthens the step, and move c there; again.

    surco                 200 steps
    surco?steps=50        fewer

**The gradient** of the step by each placement is that of its multilinear extension: the step with item i on device d
less the step without it, all else as it is. It is exact, and asks a cost model for nothing but loads. The step's maxima
over devices are norms of power SHARPNESS, or only the slowest device would count.

**Through the solver** it goes as if the solver's derivative were minus the identity: a placement that lengthens the
step becomes dearer. Besides, costs decay: c <- (1 - RATE) c + RATE gradient.

Differences from the paper: it takes gradients through a relaxed solver, has DreamShard's cost network for the step, and
splits no table. Here the first costs are those whose cheapest assignment is the longest-first placement.

Legend: N items, D devices, F phases of the step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar

import numpy as np

from recsmith._install import SOLVER
from recsmith._types import Floats, Ints
from recsmith.costs import Evaluator
from recsmith.errors import MissingExtra, UsageError
from recsmith.planners.placing.best_split import SplitItems
from recsmith.planners.placing.per_problem import PerProblemPlanner
from recsmith.planners.placing.prices import ItemPrices
from recsmith.planners.placing.words import number_option
from recsmith.planners.search.assignment import NOWHERE, Assignment
from recsmith.planners.search.smooth_max import LEAST_LOAD, power
from recsmith.planners.solver import is_installed

NAME = "surco"
STEPS, MOST_STEPS = 200, 1_000_000
MOST_CHOICES = 60_000  # items times devices, as many as planner exact gives the solver
RATE = 0.05  # at which costs follow their gradient; chosen on tasks of training tables, as SHARPNESS is
SHARPNESS = 24  # 3 * 2 ** i
NOISE = 0.1  # of the first costs, drawn by the seed: what decides between placements that are as good


@dataclass(frozen=True)
class SurCo(PerProblemPlanner):
    """SurCo-zero. steps: of learning, each a solved assignment."""

    lost: ClassVar[str] = f"{NAME}: the solver found no room for every table; they went longest first"

    name: str = NAME
    steps: int = STEPS
    about: str = "SurCo: linear costs, learned per problem (Ferber et al., 2023)."

    @classmethod
    def of(cls, word: str) -> "SurCo":
        """The planner of a word such as surco?steps=50; UsageError for another one."""
        return cls(name=word, steps=number_option(word, NAME, "steps", STEPS, MOST_STEPS))

    def check(self, split: SplitItems | None) -> None:
        """Refuse to go on without the solver, and what would take it minutes."""
        if not is_installed():
            raise MissingExtra(f"planner {NAME} needs OR-Tools: {SOLVER}; or use planner auto")
        choices = len(split.items) * split.items.devices if split else 0
        if choices > MOST_CHOICES:
            raise UsageError(
                f"planner {NAME} takes up to {MOST_CHOICES:,} choices, pieces times devices; this problem has "
                f"{choices:,}: use planner auto"
            )

    def drafts(self, split: SplitItems | None, evaluator: Evaluator, seed: int) -> Iterator[Assignment]:
        """The cheapest assignment of each step; none where nothing fits."""
        if split is None:
            return
        items, prices = split.items, ItemPrices.of(split.items, evaluator)
        solver = import_module("recsmith.planners.solver.linear_assignment").LinearAssignment(items.bytes, items.free)
        costs = _first_costs(split, prices, np.random.default_rng(seed))
        for _ in range(self.steps if len(items) else 1):
            target = solver.cheapest(costs)
            if target is None:
                return
            yield items.assignment(target)
            costs = (1 - RATE) * costs + RATE * slopes(*prices.changes(target), target)


def _first_costs(split: SplitItems, prices: ItemPrices, random: np.random.Generator) -> Floats:
    """Costs (N, D) whose cheapest assignment is the draft, of the size of a step's change."""
    items = split.items
    target = split.draft.target[items.row]
    costs = NOISE * random.random((len(items), items.devices))
    placed = np.flatnonzero(target != NOWHERE)
    costs[placed, target[placed]] = -1.0
    return costs * prices.alone[:, None] * RATE


def slopes(loads: Floats, adds: Floats, target: Ints) -> Floats:
    """Seconds (N, D) that each item on each device adds to the smoothed step.

    loads (F, D): of devices; adds (F, N, D): seconds of items on devices; target (N,): where items are.
    """
    scale = np.maximum(loads.max(axis=1), LEAST_LOAD)[:, None, None]
    here = target[:, None] == np.arange(len(loads[0]))
    relative, added = loads[:, None, :] / scale, adds / scale
    without = np.maximum(relative - here * added, 0.0)
    powers = power(relative, SHARPNESS)
    others = np.maximum(powers.sum(axis=-1, keepdims=True) - powers, 0.0)
    root = 1.0 / SHARPNESS
    grown = (others + power(without + added, SHARPNESS)) ** root - (others + power(without, SHARPNESS)) ** root
    return (grown * scale).sum(axis=0)
