"""SurCo-zero (Ferber et al., ICML 2023) on any cost model: linear costs, learned for one problem alone.

The step is not a linear function of the placement, so a solver of linear problems cannot minimise it. It can minimise a
surrogate: costs c of item i on device d, whose cheapest assignment within memory (`LinearAssignment`) is the
plan. c is learned: solve, compute how much each single placement lengthens the step, move c in that direction; repeat.

**The gradient** of the step by each placement is that of its multilinear extension: the step with item i on device d
minus the step without it, everything else unchanged. It is exact, and needs only loads from a cost model. The maxima
over devices are replaced by norms of power SHARPNESS; otherwise only the slowest device would have a gradient.

**Through the solver** the gradient is passed as if the solver's derivative were minus the identity: a placement that
lengthens the step becomes costlier. In addition, costs decay: c <- (1 - RATE) c + RATE gradient.

Differences from the paper: it takes gradients through a relaxed solver, has DreamShard's cost network for the step, and
splits no table. Here the first costs are those whose cheapest assignment is the longest-first placement.

Legend: N items, D devices, F phases of the step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np

from recsmith import MissingExtra, UsageError
from recsmith.costs import Evaluator
from recsmith.planners.placing import NOWHERE, Assignment, SplitItems
from recsmith_per_problem.arrays import Floats, Ints
from recsmith_per_problem.item_prices import ItemPrices
from recsmith_per_problem.planner import PerProblemPlanner

NAME = "surco"
STEPS, MOST_STEPS = 200, 1_000_000
MOST_CHOICES = 60_000  # items times devices, as many as planner exact passes to the solver
RATE = 0.05  # learning rate of the costs; chosen on tasks of training tables, as SHARPNESS is
SHARPNESS = 24
LEAST_LOAD = 1e-300  # least divisor of loads, in seconds, so that idle phases do not divide by zero
SOLVER = "pip install 'ortools>=9.12,<10'"  # as in pyproject.toml
SOLVER_MODULE = "ortools.sat.python.cp_model"  # imported when it is used
COST_UNITS = 1_000_000  # integer range to which the widest range of an item's costs is scaled
WORK = 0.1  # limit of one solution, in deterministic seconds of the solver; then its best solution is used
NEAR = 1e-3  # relative gap at which a solution is accepted: learned costs are no more exact
NOISE = 0.1  # scale of random first costs, drawn by the seed, which break ties between equally good placements


@dataclass(frozen=True)
class SurCo(PerProblemPlanner):
    """SurCo-zero. steps: learning steps; each solves an assignment."""

    lost: ClassVar[str] = f"{NAME}: the solver found no room for every table; they went longest first"
    option: ClassVar[str] = "steps"
    most: ClassVar[int] = MOST_STEPS

    name: str = NAME
    steps: int = STEPS
    about: str = "SurCo: linear costs, learned per problem (Ferber et al., 2023)."

    def check(self, split: SplitItems | None) -> None:
        """Raise an error if the solver is not installed, or would need minutes."""
        if not is_installed():
            raise MissingExtra(f"planner {NAME} needs OR-Tools: {SOLVER}; or use planner auto")
        choices = len(split.items) * split.items.devices if split else 0
        if choices > MOST_CHOICES:
            raise UsageError(
                f"planner {NAME} takes up to {MOST_CHOICES:,} choices, pieces times devices; this problem has "
                f"{choices:,}: use planner auto"
            )

    def drafts(self, split: SplitItems | None, evaluator: Evaluator, seed: int) -> Iterator[Assignment]:
        """The cheapest assignment of each step; none if nothing fits."""
        if split is None:
            return
        items, prices = split.items, ItemPrices.of(split.items, evaluator)
        solver = LinearAssignment(items.bytes, items.free)
        costs = _first_costs(split, prices, np.random.default_rng(seed))
        for _ in range(self.steps if len(items) else 1):
            target = solver.cheapest(costs)
            if target is None:
                return
            yield items.assignment(target)
            costs = (1 - RATE) * costs + RATE * slopes(*prices.changes(target), target)


def _first_costs(split: SplitItems, prices: ItemPrices, random: np.random.Generator) -> Floats:
    """Costs (N, D) whose cheapest assignment is the draft, scaled like the change of one learning step."""
    items = split.items
    target = split.draft.target[items.row]
    costs = NOISE * random.random((len(items), items.devices))
    placed = np.flatnonzero(target != NOWHERE)
    costs[placed, target[placed]] = -1.0
    return costs * prices.alone[:, None] * RATE


def slopes(loads: Floats, adds: Floats, target: Ints) -> Floats:
    """Seconds (N, D) that each item on each device adds to the smoothed step.

    loads (F, D): of devices; adds (F, N, D): seconds of items on devices; target (N,): devices of the items.
    """
    scale = np.maximum(loads.max(axis=1), LEAST_LOAD)[:, None, None]
    here = target[:, None] == np.arange(len(loads[0]))
    relative, added = loads[:, None, :] / scale, adds / scale
    without = np.maximum(relative - here * added, 0.0)
    powers = _power(relative)
    others = np.maximum(powers.sum(axis=-1, keepdims=True) - powers, 0.0)
    root = 1.0 / SHARPNESS
    grown = (others + _power(without + added)) ** root - (others + _power(without)) ** root
    return (grown * scale).sum(axis=0)


def _power(ratio: Floats) -> Floats:
    """Ratio ** SHARPNESS by repeated squaring, several times faster than a power."""
    cube = ratio * ratio * ratio
    return ((cube**2) ** 2) ** 2


def is_installed() -> bool:
    """Whether OR-Tools is installed."""
    return find_spec("ortools") is not None


# --- the cheapest assignment ------------------------------------------------------------------------------------------


class LinearAssignment:
    """Cheapest assignments of items (bytes (N,)) to devices (free bytes (D,)), for one set of costs after another.

    If every item's cheapest device has room for all items that prefer it, that is the answer. Otherwise CP-SAT of
    OR-Tools finds it, with one worker, a fixed seed and a limit in deterministic time: it is the same everywhere.

    last: the last answer (N,), None before the first.
    """

    def __init__(self, size: Ints, free: Ints) -> None:
        self.size, self.free = size, free
        self.last: Ints | None = None
        self._model: Any = None
        self._choices: list[Any] = []

    def cheapest(self, costs: Floats) -> Ints | None:
        """The devices (N,) with the least sum of costs (N, D); None if nothing that fits was ever found."""
        target = costs.argmin(axis=1)
        if (np.bincount(target, weights=self.size, minlength=len(self.free)) <= self.free).all():
            self.last = target
        else:
            self._solve(costs)
        return self.last

    def _solve(self, costs: Floats) -> None:
        """Run CP-SAT with the last answer as a hint; the last answer is kept if it finds none."""
        cp_model, model = import_module(SOLVER_MODULE), self._built()
        relative = costs - costs.min(axis=1, keepdims=True)
        units = np.rint(relative * (COST_UNITS / max(float(relative.max()), 1e-300))).astype(np.int64)
        model.minimize(cp_model.LinearExpr.weighted_sum(self._choices, units.ravel().tolist()))
        if self.last is not None:
            model.clear_hints()
            chosen = self.last[:, None] == np.arange(len(self.free))
            for variable, value in zip(self._choices, chosen.ravel().tolist(), strict=True):
                model.add_hint(variable, value)
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = WORK
        solver.parameters.relative_gap_limit = NEAR
        solver.parameters.catch_sigint_signal = False  # Ctrl-C ends the whole search, not one solution
        if solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            values = np.array([solver.boolean_value(variable) for variable in self._choices])
            self.last = values.reshape(len(self.size), len(self.free)).argmax(axis=1)

    def _built(self) -> Any:
        """The model without an objective, built at the first call."""
        if self._model is None:
            cp_model: Any = import_module(SOLVER_MODULE)
            self._model = model = cp_model.CpModel()
            count, devices = len(self.size), len(self.free)
            self._choices = [model.new_bool_var("") for _ in range(count * devices)]
            for item in range(count):
                model.add_exactly_one(self._choices[item * devices : (item + 1) * devices])
            for device in range(devices):
                held = cp_model.LinearExpr.weighted_sum(self._choices[device::devices], self.size.tolist())
                model.add(held <= int(self.free[device]))
        return self._model
