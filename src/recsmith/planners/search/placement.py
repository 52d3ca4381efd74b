"""Longest-first placement: pieces in falling order, each on its best target; and repair of the outcome.

Pieces that found no room push smaller ones away (`repair`); tables that still find none are split further
(`place_in_fewest_pieces`); tables that break a constraint are placed again while all others stay (`mended`).

Legend: T tables, P pieces, N pieces of an assignment, W ranks.
"""

from collections.abc import Callable

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.linear_bounds import SelectionLimits
from recsmith.bounds.relaxation import DEAREST, Relaxation, fitting_price, shared_relaxation
from recsmith.costs import Evaluator
from recsmith.planners.search.compiled_placement import place_compiled
from recsmith.planners.search.device_state import NOWHERE, QUANTUM, Assignment, DeviceState
from recsmith.planners.search.smooth_max import LEAST_LOAD
from recsmith.problems import NO_PIECE, Footprint, Problem
from recsmith.problems.footprint import ordered_footprint
from recsmith.sharding import Span

LONGEST_CHAIN = 64  # most pieces that one repair may move; trade-off: longer chains find more room and take longer
PRICES = (1.0, 1.25, 2.0, 8.0)  # times the price of memory at which the selected options just fit all devices together
FEWEST_ROUNDS = 32  # rounds of splitting tables without room, however few tables there are; each costs one placement


def place_longest_first(devices: DeviceState, assignment: Assignment, order: Floats) -> None:
    """Place each piece, in falling `order` (P,), on its best target among those with room.

    Pieces of the whole world are placed first, then those of hosts, then those of ranks. Ties are broken by the lowest
    target. A piece for which no target has room stays unplaced. Cost: N steps over W ranks.
    """
    span = devices.span[assignment.piece]
    devices.expect(assignment.piece)
    mean = max(float((devices.seconds[assignment.piece]).sum()) / len(devices.free), LEAST_LOAD)
    if devices.balances_powers:
        mean *= QUANTUM  # powers of small loads are smaller still
    sequence = np.lexsort((np.arange(len(span)), -_weight(devices, assignment, order), -span))
    if place_compiled(devices, assignment, sequence, mean * QUANTUM):
        return
    for i in sequence.tolist():
        place_best(devices, assignment, i, mean * QUANTUM)


def _weight(devices: DeviceState, assignment: Assignment, order: Floats) -> Floats:
    """The order of each piece (N,), with pinned pieces first and tables that stay together one after the other."""
    weight, legality = order[assignment.piece], devices.legality
    if not legality.any:
        return weight
    row = legality.row[assignment.table]
    for group in legality.groups:
        own = np.isin(row, group.rows) & (row >= 0)
        if group.kind == "together" and own.any():
            weight[own] = weight[own].max()
    weight[legality.pinned[assignment.table]] = np.inf
    return weight


def place_best(devices: DeviceState, assignment: Assignment, i: int, quantum: float) -> bool:
    """Place piece i on its best target, comparing preferences in multiples of `quantum`; False if none has room."""
    piece = int(assignment.piece[i])
    room = devices.fits(piece) & allowed_targets(devices, assignment, i)
    if not room.any():
        return False
    with np.errstate(over="ignore"):  # infinite if pieces cost next to nothing, and so does the quantum
        score = np.where(room, devices.preference(piece) / quantum, np.inf)
    if not np.isfinite(score).any():
        return False
    target = int(np.floor(score, out=score).argmin())
    devices.place(piece, target)
    assignment.target[i] = target
    return True


def allowed_targets(devices: DeviceState, assignment: Assignment, i: int) -> Bools:
    """Targets that type and constraints allow for piece i, given what is placed; broadcasts over all targets.

    A rank holds pieces of one width of a table, and pieces of a table_column_wise table stay on one host.
    """
    allowed = _widths_allowed(devices, assignment, i)
    return allowed & kept_targets(devices, assignment, i) if devices.legality.any else allowed


def kept_targets(devices: DeviceState, assignment: Assignment, i: int) -> Bools:
    """Targets that the constraints allow for piece i, given what is placed.

    The first of several tables that stay together is placed on a rank with room for all of them, if there is one.
    """
    piece, table = (
        int(assignment.piece[i]),
        int(devices.problem.modes.table[devices.problem.pieces.mode[assignment.piece[i]]]),
    )
    allowed, legality = devices.may_hold(piece), devices.legality
    if legality.pinned[table]:
        others = assignment.siblings(i)
        others = others[(assignment.target[others] != NOWHERE) & (assignment.piece[others] == piece)]
        width, size = int(devices.problem.pieces.width[piece]), int(devices.coverage[piece])
        return allowed & legality.pinned_targets(table, width, assignment.target[others], size)
    for group in legality.groups_of.get(table, ()):
        if group.kind == "together" and devices.span[piece] == Span.RANK and not devices.on[group.rows].any():
            own = np.isin(legality.row[assignment.table], group.rows) & (legality.row[assignment.table] >= 0)
            need = devices.problem.pieces.tail.device[assignment.piece[own]].sum() // group.local
            roomy = allowed & (devices.free >= need)
            allowed = roomy if roomy.any() else allowed
    return allowed


