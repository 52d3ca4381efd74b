"""Local search around the ranks that decide the step: move or swap pieces, lay a table anew, or several at once.

Every change keeps legality and memory and lowers the aim (_crowd.py). Three kinds are tried, the next where the one
before finds nothing: a piece of a slowest rank moves or is swapped for another; a table of a slowest rank is taken out
and laid in the best of all ways; several tables, some of a slowest rank and some not, are taken out and laid again one
after the other, in many plans side by side.

Legend: W ranks, T tables, N placed pieces, m pieces of a slowest rank, n their partners, F phases.
"""

from collections.abc import Callable

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.relaxation import Relaxation
from recsmith.planners.search.assignment import Assignment
from recsmith.planners.search.device_state import DeviceState
from recsmith.planners.search.smooth_max import SmoothMax, sharpen
from recsmith.planners.search.trials import MOST_PIECES, PlanCopies, Trial
from recsmith.sharding import Span

LEAST_GAIN = 1e-7  # of a slowest rank's load; smaller gains are not worth a change
SHARPNESS = (24, 96, 384)  # powers of the loads whose sum is lowered, in turn
MOST_MOVED = 64  # pieces of a slowest rank that are tried against all others
MOST_PARTNERS = 4096  # pieces of other ranks, of the least loaded first, that they are swapped for
MOST_TABLES = 24  # of a slowest rank that are laid anew in one round
PLANS = 32  # side by side, from each of which several tables are taken out
MOST_OUT = 6  # tables that are taken out at once
FEW_PIECES = 12  # of a table that is taken out together with others
MOST_OPTIONS = 24  # of a table that are tried when several are out: the cheapest

OptionsOf = Callable[[int], Ints]


