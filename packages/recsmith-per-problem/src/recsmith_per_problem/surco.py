"""SurCo-zero (Ferber et al., ICML 2023) on any cost model: linear costs, learned for one problem alone.

The step is no linear function of who holds what, and a solver of linear problems cannot minimise it. It can minimise a
stand-in: costs c of item i on device d, whose cheapest assignment within memory (`LinearAssignment`) is the
plan. c is learned: solve, see by how much each single placement lengthens the step, and move c there; again.

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
MOST_CHOICES = 60_000  # items times devices, as many as planner exact gives the solver
RATE = 0.05  # at which costs follow their gradient; chosen on tasks of training tables, as SHARPNESS is
SHARPNESS = 24
LEAST_LOAD = 1e-300  # seconds: loads are divided by no less, so that idle phases divide by no zero
SOLVER = "pip install 'ortools>=9.12,<10'"  # as pyproject.toml has it
SOLVER_MODULE = "ortools.sat.python.cp_model"  # loaded when it is used
COST_UNITS = 1_000_000  # integers that the widest range of an item's costs is rounded to
WORK = 0.1  # deterministic seconds of one solution, after which the best found counts
NEAR = 1e-3  # a solution this much above the cheapest will do: costs that are learned are no better known
NOISE = 0.1  # of the first costs, drawn by the seed: what decides between placements that are as good


@dataclass(frozen=True)
class SurCo(PerProblemPlanner):
    """SurCo-zero. steps: of learning, each a solved assignment."""

    lost: ClassVar[str] = f"{NAME}: the solver found no room for every table; they went longest first"
    option: ClassVar[str] = "steps"
    most: ClassVar[int] = MOST_STEPS

    name: str = NAME
    steps: int = STEPS
    about: str = "SurCo: linear costs, learned per problem (Ferber et al., 2023)."

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
        solver = LinearAssignment(items.bytes, items.free)
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
    powers = _power(relative)
    others = np.maximum(powers.sum(axis=-1, keepdims=True) - powers, 0.0)
    root = 1.0 / SHARPNESS
    grown = (others + _power(without + added)) ** root - (others + _power(without)) ** root
    return (grown * scale).sum(axis=0)


def _power(ratio: Floats) -> Floats:
    """Ratio ** SHARPNESS by squaring, several times faster than a power."""
    cube = ratio * ratio * ratio
    return ((cube**2) ** 2) ** 2


def is_installed() -> bool:
    """Whether OR-Tools is there."""
    return find_spec("ortools") is not None


# --- the cheapest assignment ------------------------------------------------------------------------------------------


class LinearAssignment:
    """Items of some bytes (N,) on devices with so many bytes free (D,); asked again and again under other costs.

    Where every item's cheapest device has room for all that want it, that is the answer; otherwise CP-SAT of OR-Tools
    finds it, with one worker, a fixed seed and a limit in its own measure of work, so that it is the same everywhere.

    last: the last answer (N,), None before the first.
    """

    def __init__(self, size: Ints, free: Ints) -> None:
        self.size, self.free = size, free
        self.last: Ints | None = None
        self._model: Any = None
        self._choices: list[Any] = []

    def cheapest(self, costs: Floats) -> Ints | None:
        """The devices (N,) of least summed costs (N, D); None where nothing was ever found that fits."""
        target = costs.argmin(axis=1)
        if (np.bincount(target, weights=self.size, minlength=len(self.free)) <= self.free).all():
            self.last = target
        else:
            self._solve(costs)
        return self.last

    def _solve(self, costs: Floats) -> None:
        """Ask CP-SAT, from the last answer on, which stays where no other is found."""
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
        """The model without an objective, made when it is first needed."""
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
