"""Compiled annealing from a plan that runs, which moves no more bytes than it may.

Unlike a tournament (tournament.py), which begins hot and leaves no piece where it was, it goes on from one plan. Every
byte that moves has a price, so that a table which gains little goes back to where it was; then the price falls.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from recsmith._types import Bools
from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.planners.annealing.homes import Homes
from recsmith.planners.annealing.kernel import Cooling, FlatHomes, FlatOptions, FlatPlan, FlatProblem, is_compiled
from recsmith.planners.annealing.tournament import AT_ONCE, COLD, LONG_KINDS
from recsmith.planners.annealing.tried_options import TriedOptions
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.problems import Footprint


class Turn(NamedTuple):
    """One cooling: its temperature at first, and what all bytes that may move cost, as shares of the step."""

    heat: float
    price: float


COOL = (Turn(2e-4, 1e-2), Turn(1e-4, 1e-3))
RUNS = (COOL, (Turn(2e-3, 1e-2), *COOL))  # plans that cool side by side: the second also leaves poor starts
STEPS, PIECE_STEPS, MOST_STEPS = 50_000, 12_000, 48_000_000  # of a turn: at least, a piece of the start, at most


def anneal_warm(
    evaluator: Evaluator, start: Footprint, homes: Homes, seed: int, keep_on: Callable[[], bool]
) -> Footprint | None:
    """The best plan found that fits the memory and moves no more than `homes` allows; the start may do neither.

    None where none was found, without compiled code, and for cost models and constraints that it does not know.
    keep_on: asked now and then whether to go on; what has cooled by then counts. The outcome does not depend on the
    number of cores. Cost: some seconds for thousands of tables.
    """
    devices = DeviceState(evaluator)
    linear_pieces = linear_pieces_of(evaluator, devices.terms) if is_compiled() else None
    if linear_pieces is None or devices.legality.groups:
        return None
    flat = FlatProblem(evaluator, linear_pieces, kinds=LONG_KINDS)
    options = FlatOptions(flat, _tried(evaluator, devices, start))
    plan = flat.plan_of(start)
    if plan is None or not options.usable:
        return None
    turns = [[(turn.heat, homes.flat(flat, turn.price)) for turn in run] for run in RUNS]
    steps = min(MOST_STEPS, max(STEPS, PIECE_STEPS * len(start.mode)))
    with ThreadPoolExecutor(min(len(RUNS), os.cpu_count() or 1)) as pool:
        runs = [
            pool.submit(_run, flat, options, plan, own, steps, seed * len(RUNS) + i, keep_on)
            for i, own in enumerate(turns)
        ]
        seconds, best = min((run.result() for run in runs), key=lambda found: found[0])
    return flat.footprint(best) if np.isfinite(seconds) else None


def _tried(evaluator: Evaluator, devices: DeviceState, start: Footprint) -> TriedOptions:
    """Options of the fusion groups that the start uses; of all groups where some table has none of those."""
    relaxation = shared_relaxation(evaluator, first_bound(evaluator).linear)
    used: Bools = np.zeros(evaluator.groups, dtype=bool)
    used[evaluator.group[start.mode]] = True
    few = TriedOptions(devices, relaxation.within(used))
    return few if few.count.all() else TriedOptions(devices, relaxation)


def _run(
    flat: FlatProblem, options: FlatOptions, plan: FlatPlan, turns: list[tuple[float, FlatHomes]], steps: int,
    seed: int, keep_on: Callable[[], bool],
) -> tuple[float, FlatPlan]:  # fmt: skip
    """The best plan of all turns, each from the best of the last; infinite seconds where none may be kept."""
    best_s, best = np.inf, plan
    seeds = np.random.SeedSequence((seed, len(turns))).generate_state(len(turns)).tolist()
    for (heat, homes), own in zip(turns, seeds, strict=True):
        cooling = Cooling(flat, options, plan, own, homes)
        for first in range(0, steps, AT_ONCE):
            cooling.go_on(first, min(first + AT_ONCE, steps), steps, (heat, COLD * heat))
            if not keep_on():
                break
        plan = cooling.best if np.isfinite(cooling.best_s) else cooling.plan
        if cooling.best_s < best_s:
            best_s, best = cooling.best_s, cooling.best
    return best_s, best
