"""Compiled annealing from a plan that is good already: cool from the start, so that few pieces move.

Unlike a tournament (tournament.py), which begins hot and leaves no piece where it was, it goes on from one plan and
makes changes that gain, and small detours.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from recsmith.bounds import first_bound
from recsmith.bounds.shared_relaxations import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.planners.annealing.kernel import FlatOptions, FlatProblem, is_compiled
from recsmith.planners.annealing.tournament import CROWD, HEAT, PIECE_STEPS, STEPS, Entrant, cool
from recsmith.planners.annealing.tried_options import TriedOptions
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.problems import Footprint

WARMTH = 0.02  # of the heat with which a tournament begins; trade-off: more warmth moves more pieces for less gain
RUNS, TIMES = 2, 2  # plans that cool side by side, and how many times the first steps of a tournament each takes
MOST_STEPS = 800_000  # of a plan


def anneal_warm(
    evaluator: Evaluator, start: Footprint, seed: int, keep_on: Callable[[], bool]
) -> tuple[float, Footprint] | None:
    """(seconds, plan) that a plan becomes; None without compiled code, or for a cost model that it does not know.

    keep_on: asked now and then whether to go on; what has cooled by then counts. The outcome does not depend on the
    number of cores. Cost: some seconds for thousands of tables.
    """
    devices = DeviceState(evaluator)
    linear_pieces = linear_pieces_of(evaluator, devices.terms) if is_compiled() else None
    if linear_pieces is None:
        return None
    flat = FlatProblem(evaluator, linear_pieces, any_widths=not devices.legality.groups)
    options = FlatOptions(flat, TriedOptions(devices, shared_relaxation(evaluator, first_bound(evaluator).linear)))
    plan = flat.plan_of(start)
    if plan is None or not options.usable:
        return None
    heat = WARMTH * HEAT / len(devices.free) ** CROWD
    steps = min(MOST_STEPS, TIMES * max(STEPS, PIECE_STEPS * len(start.mode)))
    first = Entrant(float("inf"), options, plan)
    with ThreadPoolExecutor(min(RUNS, os.cpu_count() or 1)) as pool:
        runs = [pool.submit(cool, flat, first, heat, steps, seed * RUNS + number, keep_on) for number in range(RUNS)]
        best = min((run.result() for run in runs), key=lambda entrant: entrant.seconds)
    return best.seconds, flat.footprint(best.plan)
