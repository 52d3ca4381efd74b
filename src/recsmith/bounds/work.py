"""How much work a problem's bound may take, by the problem's size: counted in numbers, the same on every machine."""

import numpy as np

from recsmith.bounds.compiled_prices import is_compiled
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import distinct
from recsmith.problems import Problem

MANY_TABLES = 500  # different tables of a problem beyond which the second bound is sought with less work
MANY_DEVICES = 128  # devices beyond which plans of many tables gain from the tables' selections at the lowest bounds
MOST_TIMES = 8  # most times the work below, one for each MANY_DEVICES: bounds gain more there, searches take longer
MOST_TABLES = 4_000  # tables beyond which there is no second bound: its first node would take half of the work
MOST_ALIKE = 4_000  # most tables of which equal ones are counted once
FEW_TABLES, SOME_TABLES = 150, 300  # tables up to which the work below is done: on any number of devices, and on few
MOST_CELLS = 3_000  # tables times devices up to which devices are few beyond FEW_TABLES, and for dual functions
PHASE_WORK = 6_000_000  # numbers that the second bound may work on, times the third power of the number of tables
MOST_PHASE_WORK = 3_000_000_000  # most numbers, reached by 8 tables: half a second
EQUAL_WORK = 6_000_000_000  # most numbers if there are more tables, many of them equal: about a second
LARGE_WORK = 4_000_000_000  # most numbers beyond that, all for one search: half a second
MANY_WORK = 2_000_000_000  # the same beyond MANY_TABLES, whose nodes take more work: as much as for a certificate
FILLING_WORK = 3_000_000_000  # most numbers for fillings of a rank, if tables are few: about a second
HOST_WORK = 10_000_000_000  # most numbers for distinguishing two hosts, twice as many as otherwise: about a second
HEAVY_WORK = 2_000_000_000  # most numbers for the heaviest table: a quarter of a second
UNCOMPILED = 8  # array operations take this many times as long as compiled code: they do less work by this factor


def may_gain(evaluator: Evaluator) -> bool:
    """Whether the second bound is sought by default: if it may exceed the first in the time that it takes.

    Additive seconds of many tables can be divided nearly at will, as the first bound divides them. Without compiled
    code the first node alone would take a second.
    """
    most = MANY_TABLES if evaluator.additive or not is_compiled() else MOST_TABLES
    return different_tables(evaluator.problem) <= most


def has_many_tables(problem: Problem) -> bool:
    """Whether there are so many different tables that the second bound has few nodes."""
    return different_tables(problem) > MANY_TABLES


def has_selections(problem: Problem) -> bool:
    """Whether the second bound gives the tables' selections in its lowest nodes: not for many tables on fewer devices.

    There, searches that began with these selections were never ahead of others, and would have waited for the bound.
    """
    return problem.cluster.world_size > MANY_DEVICES or not has_many_tables(problem)


def is_large(problem: Problem) -> bool:
    """Whether there are so many tables and devices that less work is done, by the search from the best mix alone.

    With that much work, the search without a mix ended lower for 12 of 16 problems.
    """
    tables = different_tables(problem)
    return tables > SOME_TABLES or (tables > FEW_TABLES and tables * problem.cluster.world_size > MOST_CELLS)


def times_many_devices(problem: Problem) -> int:
    """The number of devices divided by MANY_DEVICES, from 1 to MOST_TIMES."""
    return max(1, min(MOST_TIMES, problem.cluster.world_size // MANY_DEVICES))


def different_tables(problem: Problem) -> int:
    """The number of tables whose demands differ from those of every table before them."""
    demand = problem.demand
    if len(problem.tables) > MOST_ALIKE:
        return len(problem.tables)
    facts = (demand.rows, demand.dim, demand.element_bytes, demand.ids, demand.bags, demand.pooled, demand.weighted,
             demand.repeats)  # fmt: skip
    return len(distinct(np.column_stack(facts), axis=0))


def affordable(work: int) -> int:
    """How much of this work is done: all, or without compiled code as much as takes the same time."""
    return work if is_compiled() else work // UNCOMPILED


def phase_work(problem: Problem, *, has_mix: bool) -> int:
    """Numbers that the search over the seconds of the phases works on; 0 for large problems without a mix."""
    if is_large(problem):
        work = (MANY_WORK if has_many_tables(problem) else LARGE_WORK) * times_many_devices(problem)
        return affordable(work if has_mix else 0)
    tables = len(problem.tables)
    return affordable(EQUAL_WORK if tables > SOME_TABLES else min(MOST_PHASE_WORK, PHASE_WORK * tables**3))


def heavy_work(problem: Problem) -> int:
    """Numbers that the search over the spreads of a heavy table works on."""
    return affordable(min(HEAVY_WORK, PHASE_WORK * different_tables(problem) ** 3))


def filling_work(problem: Problem) -> int:
    """Numbers that the search by fillings of a rank works on after that."""
    return min(FILLING_WORK, PHASE_WORK * len(problem.tables) ** 3)


def host_work(problem: Problem) -> int:
    """Numbers that the search which distinguishes two hosts works on after that."""
    return min(HOST_WORK, 2 * PHASE_WORK * len(problem.tables) ** 3)