def _widths_allowed(devices: DeviceState, assignment: Assignment, i: int) -> Bools:
    """Targets that the sharding type allows for piece i, given the other pieces of its table."""
    if not devices.tied[assignment.option[assignment.table[i]]]:
        return np.ones(1, dtype=bool)
    others = assignment.siblings(i)
    others = others[assignment.target[others] != NOWHERE]
    allowed = np.ones(len(devices.free), dtype=bool)
    allowed[assignment.target[others][assignment.piece[others] != assignment.piece[i]]] = False  # other widths
    if others.size and devices.on_one_host[assignment.option[assignment.table[i]]]:
        allowed &= np.arange(len(allowed)) // devices.local == assignment.target[others[0]] // devices.local
    return allowed


# --- repair -----------------------------------------------------------------------------------------------------------


def repair(devices: DeviceState, assignment: Assignment) -> None:
    """Find room for unplaced pieces: each pushes a smaller piece away, which pushes a smaller one away, and so on.

    Only pieces of single ranks move. Pieces for which no chain finds room stay unplaced.
    """
    lost = np.flatnonzero(assignment.target == NOWHERE)
    need = devices.problem.pieces.tail.device[assignment.piece[lost]]
    for i in lost[np.argsort(-need, kind="stable")].tolist():
        _push(devices, assignment, i)


def _push(devices: DeviceState, assignment: Assignment, i: int) -> None:
    """Place a chain of ever smaller pieces, each in the place of the next; undone if the last one finds no room."""
    mean = max(float(devices.load.mean()), LEAST_LOAD)
    done: list[tuple[int, int]] = []  # (piece that was placed, piece that it pushed away)
    for _ in range(LONGEST_CHAIN):
        if place_best(devices, assignment, i, mean * QUANTUM):
            return
        victim = _victim(devices, assignment, i)
        if victim == NOWHERE:
            break
        _replace(devices, assignment, victim, i)
        done.append((i, victim))
        i = victim
    for pusher, victim in reversed(done):
        _replace(devices, assignment, pusher, victim)


def _replace(devices: DeviceState, assignment: Assignment, goes: int, comes: int) -> None:
    """Remove a placed piece and put an unplaced one on its target."""
    target = int(assignment.target[goes])
    devices.place(int(assignment.piece[goes]), target, -1)
    assignment.target[goes] = NOWHERE
    devices.place(int(assignment.piece[comes]), target)
    assignment.target[comes] = target


