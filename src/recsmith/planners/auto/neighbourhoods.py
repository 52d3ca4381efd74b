"""Large neighbourhoods: a handful of tables of a plan are laid anew, any way there is, while all others stay.

CP-SAT of OR-Tools finds the best of these plans, or gives up after a fixed amount of work. Two kinds of handful take
turns: tables of a slowest rank and of some others, and any tables. Handfuls grow where they are soon searched, and
shrink where they are not; once many in a row have found nothing, each gets more work and finer widths.

Legend: T tables, S shares, W ranks, F phases.
"""

from typing import Any

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.costs import Evaluator, device_sums, step_seconds
from recsmith.planners.solver.dominance import useful_shares
from recsmith.planners.solver.fixed_tables import FixedTables, merged
from recsmith.planners.solver.layouts import all_shares, choices_of
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.planners.solver.rebuilding import rebuilt_from
from recsmith.problems import Footprint, Problem, fits, spread
from recsmith.sharding import WIDTH_STEP

WORK = 0.8  # where no budget says how much: units of CP-SAT, a second or two each
UNITS, MODEL = 0.1, 0.03  # of work: for a handful at first, and what its model takes
HANDFUL, LEAST = 6, 3  # tables: at first, and at least
GROWTH = 4  # handfuls grow by one in so many tables
WIDTHS = 32  # of a table, evenly spaced, at first
PATIENCE, LEVELS = 30, 4  # handfuls in a row that find nothing before work and widths double, and how often they do
MOST_CHOICES = 20_000  # of a problem: more take long to list
LESS = 1e-6  # relative: better plans than that are asked for
SETTINGS: dict[str, Any] = {"cp_model_probing_level": 0, "symmetry_level": 0, "catch_sigint_signal": False}


class Neighbourhoods:
    """A plan, and better ones near it. over: nothing is left to try."""

    def __init__(self, evaluator: Evaluator, footprint: Footprint, total_s: float, seed: int) -> None:
        self.evaluator, self.problem, self.total_s = evaluator, evaluator.problem, total_s
        shares = all_shares(evaluator)
        self.faces = linear_pieces_of(evaluator, shares.terms)
        self.shares = useful_shares(evaluator, shares) if self.faces else shares
        self.table: Ints = np.array([layout.table for layout in self.shares.layouts])[self.shares.layout]  # (S,)
        useful = rebuilt_from(evaluator, self.shares, footprint)
        same = useful is not None and step_seconds(evaluator, useful) <= total_s * (1 + LESS)
        self.footprint = useful if useful and same and fits(self.problem, useful) else footprint
        self.random = np.random.default_rng(seed)
        self.handful = [HANDFUL, HANDFUL]  # tables, of each kind
        self.tried = self.vain = 0
        self.spent = 0.0
        self.over = self.faces is None

    @staticmethod
    def suit(problem: Problem) -> bool:
        """Whether all ways to lay the tables of a problem are quickly listed."""
        return choices_of(problem) <= MOST_CHOICES

    @property
    def level(self) -> int:
        """How often work and widths have doubled."""
        return min(self.vain // PATIENCE, LEVELS)

    def next(self, seconds: float | None = None) -> Footprint | None:
        """A better plan among the next neighbourhood, or None; `seconds` are the most that it may take."""
        from recsmith.planners.solver.cp_sat import solve
        from recsmith.planners.solver.cp_sat_model import SpaceModel

        assert self.faces is not None
        kind = self.tried % len(self.handful)
        free = self._slow() if kind == 0 else self._any()
        shares = self.shares.take(free[self.table] & self._spaced())
        kept = FixedTables.of(self.evaluator, self.footprint, free)
        space = SpaceModel(self.evaluator, shares, self.faces, self.total_s * (1 - LESS), fixed=kept)
        limits = {"max_deterministic_time": UNITS * 2**self.level}
        limits |= {} if seconds is None else {"max_time_in_seconds": max(seconds, 0.0)}
        outcome = solve(space, {**SETTINGS, **limits})
        searched = outcome.proven or outcome.impossible
        self.over = searched and len(shares.layout) == len(self.shares.layout)
        size = self.handful[kind]
        self.handful[kind] = min(len(free), size + max(1, size // GROWTH)) if searched else max(LEAST, size - 1)
        self.tried, self.vain, self.spent = self.tried + 1, self.vain + 1, self.spent + outcome.spent + MODEL
        return merged(self.problem, self.footprint, free, outcome.best) if outcome.best else None

    def take(self, footprint: Footprint, total_s: float) -> None:
        """Go on from a better plan."""
        self.footprint, self.total_s = footprint, total_s
        self.vain = self.level * PATIENCE

    # --- which tables, and which widths -----------------------------------------------------------------------------

    def _any(self) -> Bools:
        """Any tables (T,)."""
        return self._the_first(self.random.permutation(len(self.problem.tables)), self.handful[1])

    def _slow(self) -> Bools:
        """Tables (T,) of the slowest rank of a phase, then of other ranks; none that stand on all of them."""
        footprint, world = self.footprint, len(self.problem.capacity)
        held = np.zeros((len(footprint.mode), len(self.problem.tables)))
        held[np.arange(len(held)), self.problem.modes.table[footprint.mode]] = 1
        on = spread(held, footprint, self.problem) > 0  # (W, T)
        on &= ~on.all(axis=0)
        phases = self.evaluator.loads(device_sums(self.evaluator, footprint)).sum(axis=2)  # (F, W)
        slowest = int(phases[self.random.integers(len(phases))].argmax())
        ranks = [slowest, *self.random.permutation(world).tolist()]
        tables = np.concatenate([self.random.permutation(np.flatnonzero(on[rank])) for rank in ranks])
        return self._the_first(tables, self.handful[0]) if tables.size else self._any()

    def _the_first(self, tables: Ints, number: int) -> Bools:
        """The first of some tables, as many different ones, as a mask (T,)."""
        free = np.zeros(len(self.problem.tables), dtype=bool)
        free[list(dict.fromkeys(tables.tolist()))[:number]] = True
        return free

    def _spaced(self) -> Bools:
        """Shares (S,) of some columns, evenly spaced, and of those that pieces have now."""
        dim, columns = self.problem.demand.dim[self.table], self.shares.columns
        step = WIDTH_STEP * -(-dim // (WIDTHS * 2**self.level * WIDTH_STEP))
        table, most = self.problem.modes.table[self.footprint.mode], int(dim.max()) + 1
        now = np.isin(self.table * most + columns, table * most + self.footprint.width)
        return (columns % step == 0) | (columns == dim) | now
