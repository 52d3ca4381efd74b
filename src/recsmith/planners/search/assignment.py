"""Longest-first placement and its repair: shared by every planner.

Legend: T tables, P pieces, N placed pieces.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.planners.search.device_state import QUANTUM, DeviceState
from recsmith.problems import NO_PIECE, Footprint, Problem
from recsmith.sharding import Span

NOWHERE = -1
LONGEST_CHAIN = 64  # pieces that one repair may push on


@dataclass
class Assignment:
    """One option per table (T,), and a target for each piece of it (N,); NOWHERE while it has none."""

    option: Ints
    table: Ints
    piece: Ints
    target: Ints

    @classmethod
    def of(cls, problem: Problem, choice: Ints) -> "Assignment":
        """The pieces of the chosen options, in order of tables, wide first, none placed yet."""
        piece, count = problem.options.piece[choice], problem.options.count[choice]
        table = np.repeat(np.arange(len(choice)), count.sum(axis=1))
        pieces = np.repeat(piece.ravel(), count.ravel())
        return cls(choice, table, pieces[pieces != NO_PIECE], np.full(len(table), NOWHERE))

    @classmethod
    def from_footprint(cls, problem: Problem, footprint: Footprint) -> "Assignment | None":
        """The assignment of placed pieces; None where a table is split in a way that is none of its options."""
        table = problem.modes.table[footprint.mode]
        order = np.lexsort((footprint.target, -footprint.width, table))
        mode, width, target = footprint.mode[order], footprint.width[order], footprint.target[order]
        start = np.searchsorted(table[order], np.arange(len(problem.tables) + 1)).tolist()
        choice = np.array(
            [_option_of(problem, t, int(mode[a]), width[a:b]) for t, (a, b) in enumerate(pairwise(start))]
        )
        if (choice == NO_PIECE).any():
            return None
        made = cls.of(problem, choice)
        made.target[:] = target
        return made

    @classmethod
    def of_table(cls, option: int, piece: Ints, target: Ints) -> "Assignment":
        """The pieces of one table alone."""
        return cls(np.array([option]), np.zeros(len(piece), dtype=np.int64), piece, target)

    def footprint(self, problem: Problem) -> Footprint:
        """Where the pieces stand."""
        return Footprint(problem.pieces.mode[self.piece], problem.pieces.width[self.piece], self.target)

    @property
    def complete(self) -> bool:
        """Whether every piece stands somewhere."""
        return bool((self.target != NOWHERE).all())


def _option_of(problem: Problem, table: int, mode: int, widths: Ints) -> int:
    """The option of a table with this mode and these widths (wide first), or NO_PIECE."""
    options = problem.options
    own = np.arange(int(options.start[table]), int(options.start[table + 1]))
    own = own[(options.mode[own] == mode) & (options.count[own].sum(axis=1) == len(widths))]
    for option in own.tolist():
        pieces = np.repeat(options.piece[option], options.count[option])
        if np.array_equal(problem.pieces.width[pieces], widths):
            return option
    return NO_PIECE


def place_longest_first(ledger: DeviceState, assignment: Assignment, order: Floats) -> None:
    """Put each piece, in falling `order` (P,), on the target that it suits best among those with room.

    Pieces of the whole world go first, then those of hosts, then those of ranks. Equal loads go to the lowest target.
    Cost: N steps over W ranks.
    """
    span = ledger.span[assignment.piece]
    ledger.expect(assignment.piece)
    mean = max(float((ledger.seconds[assignment.piece]).sum()) / len(ledger.free), 1e-300)
    if ledger.powered:
        mean *= QUANTUM  # powers of small loads are smaller still
    sequence = np.lexsort((np.arange(len(span)), -order[assignment.piece], -span))
    for i in sequence.tolist():
        place_best(ledger, assignment, i, mean * QUANTUM)


def place_best(ledger: DeviceState, assignment: Assignment, i: int, quantum: float) -> bool:
    """Put piece i on its best target; False where none has room."""
    piece = int(assignment.piece[i])
    room = ledger.fits(piece) & allowed_targets(ledger, assignment, i)
    if not room.any():
        return False
    score = np.where(room, ledger.preference(piece) / quantum, np.inf)
    target = int(np.floor(score, out=score).argmin())
    ledger.place(piece, target)
    assignment.target[i] = target
    return True


def allowed_targets(ledger: DeviceState, assignment: Assignment, i: int) -> Bools:
    """Targets that the type leaves to piece i, given the other pieces of its table; broadcasts over all targets."""
    if not ledger.tied[assignment.option[assignment.table[i]]]:
        return np.ones(1, dtype=bool)
    others = siblings(assignment, i)
    others = others[assignment.target[others] != NOWHERE]
    allowed = np.ones(len(ledger.free), dtype=bool)
    allowed[assignment.target[others][assignment.piece[others] != assignment.piece[i]]] = False  # other widths
    if others.size and ledger.on_one_host[assignment.option[assignment.table[i]]]:
        allowed &= np.arange(len(allowed)) // ledger.local == assignment.target[others[0]] // ledger.local
    return allowed


def siblings(assignment: Assignment, i: int) -> Ints:
    """The other pieces of the table of piece i."""
    first, last = np.searchsorted(assignment.table, [assignment.table[i], assignment.table[i] + 1])
    return np.array([j for j in range(first, last) if j != i], dtype=np.int64)


def repair(ledger: DeviceState, assignment: Assignment) -> None:
    """Find room for pieces that have none: each pushes a smaller piece away, which pushes a smaller one, and so on.

    Only pieces of single ranks move. Pieces that still stand nowhere stay so.
    """
    lost = np.flatnonzero(assignment.target == NOWHERE)
    need = ledger.problem.pieces.tail.device[assignment.piece[lost]]
    for i in lost[np.argsort(-need, kind="stable")].tolist():
        _push(ledger, assignment, i)


def _push(ledger: DeviceState, assignment: Assignment, i: int) -> None:
    """A chain of ever smaller pieces, each taking the place of the next; undone if the last finds no room."""
    mean = max(float(ledger.load.mean()), 1e-300)
    done: list[tuple[int, int]] = []  # (piece pushed, its old target)
    for _ in range(LONGEST_CHAIN):
        if place_best(ledger, assignment, i, mean * QUANTUM):
            return
        victim = _victim(ledger, assignment, i)
        if victim == NOWHERE:
            break
        target = int(assignment.target[victim])
        ledger.place(int(assignment.piece[victim]), target, -1)
        assignment.target[victim] = NOWHERE
        ledger.place(int(assignment.piece[i]), target)
        assignment.target[i] = target
        done.append((i, victim))
        i = victim
    for pusher, victim in reversed(done):
        target = int(assignment.target[pusher])
        ledger.place(int(assignment.piece[pusher]), target, -1)
        assignment.target[pusher] = NOWHERE
        ledger.place(int(assignment.piece[victim]), target)
        assignment.target[victim] = target


def _victim(ledger: DeviceState, assignment: Assignment, i: int) -> int:
    """The smallest placed piece that makes room for piece i where it stands, and is itself smaller."""
    piece = assignment.piece[i]
    if ledger.span[piece] != Span.RANK:
        return NOWHERE
    device, host = ledger.problem.pieces.tail.device, ledger.problem.pieces.tail.host
    movable = (ledger.span[assignment.piece] == Span.RANK) & (assignment.target != NOWHERE)
    others = np.flatnonzero(movable)
    target = assignment.target[others]
    size, held = device[assignment.piece[others]], host[assignment.piece[others]]
    makes_room = ledger.free[target] + size >= device[piece]
    makes_room &= ledger.host_free[target // ledger.local] + held >= host[piece]
    allowed = np.broadcast_to(allowed_targets(ledger, assignment, i), ledger.free.shape)
    makes_room &= (size < device[piece]) & allowed[target]
    makes_room &= ~ledger.tied[assignment.option[assignment.table[others]]]
    if not makes_room.any():
        return NOWHERE
    size = np.where(makes_room, size, np.iinfo(np.int64).max)
    return int(others[size.argmin()])
