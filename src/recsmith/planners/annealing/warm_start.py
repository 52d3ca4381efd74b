"""Compiled annealing from a running plan, which moves no more bytes than it may.

Unlike successive_halving.py, which begins hot and moves every piece, this continues from one plan. Every byte that
moves has a price, so that a table which gains little returns to where it was; then the price falls. Bytes are counted
as in plans/diff.py, or slightly above: if the new pieces of a table are of another kind (of ranks, of hosts, of all
ranks), all of its bytes count.

Legend: T tables, M modes, U units, S slots for the pieces of a table.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recsmith._types import Bools, Ints
from recsmith.bounds import first_bound
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import Evaluator
from recsmith.planners.annealing.kernel import Cooling, FlatOptions, FlatOriginals, FlatPlan, FlatProblem, is_compiled
from recsmith.planners.annealing.starts import TriedOptions
from recsmith.planners.annealing.successive_halving import AT_ONCE, COLD, LONG_KINDS
from recsmith.planners.search.device_state import DeviceState
from recsmith.plans import Placement, Plan
from recsmith.problems import Footprint, Problem
from recsmith.sharding import TYPE_NAMES

COPIES = "data_parallel"

RETURNS = 0.02  # share of changes that return a table to where it was


@dataclass(frozen=True)
class OriginalPlacements:
    """What devices hold: old placements of the tables that keep their weights, by name, and how many bytes may move.

    sizes: bytes of weights of each such table. legal: names of tables that may be placed as they were. world: number of
    the old devices.
    """

    placements: Mapping[str, Placement]
    sizes: Mapping[str, int]
    legal: frozenset[str]
    world: int
    most_moved: int

    @classmethod
    def of(cls, old: Plan, sizes: Mapping[str, int], legal: frozenset[str], most_moved: int) -> "OriginalPlacements":
        """The placements in a plan of the tables that `sizes` names."""
        placements = {each.table: each for each in old.placements if each.table in sizes}
        return cls(placements, sizes, legal, old.cluster.world_size, most_moved)

    def beyond(self, tables: Iterable[str]) -> Bools:
        """Which of these tables (T,) are too large to be moved whole."""
        return np.array([self.sizes.get(name, 0) > self.most_moved for name in tables])

    def flat(self, flat: FlatProblem, price: float) -> FlatOriginals:
        """The placements as arrays, in the order of the compiled code. price: of all bytes that may move, in steps."""
        limits = np.array([self.most_moved], dtype=np.int64), np.array([price])
        return FlatOriginals((*self._arrays(flat), *limits), RETURNS)

    def _arrays(self, flat: FlatProblem) -> tuple[Ints, ...]:
        problem, tables = flat.problem, len(flat.problem.tables)
        column_bytes, count, coverage = np.zeros((3, tables), dtype=np.int64)
        mode = np.full(tables, -1, dtype=np.int64)
        width, target, unit = np.zeros((3, tables, flat.slots), dtype=np.int64)
        for t, table in enumerate(problem.tables):
            if table.name not in self.sizes:
                continue
            column_bytes[t] = self.sizes[table.name] // table.embedding_dim
            old = self.placements[table.name]
            widths = old.widths_of(table.embedding_dim)
            if len(widths) > flat.slots:
                continue
            each, places = len(old.ranks) // len(widths), slice(0, len(widths))
            copies = old.sharding_type == COPIES
            count[t], coverage[t] = len(widths), -self.world if copies else each
            width[t, places], target[t, places] = widths, [rank // each for rank in old.ranks[::each]]
            if table.name in self.legal:
                own = problem.find_mode(t, old.sharding_type, old.compute_kernel, old.load_factor)
                assert own is not None, "a legal placement has a mode"
                units = [found for each in widths if (found := flat.unit_of(own, each)) is not None]
                if len(units) == len(widths):
                    mode[t], unit[t, places] = own, units
        copied = problem.modes.type == TYPE_NAMES.index(COPIES)
        return flat.width, copied.astype(np.int64), column_bytes, count, coverage, mode, width, target, unit


# --- annealing --------------------------------------------------------------------------------------------------------


class CoolingTurn(NamedTuple):
    """One cooling: its first temperature, and the cost of all bytes that may move, both as shares of the step."""

    heat: float
    price: float


COOL = (CoolingTurn(2e-4, 1e-2), CoolingTurn(1e-4, 1e-3))
RUNS = (COOL, (CoolingTurn(2e-3, 1e-2), *COOL))  # plans that cool side by side: the second also leaves poor starts
STEPS, PIECE_STEPS = 50_000, 12_000  # steps of a turn: at least, and for each piece of the start
FEW_PIECES = 1_000  # pieces of the start up to which a third plan cools, from the fresh one; takes half as long again
MOST_STEPS = 24_000_000  # trade-off: 36 million and more made steps of 3,000 and 10,000 tables 0.2 to 0.7 % longer


def anneal_warm(
    evaluator: Evaluator, start: Footprint, fresh: Footprint, originals: OriginalPlacements, seed: int,
    keep_on: Callable[[], bool],
) -> Footprint | None:  # fmt: skip
    """The best plan found that fits the memory and moves no more than `originals` allows; the start may do neither.

    fresh: a plan made as if nothing were placed. The running plan may be all in one fusion group, which single changes
    do not leave because none of them pays. So the fresh plan's groups are open too, and one of the cooling plans begins
    there. A table that may not move whole, and that the fresh plan splits differently, may use all groups, because part
    of its columns may move. keep_on: asked now and then whether to continue; the best so far is kept. The outcome does
    not depend on the number of cores. Cost: tens of seconds for thousands of tables.

    Returns None if no such plan was found, without compiled code, and for cost models and constraints that the compiled
    code does not support.
    """
    devices = DeviceState(evaluator)
    group_loads = devices.compiled_loads if is_compiled() else None
    if group_loads is None or devices.legality.groups:
        return None
    flat = FlatProblem(evaluator, group_loads, kinds=LONG_KINDS)
    stuck = originals.beyond(table.name for table in evaluator.problem.tables)
    stuck &= _modes(evaluator.problem, start) != _modes(evaluator.problem, fresh)
    options = FlatOptions(flat, _tried(evaluator, devices, np.concatenate([start.mode, fresh.mode]), stuck))
    plan, other = flat.plan_of(start), flat.plan_of(fresh)
    if plan is None or not options.usable:
        return None
    begins = [(plan, run) for run in RUNS]
    if other is not None and len(start.mode) <= FEW_PIECES:
        begins.append((other, COOL))
    turns = [(begin, [(turn.heat, originals.flat(flat, turn.price)) for turn in run]) for begin, run in begins]
    steps = min(MOST_STEPS, max(STEPS, PIECE_STEPS * len(start.mode)))
    with ThreadPoolExecutor(min(len(turns), os.cpu_count() or 1)) as pool:
        runs = [
            pool.submit(_run, flat, options, begin, own, steps, seed * len(RUNS) + i, keep_on)
            for i, (begin, own) in enumerate(turns)
        ]
        seconds, best = min((run.result() for run in runs), key=lambda found: found[0])
    return flat.footprint(best) if np.isfinite(seconds) else None


def _modes(problem: Problem, footprint: Footprint) -> Ints:
    """The mode of each table (T,)."""
    modes: Ints = np.zeros(len(problem.tables), dtype=np.int64)
    modes[problem.modes.table[footprint.mode]] = footprint.mode
    return modes


def _tried(evaluator: Evaluator, devices: DeviceState, modes: Ints, stuck: Bools) -> TriedOptions:
    """Options of the groups that pieces of these modes use; of all groups if a table has no option in those.

    stuck (T,): tables that may be unable to move to where they should be; all groups are open for them.
    """
    relaxation = shared_relaxation(evaluator, first_bound(evaluator).linear)
    used: Bools = np.zeros(evaluator.groups, dtype=bool)
    used[evaluator.group[modes]] = True
    tried = used[relaxation.option_group] | stuck[evaluator.problem.options.table]
    few = TriedOptions(devices, relaxation.reopened(~(tried & relaxation.option_fits)))
    return few if few.count.all() else TriedOptions(devices, relaxation)


def _run(
    flat: FlatProblem, options: FlatOptions, plan: FlatPlan, turns: list[tuple[float, FlatOriginals]], steps: int,
    seed: int, keep_on: Callable[[], bool],
) -> tuple[float, FlatPlan]:  # fmt: skip
    """The best plan of all turns, each from the best of the turn before; infinite seconds if no plan may be kept."""
    best_s, best = np.inf, plan
    seeds = np.random.SeedSequence((seed, len(turns))).generate_state(len(turns)).tolist()
    for (heat, originals), own in zip(turns, seeds, strict=True):
        cooling = Cooling(flat, options, plan, own, originals)
        for first in range(0, steps, AT_ONCE):
            cooling.go_on(first, min(first + AT_ONCE, steps), steps, (heat, COLD * heat))
            if not keep_on():
                break
        plan = cooling.best if np.isfinite(cooling.best_s) else cooling.plan
        if cooling.best_s < best_s:
            best_s, best = cooling.best_s, cooling.best
    return best_s, best
