"""How much work goes into the bound of a problem, by its size: counted in numbers, so the same on every machine."""

import numpy as np

from recsmith.bounds.compiled_prices import is_compiled
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import distinct
from recsmith.problems import Problem

MANY_TABLES = 500  # of a problem, those alike counted once, beyond which the second bound is sought with less work
MANY_DEVICES = 128  # beyond which plans of many tables gain from what tables select where the bound is lowest
MOST_TIMES = 8  # times the work below for so many times MANY_DEVICES: bounds gain more there, and searches take longer
MOST_TABLES = 4_000  # beyond which it is not: half of its work, and half a second of preparing, would be the first node
MOST_ALIKE = 4_000  # tables of which those alike count once
FEW_TABLES, SOME_TABLES = 150, 300  # up to which the work below is done: on any number of devices, and on few
MOST_CELLS = 3_000  # tables times devices beyond FEW_TABLES up to which devices are few, and with dual functions
PHASE_WORK = 6_000_000  # numbers that the second bound may work on, times the third power of the tables
MOST_PHASE_WORK = 3_000_000_000  # numbers at most, which 8 tables reach: half a second
EQUAL_WORK = 6_000_000_000  # numbers at most where there are more tables, many of them alike: about a second
LARGE_WORK = 4_000_000_000  # numbers at most beyond that, all for one search: half a second
MANY_WORK = 2_000_000_000  # the same beyond MANY_TABLES, whose nodes take more work: as much as for a certificate
FILLING_WORK = 3_000_000_000  # numbers at most for fillings of a rank, where tables are few: about a second
HOST_WORK = 10_000_000_000  # numbers at most where two hosts are told apart, twice as many as else: about a second
HEAVY_WORK = 2_000_000_000  # numbers at most for the heaviest table: a quarter of a second
UNCOMPILED = 8  # times as long array operations take as compiled code: without it so much less work is done


def may_gain(evaluator: Evaluator) -> bool:
    """Whether the second bound is sought without being asked for: where it may be above the first in its time.

    Seconds that add up over many tables can be divided nearly at will, as the first bound divides them. Without
    compiled code the first node alone would take a second.
    """
    most = MANY_TABLES if evaluator.additive or not is_compiled() else MOST_TABLES
    return different_tables(evaluator.problem) <= most


def has_many_tables(problem: Problem) -> bool:
    """Whether different tables are so many that the second bound is of few nodes."""
    return different_tables(problem) > MANY_TABLES


def has_selections(problem: Problem) -> bool:
    """Whether the second bound tells what tables select in its lowest nodes: not of many tables on fewer devices.

    There searches that began in it were never ahead of others, and would have waited for the bound.
    """
    return problem.cluster.world_size > MANY_DEVICES or not has_many_tables(problem)


def is_large(problem: Problem) -> bool:
    """Whether tables and devices are so many that less work is done, by the search that begins in the best mix alone.

    With that much work, the search that begins without a mix ended lower for 12 of 16 problems.
    """
    tables = different_tables(problem)
    return tables > SOME_TABLES or (tables > FEW_TABLES and tables * problem.cluster.world_size > MOST_CELLS)


def times_many_devices(problem: Problem) -> int:
    """How many times MANY_DEVICES there are, from 1 to MOST_TIMES."""
    return max(1, min(MOST_TIMES, problem.cluster.world_size // MANY_DEVICES))


def different_tables(problem: Problem) -> int:
    """How many tables ask for something else than every table before them."""
    demand = problem.demand
    if len(problem.tables) > MOST_ALIKE:
        return len(problem.tables)
    facts = (demand.rows, demand.dim, demand.element_bytes, demand.ids, demand.bags, demand.pooled, demand.weighted,
             demand.repeats)  # fmt: skip
    return len(distinct(np.column_stack(facts), axis=0))


def affordable(work: int) -> int:
    """How many of so many numbers are worked on: all, or without compiled code as many as take the same time."""
    return work if is_compiled() else work // UNCOMPILED


def phase_work(problem: Problem, *, has_mix: bool) -> int:
    """Numbers that the search over the seconds of the phases works on; of large problems, only where it has a mix."""
    if is_large(problem):
        work = (MANY_WORK if has_many_tables(problem) else LARGE_WORK) * times_many_devices(problem)
        return affordable(work if has_mix else 0)
    tables = len(problem.tables)
    return affordable(EQUAL_WORK if tables > SOME_TABLES else min(MOST_PHASE_WORK, PHASE_WORK * tables**3))


def heavy_work(problem: Problem) -> int:
    """Numbers that the search over the spreads of a heavy table works on."""
    return affordable(min(HEAVY_WORK, PHASE_WORK * different_tables(problem) ** 3))


def filling_work(problem: Problem) -> int:
    """Numbers that the search by fillings of a rank works on after it."""
    return min(FILLING_WORK, PHASE_WORK * len(problem.tables) ** 3)


def host_work(problem: Problem) -> int:
    """Numbers that the search which tells two hosts apart works on after it."""
    return min(HOST_WORK, 2 * PHASE_WORK * len(problem.tables) ** 3)
