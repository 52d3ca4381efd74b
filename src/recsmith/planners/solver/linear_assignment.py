# pyright: basic
"""The cheapest assignment of items to devices with memory, under costs that add up: a generalised assignment problem.

Where every item's cheapest device has room for all that want it, that is the answer; otherwise CP-SAT of OR-Tools finds
it, with one worker, a fixed seed and a limit in its own measure of work, so that it is the same on every machine.

Legend: N items, D devices.
"""

import numpy as np
from ortools.sat.python import cp_model

from recsmith._types import Floats, Ints

UNITS = 1_000_000  # integers that the widest range of an item's costs is rounded to
WORK = 0.1  # deterministic seconds of one solution, after which the best found counts
NEAR = 1e-3  # a solution this much above the cheapest will do: costs that are learned are no better known


class LinearAssignment:
    """Items of some bytes (N,) on devices with so many bytes free (D,); asked again and again under other costs.

    last: the last answer (N,), None before the first.
    """

    def __init__(self, size: Ints, free: Ints) -> None:
        self.size, self.free = size, free
        self.last: Ints | None = None
        self._model: cp_model.CpModel | None = None
        self._choices: list[cp_model.IntVar] = []

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
        model = self._built()
        relative = costs - costs.min(axis=1, keepdims=True)
        units = np.rint(relative * (UNITS / max(float(relative.max()), 1e-300))).astype(np.int64)
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

    def _built(self) -> cp_model.CpModel:
        """The model without an objective, made when it is first needed."""
        if self._model is None:
            self._model = model = cp_model.CpModel()
            count, devices = len(self.size), len(self.free)
            self._choices = [model.new_bool_var("") for _ in range(count * devices)]
            for item in range(count):
                model.add_exactly_one(self._choices[item * devices : (item + 1) * devices])
            for device in range(devices):
                held = cp_model.LinearExpr.weighted_sum(self._choices[device::devices], self.size.tolist())
                model.add(held <= int(self.free[device]))
        return self._model
