"""What tables pick under the limits that a bound found promising, and longest-first placements of it.

For a menu of fusion groups, a limit a little above the bound, and a price on memory where memory is short, every table
picks its cheapest option (bounds/relaxation.py). Pieces are small next to the limit, so placed longest first they land
close to the bound.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from recsmith.bounds.relaxation import Choice, Relaxation, fitting_price
from recsmith.bounds.selection import SelectionLimits
from recsmith.planners.search.assignment import Assignment, place_longest_first, repair
from recsmith.planners.search.device_state import DeviceState
from recsmith.problems import NO_PIECE

LIMITS = (1.0, 0.95, 0.85, 0.7, 0.5, 1.001, 1.01, 1.03, 1.1, 1.3, 2.0, np.inf)  # over the bound
PRICES = (1.0, 1.25, 2.0, 8.0)  # over the price at which the picks just fit all devices together
SCARCE = 0.5  # share of all memory that picks take, from which on bytes are balanced as well as seconds
WEIGHTS = (1.0, 0.5, 0.25)  # of a device's memory: most bytes of a piece
ROUNDS = 6  # of lowering the limit by what whole-world pieces put on every rank
CHANCES = (0.03, 0.1, 0.3, 1.0, 3.0)  # of drawn options: standard deviations of the logarithm of what they weigh
LEAST_PAIRS = 14  # of a lead and a scale of its limits, and four a table


def candidates(relaxation: Relaxation, promising: tuple[SelectionLimits, ...]) -> Iterator[Choice]:
    """What tables pick under the limits of each lead, its limits loosened and tightened; no pick set twice."""
    room = float(relaxation.problem.capacity.sum())
    seen: set[bytes] = set()
    pairs = sorted((i + j, j, i) for i in range(len(LIMITS)) for j in range(len(promising)))  # both loosen step by step
    for _, j, i in pairs[: LEAST_PAIRS + 4 * len(relaxation.problem.tables)]:
        loose = replace(promising[j], limit=promising[j].limit * LIMITS[i], local=promising[j].local * LIMITS[i])
        for choice in _priced(relaxation, loose, room):
            key = choice.option.tobytes()
            if key not in seen and (choice.option != NO_PIECE).all():
                seen.add(key)
                yield choice


def light_candidates(relaxation: Relaxation, seed: int) -> Iterator[Choice]:
    """Options drawn again and again, light ones first, with little chance and much.

    Light is what adds few bytes to all devices together and, half of the time, to the one that carries most of it.
    """
    draws, problem = np.random.default_rng(seed), relaxation.problem
    total = relaxation.option_bytes / float(problem.capacity.sum())
    heaviest = relaxation.option_heaviest / float(problem.capacity.max())
    if not np.logical_or.reduceat(relaxation.option_fits, problem.options.start[:-1]).all():
        return
    for turn in count():
        weight = total + heaviest * draws.random() * (turn % 2)
        weight *= np.exp(draws.choice(CHANCES) * draws.standard_normal(len(weight)))
        value = np.where(relaxation.option_fits, weight, np.inf)
        option = np.lexsort((value, problem.options.table))[problem.options.start[:-1]]
        yield Choice(option, relaxation.option_seconds[option], relaxation.option_bytes[option])


def _priced(relaxation: Relaxation, limits: SelectionLimits, room: float) -> Iterator[Choice]:
    """What tables pick at prices at which it fits; where memory is scarce, also without the heaviest pieces."""
    for share in WEIGHTS:
        light = replace(limits, weight=share * float(relaxation.problem.capacity.max()))
        price = fitting_price(lambda p, t=light: _below(relaxation, replace(t, price=p)), room)
        for scale in PRICES if price > 0 else (0.0,):
            choice = _below(relaxation, replace(light, price=price * scale))
            yield choice
            if choice.bytes.sum() < SCARCE * room:
                return


def _below(relaxation: Relaxation, limits: SelectionLimits) -> Choice:
    """What tables pick so that a piece of one rank still fits under the limit on top of what every rank carries."""
    choice = relaxation.choose(limits)
    for _ in range(ROUNDS if limits.limit < np.inf else 0):
        everywhere = float(relaxation.option_everywhere[choice.option[choice.option != NO_PIECE]].sum())
        closer = relaxation.choose(replace(limits, local=min(limits.local, limits.limit - everywhere)))
        if (closer.option == NO_PIECE).any() or (closer.option == choice.option).all():
            break
        choice = closer
    return choice


def place_candidate(ledger: DeviceState, relaxation: Relaxation, choice: Choice) -> Assignment | None:
    """The picks placed by seconds or, if that leaves pieces without room, by seconds and bytes; repaired at last."""
    problem = ledger.problem
    first = problem.options.piece[choice.option, 0]  # the orders are scaled by the chosen options' first pieces
    seconds = ledger.seconds / max(float(ledger.seconds[first].mean()), 1e-300)
    weight = relaxation.piece_bytes / max(float(relaxation.piece_bytes[first].mean()), 1e-300)
    scarce = choice.bytes.sum() >= SCARCE * float(problem.capacity.sum())
    best, least = None, np.inf
    level = max(float(choice.seconds.sum()) / len(ledger.free), 1e-300)
    share, load = problem.pieces.tail.device / float(problem.capacity.max()), ledger.seconds / level
    for order, crowding in ((seconds, 0.0), (np.maximum(load, share), 1.0), (load + 0.8 * share, 0.8), (weight, 1.0)):
        ledger.clear()
        ledger.crowding = crowding
        assignment = Assignment.of(problem, choice.option)
        place_longest_first(ledger, assignment, order)
        repair(ledger, assignment)
        ledger.crowding = 0.0
        if assignment.complete and ledger.total < least:
            best, least = assignment, ledger.total
        if best is not None and not scarce:
            break
    return best
