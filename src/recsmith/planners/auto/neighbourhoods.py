"""Large neighbourhood search: a few tables of a plan are placed again in the best way, while all others stay fixed.

CP-SAT of OR-Tools finds the best of these plans, or gives up after a fixed amount of work. Two kinds of neighbourhood
take turns: tables of a slowest rank and of some others, and any tables. A neighbourhood grows if it is soon searched,
and shrinks if it is not. After many in a row without a gain, each gets more work and finer widths.

Legend: T tables, S shares, W ranks, F phases.
"""

from typing import Any

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.costs import Evaluator, device_sums, step_seconds
from recsmith.planners.solver.layouts import all_shares, choices_of, useful_shares
from recsmith.planners.solver.linear_pieces import linear_pieces_of
from recsmith.planners.solver.placed_tables import FixedTables, merged, rebuilt_from
from recsmith.problems import Footprint, Problem, fits, sum_per_group
from recsmith.sharding import WIDTH_STEP

WORK = 0.8  # deterministic units of CP-SAT, a second or two each: for all neighbourhoods if there is no budget
UNITS, MODEL = 0.1, 0.03  # in the same units: the most for a neighbourhood at first, and what building its model counts
FIRST_SIZE, LEAST_SIZE = 6, 3  # tables of a neighbourhood: at first, and at least
GROWTH = 4  # a neighbourhood grows by one table for this many
WIDTHS = 32  # widths of a table at first, evenly spaced; trade-off: more find better plans, but models get larger
PATIENCE, LEVELS = 30, 4  # neighbourhoods in a row without a gain before work and widths double; how often they double
MOST_CHOICES = 20_000  # widths of all tables times devices: more take long to list
LEAST_GAIN = 1e-6  # relative gain that a better plan must have at least
SETTINGS: dict[str, Any] = {"cp_model_probing_level": 0, "symmetry_level": 0, "catch_sigint_signal": False}


class Neighbourhoods:
    """A plan, and better plans near it.

    footprint, total_s: the plan and its seconds. sizes: tables of the next neighbourhood of each kind. tried: how many
    neighbourhoods there were; failures: how many in a row had no gain; spent: work, in deterministic units. over:
    whether no better plan is left to find.
    """

    def __init__(self, evaluator: Evaluator, footprint: Footprint, total_s: float, seed: int) -> None:
        self.evaluator, self.problem, self.total_s = evaluator, evaluator.problem, total_s
        shares = all_shares(evaluator)
        self.linear_pieces = linear_pieces_of(evaluator, shares.terms)
        self.shares = useful_shares(evaluator, shares) if self.linear_pieces else shares
        self.table: Ints = np.array([layout.table for layout in self.shares.layouts])[self.shares.layout]  # (S,)
        useful = rebuilt_from(evaluator, self.shares, footprint)
        same = useful is not None and step_seconds(evaluator, useful) <= total_s * (1 + LEAST_GAIN)
        self.footprint = useful if useful and same and fits(self.problem, useful) else footprint
        self.random = np.random.default_rng(seed)
        self.sizes = [FIRST_SIZE, FIRST_SIZE]
        self.tried = self.failures = 0
        self.spent = 0.0
        self.over = self.linear_pieces is None

    @staticmethod
    def suit(problem: Problem) -> bool:
        """Whether all widths and targets of a problem's tables are quickly listed."""
        return choices_of(problem) <= MOST_CHOICES

    @property
    def level(self) -> int:
        """How often work and widths have doubled."""
        return min(self.failures // PATIENCE, LEVELS)

    def next(self, seconds: float | None = None) -> Footprint | None:
        """Return a better plan from the next neighbourhood, or None; `seconds` is its time limit."""
        from recsmith.planners.solver.cp_sat import solve
        from recsmith.planners.solver.cp_sat_model import SpaceModel

        assert self.linear_pieces is not None
        kind = self.tried % len(self.sizes)
        free = self._slow() if kind == 0 else self._any()
        shares = self.shares.take(free[self.table] & self._spaced())
        fixed = FixedTables.of(self.evaluator, self.footprint, free)
        space = SpaceModel(self.evaluator, shares, self.linear_pieces, self.total_s * (1 - LEAST_GAIN), fixed=fixed)
        limits = {"max_deterministic_time": UNITS * 2**self.level}
        limits |= {} if seconds is None else {"max_time_in_seconds": max(seconds, 0.0)}
        outcome = solve(space, {**SETTINGS, **limits})
        searched = outcome.proven or outcome.impossible
        self.over = searched and len(shares.layout) == len(self.shares.layout)
        size = self.sizes[kind]
        self.sizes[kind] = min(len(free), size + max(1, size // GROWTH)) if searched else max(LEAST_SIZE, size - 1)
        self.tried, self.failures = self.tried + 1, self.failures + 1
        self.spent = self.spent + outcome.spent + MODEL
        return merged(self.problem, self.footprint, free, outcome.best) if outcome.best else None

    def take(self, footprint: Footprint, total_s: float) -> None:
        """Continue from a better plan."""
        self.footprint, self.total_s = footprint, total_s
        self.failures = self.level * PATIENCE

    # --- which tables, and which widths -----------------------------------------------------------------------------

    def _any(self) -> Bools:
        """Random tables (T,)."""
        return self._first_tables(self.random.permutation(len(self.problem.tables)), self.sizes[1])

    def _slow(self) -> Bools:
        """Tables (T,) of the slowest rank of a random phase, then of other ranks; none that are on all ranks."""
        footprint, world = self.footprint, len(self.problem.capacity)
        ones, table = np.ones(len(footprint.mode)), self.problem.modes.table[footprint.mode]
        on = sum_per_group(ones, table, len(self.problem.tables), footprint, self.problem) > 0  # (W, T)
        on &= ~on.all(axis=0)
        phases = self.evaluator.loads(device_sums(self.evaluator, footprint)).sum(axis=2)  # (F, W)
        slowest = int(phases[self.random.integers(len(phases))].argmax())
        ranks = [slowest, *self.random.permutation(world).tolist()]
        tables = np.concatenate([self.random.permutation(np.flatnonzero(on[rank])) for rank in ranks])
        return self._first_tables(tables, self.sizes[0]) if tables.size else self._any()

    def _first_tables(self, tables: Ints, number: int) -> Bools:
        """A mask (T,) of the first `number` different tables in a list."""
        free = np.zeros(len(self.problem.tables), dtype=bool)
        free[list(dict.fromkeys(tables.tolist()))[:number]] = True
        return free

    def _spaced(self) -> Bools:
        """A mask of shares (S,) with evenly spaced widths, or with the widths that pieces have now."""
        dim, columns = self.problem.demand.dim[self.table], self.shares.columns
        step = WIDTH_STEP * -(-dim // (WIDTHS * 2**self.level * WIDTH_STEP))
        table, most = self.problem.modes.table[self.footprint.mode], int(dim.max()) + 1
        now = np.isin(self.table * most + columns, table * most + self.footprint.width)
        return (columns % step == 0) | (columns == dim) | now
