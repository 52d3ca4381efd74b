"""Local search around the rank that decides the step: move or swap its pieces, or lay one of its tables differently.

Every change keeps legality and memory and makes the plan better: pieces go where both ranks end below the slowest, and
a table is laid anew only where the sum of high powers of all loads falls. The search ends where no single change helps.

Legend: W ranks, T tables, N placed pieces, m pieces of the slowest rank.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.relaxation import Relaxation
from recsmith.planners._assignment import NOWHERE, Assignment, place_best
from recsmith.planners._ledger import QUANTUM, Ledger
from recsmith.problems import NO_PIECE, option_pieces
from recsmith.sharding import Span

LEAST_GAIN = 1e-7  # relative; smaller gains are not worth a change
SHARPNESS = 24  # power of the loads whose sum a new layout must lower: high enough that the slowest ranks decide
MOST_PIECES = 64  # of the slowest rank that are tried against all others
MOST_TABLES = 24  # of the slowest rank that are laid anew in one round


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
        """One change that helps the slowest rank; False where there is none."""
        worst = int(self.ledger.load.argmax())
        return self._shift(worst) or self._lay_anew(worst)

    # --- move and swap ----------------------------------------------------------------------------------------------

    def _shift(self, worst: int) -> bool:
        """Move a piece of the slowest rank, or swap it for a lighter one, so that both ranks end below it."""
        ledger = self.ledger
        mine = np.flatnonzero(self.free & (self.target == worst))
        if not mine.size:
            return False
        seconds, size = ledger.seconds, ledger.problem.pieces.tail.device
        mine = mine[np.argsort(-seconds[self.piece[mine]], kind="stable")][:MOST_PIECES]
        own, own_size = seconds[self.piece[mine]][:, None], size[self.piece[mine]][:, None]
        goal = ledger.load[worst] * (1 - LEAST_GAIN)

        after = np.maximum(ledger.load[worst] - own, ledger.load[None, :] + own)  # (m, W)
        moves = np.where((ledger.free[None, :] >= own_size) & (np.arange(len(ledger.load)) != worst), after, np.inf)
        others = np.flatnonzero(self.free & (self.target != worst))
        swaps = self._swaps(worst, own, own_size, others)  # (m, N)
        move, swap = moves.min(initial=np.inf), swaps.min(initial=np.inf)
        if min(move, swap) >= goal:
            return False
        if move <= swap:
            i, target = np.unravel_index(int(moves.argmin()), moves.shape)
            return self._exchange([(int(mine[i]), int(target))], goal)
        i, j = np.unravel_index(int(swaps.argmin()), swaps.shape)
        partner = int(others[j])
        return self._exchange([(int(mine[i]), int(self.target[partner])), (partner, worst)], goal)

    def _swaps(self, worst: int, own: Floats, own_size: Ints, others: Ints) -> Floats:
        """Load of the slower of the two ranks after each swap (m, N); infinite where memory forbids it."""
        ledger, rank = self.ledger, self.target[others]
        gain = own - ledger.seconds[self.piece[others]]
        grown = own_size - ledger.problem.pieces.tail.device[self.piece[others]]
        fits: Bools = (ledger.free[rank] >= grown) & (ledger.free[worst] >= -grown)
        after = np.maximum(ledger.load[worst] - gain, ledger.load[rank] + gain)
        return np.where(fits & (gain > 0), after, np.inf)

    def _exchange(self, changes: list[tuple[int, int]], goal: float) -> bool:
        """Put pieces on other ranks; undone where host memory or the true loads say no."""
        ledger = self.ledger
        before = [(slot, int(self.target[slot])) for slot, _ in changes]
        self._put(changes)
        ranks = [target for _, target in changes + before]
        if (ledger.host_free >= 0).all() and ledger.load[ranks].max() < goal:
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
        """Give one table of the slowest rank another option, wherever its pieces then fit best."""
        self.reference = float(self.ledger.load[worst])
        best = _Best(self._score() * (1 - LEAST_GAIN))
        for table in self._tables_of(worst):
            old = self.parts[table]
            self._place(old, -1)
            for option in self._options(table):
                trial = self._trial(option)
                if trial is not None:
                    score = self._score()
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
        """Tables with a piece on the slowest rank, those first that cost it most."""
        ledger = self.ledger
        covers = self.target == worst // np.maximum(ledger.coverage[self.piece], 1)
        here = np.flatnonzero(covers)
        order = here[np.argsort(-ledger.seconds[self.piece[here]], kind="stable")]
        return list(dict.fromkeys(self.table[order].tolist()))[:MOST_TABLES]

    def _options(self, table: int) -> list[int]:
        """Options whose extra work still fits below the slowest rank, were all loads level."""
        relaxation, load = self.relaxation, self.ledger.load
        options = relaxation.problem.options
        own = np.arange(int(options.start[table]), int(options.start[table + 1]))
        level = float(load.sum()) + relaxation.option_seconds[own]
        fits = relaxation.option_fits[own] & (relaxation.option_largest[own] < self.reference)
        return own[fits & (level < self.reference * len(load))].tolist()

    def _trial(self, option: int) -> Assignment | None:
        """The option's pieces, placed; None (and nothing placed) where one finds no room."""
        pieces = np.array(option_pieces(self.ledger.problem, option), dtype=np.int64)
        part = Assignment.of_table(option, pieces, np.full(len(pieces), NOWHERE))
        for i in range(len(pieces)):
            if not place_best(self.ledger, part, i, self.reference * QUANTUM):
                self._place(part, -1)
                return None
        return part

    def _place(self, part: Assignment, sign: int = 1) -> None:
        for piece, target in zip(part.piece.tolist(), part.target.tolist(), strict=True):
            if target != NOWHERE:
                self.ledger.place(piece, target, sign)

    def _score(self) -> float:
        """Sum of high powers of the loads, over the slowest rank's: falls when slow ranks get faster."""
        return float(((np.maximum(self.ledger.load, 0.0) / self.reference) ** SHARPNESS).sum())