class LocalSearch:
    """A plan under improvement, change by change."""

    def __init__(self, ledger: DeviceState, relaxation: Relaxation, draft: Assignment, seed: int = 0) -> None:
        self.ledger, self.relaxation = ledger, relaxation
        self.crowd = PlanCopies.of(ledger, draft)
        self.random = np.random.default_rng(seed)
        self.sharpness = SHARPNESS[0]
        self.options: dict[tuple[int, int], Ints] = {}

    def assignment(self) -> Assignment:
        """All tables' pieces, in order of tables."""
        return self.crowd.assignment(0)

    @property
    def total(self) -> float:
        """Seconds of the step as it now is."""
        return float(self.crowd.totals()[0])

    def round(self, *, shake: bool) -> bool:
        """One change for the better; False where none was found. shake: also take several tables out at once."""
        loads = self.crowd.full_loads()[0]
        self.pieces = _Placed(self.ledger, self.crowd)
        self.aim = SmoothMax.at(loads, self.sharpness)
        self.powers = self.aim.powers(loads)
        self.score = float(self.powers.sum())
        worst = list(dict.fromkeys([int(self.powers.argmax()), *loads.argmax(axis=1).tolist()]))
        return (
            any(self._shift(rank) for rank in worst)
            or any(self._lay_anew(rank) for rank in worst)
            or (shake and self._shake(worst))
        )

    def _goal(self, rank: int) -> float:
        """The score that a change for a rank must reach."""
        return self.score - LEAST_GAIN * self.sharpness * float(self.powers[rank])

    # --- move and swap pieces -------------------------------------------------------------------------------------

    def _shift(self, worst: int) -> bool:
        """Move a piece of a slowest rank, or swap it for another, whichever lowers the score most."""
        pieces = self.pieces
        mine = np.flatnonzero(pieces.free & (pieces.target == worst))
        if not mine.size:
            return False
        mine = mine[np.argsort(-self.ledger.seconds[pieces.piece[mine]], kind="stable")][:MOST_MOVED]
        others = pieces.partners(worst, self.crowd.loads[0].sum(axis=0))
        moves, swaps = self._moves(pieces, worst, mine), self._swaps(pieces, worst, mine, others)
        move, swap, goal = moves.min(initial=np.inf), swaps.min(initial=np.inf), self._goal(worst)
        if self.score + min(move, swap) >= goal:
            return False
        if move <= swap:
            i, target = np.unravel_index(int(moves.argmin()), moves.shape)
            return self._exchange(pieces, [(int(mine[i]), int(target))], goal)
        i, j = np.unravel_index(int(swaps.argmin()), swaps.shape)
        partner = int(others[j])
        return self._exchange(pieces, [(int(mine[i]), int(pieces.target[partner])), (partner, worst)], goal)

    def _moves(self, pieces: "_Placed", worst: int, mine: Ints) -> Floats:
        """How each move of a piece to a rank changes the score (m, W); infinite where memory forbids it."""
        free = self.crowd.free[0]
        fits: Bools = (free[None, :] >= pieces.size[mine][:, None]) & (np.arange(len(free)) != worst)
        own = self.ledger.marginal[:, pieces.piece[mine]]  # (F, m)
        return np.where(fits, self._change(worst, slice(None), own[:, :, None]), np.inf)

    def _swaps(self, pieces: "_Placed", worst: int, mine: Ints, others: Ints) -> Floats:
        """How each swap of two pieces changes the score (m, n); infinite where memory forbids it."""
        free, rank = self.crowd.free[0], pieces.target[others]
        grown = pieces.size[mine][:, None] - pieces.size[others]
        fits: Bools = (free[rank] >= grown) & (free[worst] >= -grown)
        seconds = self.ledger.marginal
        given = seconds[:, pieces.piece[mine]][:, :, None] - seconds[:, pieces.piece[others]][:, None, :]  # (F, m, n)
        return np.where(fits, self._change(worst, rank, given), np.inf)

    def _change(self, worst: int, rank: Ints | slice, given: Floats) -> Floats:
        """How the score changes when the slowest rank gives seconds (F, m, n) to other ranks (n,)."""
        loads, aim = self.crowd.full_loads()[0], self.aim
        total = -self.powers[rank] - self.powers[worst]
        for load, reference, weight, seconds in zip(loads, aim.reference, aim.weight, given, strict=True):
            left = sharpen(np.maximum(load[worst] - seconds, 0.0) / reference, aim.sharpness)
            right = sharpen(np.maximum(load[rank] + seconds, 0.0) / reference, aim.sharpness)
            total = total + weight * (left + right)
        return total

    def _exchange(self, pieces: "_Placed", changes: list[tuple[int, int]], goal: float) -> bool:
        """Put pieces on other ranks; undone where host memory or the true loads say no."""
        before = [(slot, int(pieces.target[slot])) for slot, _ in changes]
        self._put(pieces, changes)
        if (self.crowd.host_free[0] >= 0).all() and self._score_now() < goal:
            return True
        self._put(pieces, before)
        return False

    def _put(self, pieces: "_Placed", changes: list[tuple[int, int]]) -> None:
        crowd = self.crowd
        for slot, target in changes:
            table = int(pieces.table[slot])
            option, spots = int(crowd.option[0, table]), crowd.spots[0][table].copy()
            spots[slot - pieces.start[table]] = target
            crowd.remove(0, table)
            crowd.insert(0, table, Trial(0.0, option, spots))

    def _score_now(self) -> float:
        return float(self.aim.score(self.crowd.full_loads()[0]))

    # --- lay tables anew --------------------------------------------------------------------------------------------

    def _lay_anew(self, worst: int) -> bool:
        """Give one table of a slowest rank the best of all its options, wherever its pieces then fit best."""
        tables = self._tables_of(worst)[:MOST_TABLES]
        without = self.crowd.take(np.zeros(len(tables), dtype=np.int64))
        for plan, table in enumerate(tables):
            without.remove(plan, table)
        found = self._best(without, tables, self._options_below)
        if not found:
            return False
        plan = min(found, key=lambda i: found[i].score)
        if found[plan].score >= self._goal(worst):
            return False
        self.crowd.remove(0, tables[plan])
        self.crowd.insert(0, tables[plan], found[plan])
        return True

    def _best(self, crowd: PlanCopies, tables: list[int], options_of: OptionsOf) -> dict[int, Trial]:
        """The best trial of one table in each plan."""
        options = [options_of(table) for table in tables]
        plan = np.repeat(np.arange(len(tables)), [len(some) for some in options])
        return crowd.best(plan, plan, np.concatenate(options), self.aim) if len(plan) else {}

    def _tables_of(self, worst: int) -> list[int]:
        """Tables with a piece on a rank, those first that cost it most."""
        pieces, ledger = self.pieces, self.ledger
        here = np.flatnonzero(pieces.target == worst // ledger.coverage[pieces.piece])
        order = here[np.argsort(-ledger.seconds[pieces.piece[here]], kind="stable")]
        return list(dict.fromkeys(pieces.table[order].tolist()))

    def _options_below(self, table: int) -> Ints:
        """Options whose extra work still fits below the slowest ranks, were all loads level."""
        relaxation, loads = self.relaxation, self.crowd.loads[0]
        own, most = self._options(table, MOST_PIECES), float(self.aim.reference.sum())
        level = float(loads.sum()) + relaxation.option_seconds[own]
        return own[(relaxation.option_largest[own] < most) & (level < most * loads.shape[1])]

    def _options(self, table: int, most: int) -> Ints:
        """The options of a table that fit an empty device, in not too many pieces, nor many more than ranks."""
        most = min(most, self.ledger.loads.shape[1] + 4)
        if (table, most) not in self.options:
            options = self.relaxation.problem.options
            own = np.arange(int(options.start[table]), int(options.start[table + 1]))
            count = options.count[own].sum(axis=1)
            fits = self.relaxation.option_fits[own]
            few = count <= max(most, int(count[fits].min(initial=most)))
            self.options[table, most] = own[fits & few]
        return self.options[table, most]

    def _cheapest(self, table: int) -> Ints:
        """The cheapest options of a table."""
        own = self._options(table, FEW_PIECES)
        return own[np.argsort(self.relaxation.option_seconds[own], kind="stable")[:MOST_OPTIONS]]

    # --- several tables at once -------------------------------------------------------------------------------------

    def _shake(self, worst: list[int]) -> bool:
        """Take some tables out of copies of the plan and lay them again in a random order; keep the best copy."""
        out = [self._some_tables(worst) for _ in range(PLANS)]
        crowd = self.crowd.take(np.zeros(PLANS, dtype=np.int64))
        for plan, tables in enumerate(out):
            for table in tables:
                crowd.remove(plan, table)
        alive = list(range(PLANS))
        for turn in range(max(map(len, out))):
            waiting = [plan for plan in alive if turn < len(out[plan])]
            if not waiting:
                break
            found = self._best_in(crowd, waiting, [out[plan][turn] for plan in waiting])
            for i, plan in enumerate(waiting):
                if i in found:
                    crowd.insert(plan, out[plan][turn], found[i])
                else:
                    alive.remove(plan)
        if not alive:
            return False
        scores = self.aim.score(crowd.full_loads()[alive])
        best = int(scores.argmin())
        if scores[best] >= self._goal(worst[0]):
            return False
        self.crowd = crowd.take(np.array([alive[best]]))
        return True

    def _best_in(self, crowd: PlanCopies, plans: list[int], tables: list[int]) -> dict[int, Trial]:
        options = [self._cheapest(table) for table in tables]
        slot = np.repeat(np.arange(len(tables)), [len(some) for some in options])
        return crowd.best(slot, np.array(plans)[slot], np.concatenate(options), self.aim)

    def _some_tables(self, worst: list[int]) -> list[int]:
        """One or two tables of a slowest rank and some others, in random order."""
        rank = worst[int(self.random.integers(len(worst)))]
        here = self._tables_of(rank)
        count = int(self.random.integers(2, MOST_OUT + 1))
        mine = self.random.choice(here, size=min(len(here), int(self.random.integers(1, 3))), replace=False)
        others = self.random.choice(len(self.ledger.problem.tables), size=count, replace=True)
        chosen = list(dict.fromkeys([*mine.tolist(), *others.tolist()]))[:count]
        few = [table for table in chosen if self._pieces_of(int(table)) <= MOST_PIECES]
        return self.random.permutation(few).tolist()

    def _pieces_of(self, table: int) -> int:
        """Pieces that a table has now."""
        return len(self.crowd.spots[0][table])


class _Placed:
    """The pieces of a plan (N,), in order of tables."""

    def __init__(self, ledger: DeviceState, crowd: PlanCopies) -> None:
        spots: list[Ints] = crowd.spots[0]
        sizes = np.array([some.size for some in spots], dtype=np.int64)
        options = ledger.problem.options
        self.piece = np.repeat(options.piece[crowd.option[0]].ravel(), options.count[crowd.option[0]].ravel())
        self.target = np.concatenate(spots)
        self.table = np.repeat(np.arange(len(spots)), sizes)
        self.start = np.cumsum(sizes) - sizes
        self.size = ledger.problem.pieces.tail.device[self.piece]
        tied = ledger.tied[crowd.option[0]][self.table]
        self.free: Bools = (ledger.span[self.piece] == int(Span.RANK)) & ~tied

    def partners(self, worst: int, load: Floats) -> Ints:
        """Pieces of other ranks, of the least loaded ranks first."""
        others = np.flatnonzero(self.free & (self.target != worst))
        if len(others) <= MOST_PARTNERS:
            return others
        return np.sort(others[np.argsort(load[self.target[others]], kind="stable")[:MOST_PARTNERS]])
