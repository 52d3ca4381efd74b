"""Local search around the ranks that decide the step: move or swap their pieces, or lay one of their tables anew.

Every change keeps legality and memory and lowers a smooth stand-in of the step: in each phase, the norm of all loads to
a power so high that the slowest ranks decide. The search ends where no single change lowers it.

Legend: W ranks, T tables, N placed pieces, m pieces of a slowest rank, n their partners, F phases.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.relaxation import Relaxation
from recsmith.planners._assignment import NOWHERE, Assignment, place_best
from recsmith.planners._ledger import QUANTUM, Ledger
from recsmith.problems import NO_PIECE, option_pieces
from recsmith.sharding import Span

LEAST_GAIN = 1e-7  # of a slowest rank's load; smaller gains are not worth a change
SHARPNESS = 24  # power of the loads whose sum a change must lower
MOST_PIECES = 64  # of a slowest rank that are tried against all others
MOST_PARTNERS = 4096  # pieces of other ranks, of the least loaded first, that they are swapped for
MOST_TABLES = 24  # of a slowest rank that are laid anew in one round


@dataclass
class _Best:
    """The best trial so far."""

    score: float
    table: int = NOWHERE
    option: int = NO_PIECE


class LocalSearch:
    """A plan under improvement, change by change."""

    def __init__(self, ledger: Ledger, relaxation: Relaxation, draft: Assignment) -> None:
        self.ledger, self.relaxation = ledger, relaxation
        first = np.searchsorted(draft.table, np.arange(1, len(draft.option)))
        pieces, targets = np.split(draft.piece, first), np.split(draft.target.copy(), first)
        tables = zip(draft.option.tolist(), pieces, targets, strict=True)
        self.parts: list[Assignment] = [Assignment.of_table(*table) for table in tables]
        ledger.clear()
        ledger.expect(draft.piece)
        for part in self.parts:
            self._place(part)
        self._flatten()

    def assignment(self) -> Assignment:
        """All tables' pieces, in order of tables."""
        option = np.concatenate([part.option for part in self.parts])
        return Assignment(option, self.table, self.piece, self.target.copy())

    def _flatten(self) -> None:
        sizes = [len(part.piece) for part in self.parts]
        self.table = np.repeat(np.arange(len(self.parts)), sizes)
        self.index = np.concatenate([np.arange(size) for size in sizes])
        self.piece = np.concatenate([part.piece for part in self.parts])
        self.target = np.concatenate([part.target for part in self.parts])
        option = np.concatenate([part.option for part in self.parts])
        self.free = (self.ledger.span[self.piece] == int(Span.RANK)) & ~self.ledger.tied[option[self.table]]

    def round(self) -> bool:
        """One change that helps a slowest rank; False where there is none."""
        self._look()
        worst = list(dict.fromkeys(self.ledger.loads.argmax(axis=1).tolist()))
        return any(self._shift(rank) for rank in worst) or any(self._lay_anew(rank) for rank in worst)

    # --- what is lowered --------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Take the loads as they are for reference: their maxima, powers, and what a power weighs in seconds."""
        ledger = self.ledger
        self.reference = np.maximum((ledger.loads + ledger.common[:, None]).max(axis=1), 1e-300)  # (F,)
        self.ratio = (ledger.loads + ledger.common[:, None]) / self.reference[:, None]  # (F, W)
        self.power = _sharpen(self.ratio)
        self.weight = self.reference * self.power.sum(axis=1) ** (1 / SHARPNESS - 1) / SHARPNESS
        self.score = float(self.weight @ self.power.sum(axis=1))

    def _score_now(self) -> float:
        """The weighed powers of the loads as they now are: the norm's tangent, which the norm never exceeds."""
        ledger = self.ledger
        ratio = (np.maximum(ledger.loads, 0.0) + ledger.common[:, None]) / self.reference[:, None]
        return float(self.weight @ _sharpen(ratio).sum(axis=1))

    def _goal(self, rank: int) -> float:
        """The score that a change for this rank must reach."""
        return self.score - LEAST_GAIN * SHARPNESS * float(self.weight @ self.power[:, rank])

    # --- move and swap ----------------------------------------------------------------------------------------------

    def _shift(self, worst: int) -> bool:
        """Move a piece of a slowest rank, or swap it for another, whichever lowers the score most."""
        ledger = self.ledger
        mine = np.flatnonzero(self.free & (self.target == worst))
        if not mine.size:
            return False
        mine = mine[np.argsort(-ledger.seconds[self.piece[mine]], kind="stable")][:MOST_PIECES]
        moves, others = self._moves(worst, mine), self._partners(worst)
        swaps = self._swaps(worst, mine, others)
        move, swap = moves.min(initial=np.inf), swaps.min(initial=np.inf)
        goal = self._goal(worst)
        if self.score + min(move, swap) >= goal:
            return False
        if move <= swap:
            i, target = np.unravel_index(int(moves.argmin()), moves.shape)
            return self._exchange([(int(mine[i]), int(target))], goal)
        i, j = np.unravel_index(int(swaps.argmin()), swaps.shape)
        partner = int(others[j])
        return self._exchange([(int(mine[i]), int(self.target[partner])), (partner, worst)], goal)

    def _moves(self, worst: int, mine: Ints) -> Floats:
        """How each move of a piece to a rank changes the score (m, W); infinite where memory forbids it."""
        ledger = self.ledger
        size = ledger.problem.pieces.tail.device[self.piece[mine]]
        fits: Bools = (ledger.free[None, :] >= size[:, None]) & (np.arange(len(ledger.free)) != worst)
        own = ledger.marginal[:, self.piece[mine]] / self.reference[:, None]  # (F, m)
        return np.where(fits, self._change(worst, slice(None), own[:, :, None]), np.inf)

    def _swaps(self, worst: int, mine: Ints, others: Ints) -> Floats:
        """How each swap of two pieces changes the score (m, n); infinite where memory forbids it."""
        ledger, rank, tail = self.ledger, self.target[others], self.ledger.problem.pieces.tail.device
        grown = tail[self.piece[mine]][:, None] - tail[self.piece[others]]
        fits: Bools = (ledger.free[rank] >= grown) & (ledger.free[worst] >= -grown)
        seconds = ledger.marginal / self.reference[:, None]
        given = seconds[:, self.piece[mine]][:, :, None] - seconds[:, self.piece[others]][:, None, :]  # (F, m, n)
        return np.where(fits, self._change(worst, rank, given), np.inf)

    def _change(self, worst: int, rank: Ints | slice, given: Floats) -> Floats:
        """How the score changes when the slowest rank gives loads (F, m, n) to other ranks (n,)."""
        total = np.zeros(np.broadcast_shapes(given.shape[1:], (1, self.ratio[0, rank].size)))
        for phase, weight in enumerate(self.weight.tolist()):
            before = self.power[phase, worst] + self.power[phase, rank]
            left = _sharpen(np.maximum(self.ratio[phase, worst] - given[phase], 0.0))
            total += weight * (left + _sharpen(self.ratio[phase, rank] + given[phase]) - before)
        return total

    def _partners(self, worst: int) -> Ints:
        """Pieces of other ranks, of the least loaded ranks first."""
        others = np.flatnonzero(self.free & (self.target != worst))
        if len(others) <= MOST_PARTNERS:
            return others
        load = self.ledger.load[self.target[others]]
        return np.sort(others[np.argsort(load, kind="stable")[:MOST_PARTNERS]])

    def _exchange(self, changes: list[tuple[int, int]], goal: float) -> bool:
        """Put pieces on other ranks; undone where host memory or the true loads say no."""
        before = [(slot, int(self.target[slot])) for slot, _ in changes]
        self._put(changes)
        if (self.ledger.host_free >= 0).all() and self._score_now() < goal:
            return True
        self._put(before)
        return False

    def _put(self, changes: list[tuple[int, int]]) -> None:
        for slot, target in changes:
            piece = int(self.piece[slot])
            self.ledger.place(piece, int(self.target[slot]), -1)
            self.ledger.place(piece, target)
            self.target[slot] = target
            part: Assignment = self.parts[int(self.table[slot])]
            part.target[int(self.index[slot])] = target

    # --- lay a table anew -------------------------------------------------------------------------------------------

    def _lay_anew(self, worst: int) -> bool:
        """Give one table of a slowest rank another option, wherever its pieces then fit best."""
        best = _Best(self._goal(worst))
        for table in self._tables_of(worst):
            old = self.parts[table]
            self._place(old, -1)
            for option in self._options(table):
                trial = self._trial(option)
                if trial is not None:
                    score = self._score_now()
                    if score < best.score:
                        best = _Best(score, table, option)
                    self._place(trial, -1)
            self._place(old)
        if best.table == NOWHERE:
            return False
        self._place(self.parts[best.table], -1)
        again = self._trial(best.option)
        assert again is not None, "a trial that fitted once fits again"
        self.parts[best.table] = again
        self._flatten()
        return True

    def _tables_of(self, worst: int) -> list[int]:
        """Tables with a piece on a rank, those first that cost it most."""
        ledger = self.ledger
        covers = self.target == worst // np.maximum(ledger.coverage[self.piece], 1)
        here = np.flatnonzero(covers)
        order = here[np.argsort(-ledger.seconds[self.piece[here]], kind="stable")]
        return list(dict.fromkeys(self.table[order].tolist()))[:MOST_TABLES]

    def _options(self, table: int) -> list[int]:
        """Options whose extra work still fits below the slowest ranks, were all loads level."""
        relaxation, load = self.relaxation, self.ledger.load
        options, most = relaxation.problem.options, float(self.reference.sum())
        own = np.arange(int(options.start[table]), int(options.start[table + 1]))
        level = float(load.sum()) + relaxation.option_seconds[own]
        fits = relaxation.option_fits[own] & (relaxation.option_largest[own] < most)
        return own[fits & (level < most * len(load))].tolist()

    def _trial(self, option: int) -> Assignment | None:
        """The option's pieces, placed; None (and nothing placed) where one finds no room."""
        pieces = np.array(option_pieces(self.ledger.problem, option), dtype=np.int64)
        part = Assignment.of_table(option, pieces, np.full(len(pieces), NOWHERE))
        for i in range(len(pieces)):
            if not place_best(self.ledger, part, i, float(self.reference.sum()) * QUANTUM):
                self._place(part, -1)
                return None
        return part

    def _place(self, part: Assignment, sign: int = 1) -> None:
        for piece, target in zip(part.piece.tolist(), part.target.tolist(), strict=True):
            if target != NOWHERE:
                self.ledger.place(piece, target, sign)


def _sharpen(ratio: Floats) -> Floats:
    """Ratio ** SHARPNESS (24), by squaring."""
    square = ratio * ratio
    eighth = square * square
    eighth *= eighth
    return eighth * eighth * eighth
