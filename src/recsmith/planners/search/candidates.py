"""Candidate selections, one option for each table, and longest-first placements of them.

Under the limits that a bound found promising, a limit slightly above the bound, and a price on memory if memory is
scarce, every table selects its cheapest option (bounds/relaxation.py). Pieces are small compared with the limit, so
longest-first placement ends close to the bound.

Legend: T tables, P pieces, O options.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import Choice, Relaxation, fitting_price
from recsmith.elementary import exp
from recsmith.planners.search.device_state import Assignment, DeviceState
from recsmith.planners.search.placement import PRICES, all_fit, place_and_repair
from recsmith.planners.search.smooth_max import LEAST_LOAD
from recsmith.problems import NO_PIECE

LIMITS = (1.0, 0.95, 0.85, 0.7, 0.5, 1.001, 1.01, 1.03, 1.1, 1.3, 2.0, np.inf)  # times the promising limits, in turn
SCARCE = 0.5  # share of all memory: a selection that takes as much is placed by bytes as well as by seconds
WEIGHTS = (1.0, 0.5, 0.25)  # most bytes of a piece, as shares of the largest device's memory
ROUNDS = 6  # rounds of lowering the limit by what whole-world pieces put on every rank, until nothing changes
DEVIATIONS = (0.03, 0.1, 0.3, 1.0, 3.0)  # standard deviations of the logarithm of drawn weights: low to high
LEAST_PAIRS, PAIRS_A_TABLE = 14, 4  # pairs of promising limits and a factor of LIMITS: at least, and more per table
BLEND = 0.8  # weight of a device's share of memory against its load, in the order of placement that adds both


def candidates(relaxation: Relaxation, promising: tuple[SelectionLimits, ...]) -> Iterator[Choice]:
    """What tables select under each of the promising limits, loosened and tightened; no selection twice."""
    room = float(relaxation.problem.capacity.sum())
    seen: set[bytes] = set()
    pairs = sorted((i + j, j, i) for i in range(len(LIMITS)) for j in range(len(promising)))  # both loosen step by step
    for _, j, i in pairs[: LEAST_PAIRS + PAIRS_A_TABLE * len(relaxation.problem.tables)]:
        loose = replace(promising[j], limit=promising[j].limit * LIMITS[i], local=promising[j].local * LIMITS[i])
        for choice in _priced(relaxation, loose, room):
            key = choice.option.tobytes()
            if key not in seen and (choice.option != NO_PIECE).all():
                seen.add(key)
                yield choice


def light_candidates(relaxation: Relaxation, seed: int) -> Iterator[Choice]:
    """Options drawn at random, light ones more often, with varying randomness; none if a table has no option.

    An option is light if it adds few bytes to all devices together and, in every second draw, also to the device that
    carries most of it.
    """
    draws, problem = np.random.default_rng(seed), relaxation.problem
    total = relaxation.option_bytes / float(problem.capacity.sum())
    heaviest = relaxation.option_heaviest / float(problem.capacity.max())
    if not np.logical_or.reduceat(relaxation.option_fits, problem.options.start[:-1]).all():
        return
    for turn in count():
        weight = total + heaviest * draws.random() * (turn % 2)
        weight *= exp(draws.choice(DEVIATIONS) * draws.standard_normal(len(weight)))
        value = np.where(relaxation.option_fits, weight, np.inf)
        option = np.lexsort((value, problem.options.table))[problem.options.start[:-1]]
        yield Choice(option, relaxation.option_seconds[option], relaxation.option_bytes[option])


def _priced(relaxation: Relaxation, limits: SelectionLimits, room: float) -> Iterator[Choice]:
    """Selections at prices at which they fit; if memory is scarce, also selections without the heaviest pieces."""
    for share in WEIGHTS:
        light = replace(limits, weight=share * float(relaxation.problem.capacity.max()))
        price = fitting_price(lambda p, t=light: _below(relaxation, replace(t, price=p)), room)
        for scale in PRICES if price > 0 else (0.0,):
            choice = _below(relaxation, replace(light, price=price * scale))
            yield choice
            if choice.bytes.sum() < SCARCE * room:
                return


def _below(relaxation: Relaxation, limits: SelectionLimits) -> Choice:
    """A selection in which a piece of one rank still fits under the limit, given what every rank carries anyway."""
    choice = relaxation.choose(limits)
    for _ in range(ROUNDS if limits.limit < np.inf else 0):
        everywhere = float(relaxation.option_everywhere[choice.option[choice.option != NO_PIECE]].sum())
        closer = relaxation.choose(replace(limits, local=min(limits.local, limits.limit - everywhere)))
        if (closer.option == NO_PIECE).any() or (closer.option == choice.option).all():
            break
        choice = closer
    return choice


def place_candidate(devices: DeviceState, relaxation: Relaxation, choice: Choice) -> Assignment | None:
    """Place the selected options by seconds, or by seconds and bytes if pieces find no room; None without room."""
    return priced_candidate(devices, relaxation, choice)[1]


def priced_candidate(
    devices: DeviceState, relaxation: Relaxation, choice: Choice
) -> tuple[float, Assignment | None]:  # fmt: skip
    """The seconds of the step and the assignment of `place_candidate`; infinite and None without room.

    If memory is scarce all orders are tried, and the fastest placement is returned: devices may then hold another one.
    """
    problem = devices.problem
    if not all_fit(relaxation, choice.option):
        return np.inf, None
    first = problem.options.piece[choice.option, 0]  # the orders are scaled by the chosen options' first pieces
    seconds = devices.seconds / max(float(devices.seconds[first].mean()), LEAST_LOAD)
    weight = relaxation.piece_bytes / max(float(relaxation.piece_bytes[first].mean()), LEAST_LOAD)
    scarce = choice.bytes.sum() >= SCARCE * float(problem.capacity.sum())
    best, least = None, np.inf
    level = max(float(choice.seconds.sum()) / len(devices.free), LEAST_LOAD)
    share, load = problem.pieces.tail.device / float(problem.capacity.max()), devices.seconds / level
    orders = ((seconds, 0.0), (np.maximum(load, share), 1.0), (load + BLEND * share, BLEND), (weight, 1.0))
    for order, memory_weight in orders:
        devices.memory_weight = memory_weight
        assignment = place_and_repair(devices, choice.option, order)
        devices.memory_weight = 0.0
        if assignment.complete and devices.total < least:
            best, least = assignment, devices.total
        if best is not None and not scarce:
            break
    return least, best