def _victim(devices: DeviceState, assignment: Assignment, i: int) -> int:
    """The smallest placed piece that is smaller than piece i and would make enough room for it; NOWHERE if none is."""
    piece = assignment.piece[i]
    if devices.span[piece] != Span.RANK:
        return NOWHERE
    device, host = devices.problem.pieces.tail.device, devices.problem.pieces.tail.host
    movable = (devices.span[assignment.piece] == Span.RANK) & (assignment.target != NOWHERE)
    others = np.flatnonzero(movable)
    target = assignment.target[others]
    size, held = device[assignment.piece[others]], host[assignment.piece[others]]
    makes_room = devices.free[target] + size >= device[piece]
    makes_room &= devices.host_free[target // devices.local] + held >= host[piece]
    allowed = np.broadcast_to(allowed_targets(devices, assignment, i), devices.free.shape)
    makes_room &= (size < device[piece]) & allowed[target]
    makes_room &= ~devices.tied[assignment.option[assignment.table[others]]]
    makes_room &= ~devices.legality.pinned[assignment.table[others]]
    if not makes_room.any():
        return NOWHERE
    size = np.where(makes_room, size, np.iinfo(np.int64).max)
    return int(others[size.argmin()])


# --- as few pieces as fit ---------------------------------------------------------------------------------------------


def place_in_fewest_pieces(
    devices: DeviceState, relaxation: Relaxation, in_time: Callable[[], bool] = lambda: True
) -> Assignment | None:
    """Place every table in as few pieces as fit a device, longest first; None if some piece finds no room in time.

    Tables that find no room are split further. If that fails, because all tables together need more bytes in this form
    than the devices have, each takes its cheapest option at a price on memory instead, and the heaviest are placed
    first.
    """
    choice = fewest_pieces_options(relaxation)
    if not relaxation.option_fits[choice].all():
        return None
    if assignment := _place_splitting(devices, relaxation, choice, devices.seconds, in_time):
        return assignment
    least = fitting_price(lambda p: relaxation.choose(SelectionLimits(price=p)), float(devices.problem.capacity.sum()))
    for price in (*(least * scale for scale in PRICES), DEAREST):
        if not in_time():
            return None
        choice = relaxation.choose(SelectionLimits(price=price)).option
        assignment = place_and_repair(devices, choice, relaxation.piece_bytes)
        if assignment.complete:
            return assignment
    return _place_splitting(devices, relaxation, choice, relaxation.piece_bytes, in_time)


def _place_splitting(
    devices: DeviceState, relaxation: Relaxation, choice: Ints, order: Floats, in_time: Callable[[], bool]
) -> Assignment | None:
    """Place the chosen options (T,) in falling order (P,), and split tables that find no room further, round by round.

    Returns None if a piece finds no room in time, or if the options need more bytes than all devices have, as row-wise
    options of large outputs do.
    """
    choice = choice.copy()
    for _ in range(max(len(devices.problem.tables), FEWEST_ROUNDS)):
        if not in_time() or not all_fit(relaxation, choice):
            return None
        assignment = place_and_repair(devices, choice, order)
        if assignment.complete:
            return assignment
        lost = np.unique(assignment.table[assignment.target == NOWHERE])
        finer = np.array([finer_option(relaxation, int(choice[t])) for t in lost])
        if (finer == NO_PIECE).all():
            return None
        choice[lost] = np.where(finer == NO_PIECE, choice[lost], finer)
    return None


def place_and_repair(devices: DeviceState, choice: Ints, order: Floats) -> Assignment:
    """Place the chosen options (T,) on empty devices in falling order (P,), and repair; pieces may stay unplaced."""
    devices.clear()
    assignment = Assignment.of(devices.problem, choice)
    place_longest_first(devices, assignment, order)
    repair(devices, assignment)
    return assignment


def fewest_pieces_options(relaxation: Relaxation) -> Ints:
    """Each table's option (T,) with the fewest pieces among those that fit an empty device."""
    options = relaxation.problem.options
    pieces = np.where(relaxation.option_fits, options.count.sum(axis=1), np.iinfo(np.int64).max)
    order = np.lexsort((np.arange(len(pieces)), pieces, options.table))
    return order[options.start[:-1]]


def all_fit(relaxation: Relaxation, choice: Ints) -> bool:
    """Whether the chosen options (T,) need no more bytes than all devices have together."""
    return relaxation.option_bytes[choice].sum() <= float(relaxation.problem.capacity.sum())


def finer_option(relaxation: Relaxation, option: int) -> int:
    """The option of the same table with the fewest pieces among those with lighter ones; NO_PIECE if there is none."""
    problem = relaxation.problem
    own = np.flatnonzero(problem.options.table == problem.options.table[option])
    finer = own[relaxation.option_fits[own] & (relaxation.option_heaviest[own] < relaxation.option_heaviest[option])]
    return int(finer[problem.options.count[finer].sum(axis=1).argmin()]) if finer.size else NO_PIECE


# --- constraints ------------------------------------------------------------------------------------------------------


def mended(evaluator: Evaluator, footprint: Footprint) -> Footprint | None:
    """A plan near this one that keeps the constraints; None if none was found."""
    draft = mended_draft(evaluator, footprint)
    return draft.footprint(evaluator.problem) if draft else None


def mended_draft(evaluator: Evaluator, footprint: Footprint) -> Assignment | None:
    """Like `mended`, as an assignment; tables whose split is no option are placed again as well."""
    problem = evaluator.problem
    legality, relaxation = problem.legality, shared_relaxation(evaluator)
    simplest = fewest_pieces_options(relaxation)
    if not relaxation.option_fits[simplest].all():
        return None
    known = Assignment.options_of(problem, footprint)
    broken = legality.broken(footprint) | (known == NO_PIECE)
    allowed = np.where(known == NO_PIECE, False, relaxation.option_fits[known])
    for choice in (np.where(broken & ~allowed, simplest, known), np.where(broken, simplest, known)):
        draft = _placed_again(evaluator, footprint, choice, broken)
        if draft is not None and legality.holds(draft.footprint(problem)):
            return draft
    return None


def _placed_again(evaluator: Evaluator, footprint: Footprint, choice: Ints, broken: Bools) -> Assignment | None:
    """The options (T,) with the pieces of broken tables (T,) placed anew; None if a piece finds no room."""
    problem, devices = evaluator.problem, DeviceState(evaluator)
    draft = Assignment.of(problem, choice)
    kept = ~broken[problem.modes.table[footprint.mode]]
    draft.target[~broken[draft.table]] = _in_order(problem, footprint, kept)
    for piece, target in zip(draft.piece.tolist(), draft.target.tolist(), strict=True):
        if target != NOWHERE:
            devices.place(piece, target)
    return placed_rest(devices, draft)


def placed_rest(devices: DeviceState, draft: Assignment) -> Assignment | None:
    """Place a draft's unplaced pieces longest first, and repair; None if a piece finds no room."""
    lost = np.flatnonzero(draft.target == NOWHERE)
    part = Assignment(draft.option, draft.table[lost], draft.piece[lost], draft.target[lost])
    place_longest_first(devices, part, devices.seconds)
    draft.target[lost] = part.target
    repair(devices, draft)
    return draft if draft.complete else None


def _in_order(problem: Problem, footprint: Footprint, kept: Bools) -> Ints:
    """The targets of kept pieces (N,), in the order of assignments."""
    return ordered_footprint(problem, footprint.mode[kept], footprint.width[kept], footprint.target[kept]).target
