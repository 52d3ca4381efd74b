"""Groups tables into towers: interactions of trained tables, an embedding by these, and groups of equal load.

Luo et al., "Disaggregated Multi-Tower" (MLSys 2024, arXiv 2403.00877), partition features by learned interactions:
distances from interactions, places (points) in few dimensions, and a k-means whose groups are balanced. *coherent*
groups put similar tables together, *diverse* groups put them apart. This version computes interactions from the tables
only, without data. It assigns by CP-SAT, which bounds the loads of towers; the paper's k-means bounds table counts.

T tables, D columns of a table, P dimensions of places, H towers
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from recsmith._install import SOLVER
from recsmith._types import Floats, Ints
from recsmith.errors import CorruptFile, MissingExtra, UsageError
from recsmith.files import check_is_file
from recsmith.planners.solver import is_installed

Strategy = Literal["coherent", "diverse", "random"]
IMBALANCE = 0.1  # fraction by which a tower's load may exceed the mean, if tables are small enough
PLACES = 8  # P: more dimensions follow single distances, fewer blur them
ROUNDS, STARTS = 12, 4  # of k-means: it converges within a few rounds, and its result depends on the start
ROWS = 65_536  # most rows of a table that are read, evenly spaced
EFFORT_S = 5.0  # limit of an assignment in CP-SAT's deterministic time
_TABLE = re.compile(r"(?:^|\.)embedding_bags\.([^.]+)\.weight$")


def interactions_of(model: Path) -> tuple[list[str], Floats]:
    """Names of trained tables, and the similarity (T, T) of the directions of their vectors; 1: equal.

    It is the cosine of second moments: tr(C C') / (|C| |C'|) with C = E[v v^T] over a table's rows, so long vectors
    count more. Two features whose vectors have the same directions have large dot products. model: the folder
    `<output>/model` of a run.

    Raises:
        UsageError: the folder holds no weights, or tables of several widths.
    """
    from safetensors import SafetensorError, safe_open

    file = model / "weights.safetensors"
    moments: dict[str, Floats] = {}
    check_is_file(file)
    try:
        handle: Any = safe_open(file, framework="np")
        with handle as weights:
            for name in weights.keys():  # noqa: SIM118
                found = _TABLE.search(name)
                if found is not None:
                    moments[found[1]] = _moment(weights.get_slice(name))
    except (SafetensorError, OSError, TypeError) as error:
        raise CorruptFile(f"'{file}' cannot be read ({error}); give the folder `model` of a run's output") from None
    if len({each.shape for each in moments.values()}) != 1:
        raise UsageError(f"'{file}' has tables of several widths or none; their directions cannot be compared")
    flat = np.stack([each.ravel() / max(float(np.linalg.norm(each)), 1e-30) for each in moments.values()])
    return list(moments), flat @ flat.T


def _moment(rows: Any) -> Floats:
    """The second moment C (D, D) of a table's rows."""
    count = rows.get_shape()[0]
    taken = rows[:: max(1, count // ROWS)] if count > ROWS else rows[:]
    vectors = np.asarray(taken, np.float64)
    return vectors.T @ vectors / len(vectors)


def distances_of(interactions: Floats, strategy: Strategy) -> Floats:
    """Wanted distances (T, T) between tables: short between similar tables for coherent towers, long for diverse."""
    scaled = interactions - interactions.min()
    scaled = scaled / max(float(scaled.max()), 1e-12)
    apart = 1 - scaled if strategy == "coherent" else scaled.copy()
    np.fill_diagonal(apart, 0.0)
    return apart


def places_of(distances: Floats) -> Floats:
    """Places (T, P) that approximate these distances in P dimensions, by classical multidimensional scaling."""
    count = len(distances)
    middle = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * middle @ distances**2 @ middle)
    kept = np.argsort(values)[::-1][:PLACES]
    return vectors[:, kept] * np.sqrt(np.maximum(values[kept], 0.0))


def towers_by(places: Floats, loads: Floats, count: int, seed: int) -> Ints:
    """The tower (T,) of each table, by k-means whose every assignment limits loads to IMBALANCE above their mean."""
    rng = np.random.default_rng(seed)
    best, least = np.zeros(len(loads), np.int64), np.inf
    for _ in range(STARTS):
        centers = places[rng.choice(len(places), count, replace=False)]
        towers = np.full(len(loads), -1)
        for _ in range(ROUNDS):
            found = assigned(((places[:, None] - centers[None]) ** 2).sum(axis=2), loads)
            if (found == towers).all():
                break
            towers = found
            centers = np.stack([places[towers == tower].mean(axis=0) for tower in range(count)])
        spread = float(((places - centers[towers]) ** 2).sum())
        if spread < least:
            best, least = towers, spread
    return best


def traded(towers: Ints, distances: Floats, loads: Floats, count: int) -> Ints:
    """The towers (T,) after swaps of pairs of tables, as long as the sum of distances within towers falls.

    Few dimensions cannot represent tables that should be near all unlike tables and far from all similar ones, which
    diverse towers ask for. A swap may not make a load exceed the largest present load or the limit of IMBALANCE,
    whichever is larger.
    """
    towers = towers.copy()
    inside = np.eye(count)[towers]
    most = max(float((loads @ inside).max()), (1 + IMBALANCE) * float(loads.sum()) / count)
    for _ in range(len(towers)):
        inside = np.eye(count)[towers]
        near, filled = distances @ inside, loads @ inside  # (T, H) and (H,)
        there = near[:, towers]  # sum of distances from a table to another table's tower
        own = np.diag(there)
        gained = own[:, None] + own[None] - there - there.T + 2 * distances
        swapped = filled[towers][:, None] - loads[:, None] + loads[None]
        legal = (towers[:, None] != towers[None]) & (swapped <= most) & (swapped <= most).T
        first, second = np.unravel_index(np.where(legal, gained, -np.inf).argmax(), gained.shape)
        if not legal[first, second] or gained[first, second] <= 1e-9:
            break
        towers[[first, second]] = towers[[second, first]]
    return towers


def towers_at_random(loads: Floats, count: int, seed: int) -> Ints:
    """A random tower (T,) for each table, with the same limit on loads."""
    return assigned(np.random.default_rng(seed).random((len(loads), count)), loads)


def assigned(costs: Floats, loads: Floats) -> Ints:
    """The assignment (T,) of tables to towers with the least sum of costs (T, H); no tower is empty or overloaded.

    Raises:
        MissingExtra: OR-Tools is not installed.
        UsageError: no assignment within the loads was found.
    """
    if not is_installed():
        raise MissingExtra(f"balancing towers needs OR-Tools: {SOLVER}")
    from ortools.sat.python import cp_model

    tables, count = costs.shape
    units: Ints = np.maximum(1, np.round(loads / float(loads.max()) * 1e6)).astype(np.int64)
    low, high = float(costs.min()), float(costs.max())
    prices: Ints = np.round((costs - low) * (1e6 / max(high - low, 1e-12))).astype(np.int64)
    most = int(max(np.ceil((1 + IMBALANCE) * units.sum() / count), _longest_first(units, count)))
    model = cp_model.CpModel()
    inside = [[model.new_bool_var("") for _ in range(count)] for _ in range(tables)]
    for row in inside:
        model.add_exactly_one(row)
    for tower in range(count):
        model.add(sum(int(units[t]) * inside[t][tower] for t in range(tables)) <= most)
        model.add_at_least_one(inside[t][tower] for t in range(tables))
    model.minimize(sum(int(prices[t, h]) * inside[t][h] for t in range(tables) for h in range(count)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1, 0
    solver.parameters.max_deterministic_time = EFFORT_S
    solver.parameters.keep_all_feasible_solutions_in_presolve = True
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise UsageError(f"no {count} towers of these {tables} tables were found within loads; ask for fewer")
    return np.array([next(h for h in range(count) if solver.boolean_value(row[h])) for row in inside], np.int64)


def _longest_first(units: Ints, count: int) -> int:
    """The largest load of a tower if tables, the heaviest first, are given to the tower with least load."""
    filled = np.zeros(count, np.int64)
    for each in np.sort(units)[::-1]:
        filled[filled.argmin()] += each
    return int(filled.max())


def groups_of(
    names: Sequence[str], loads: Mapping[str, float], count: int, strategy: Strategy, seed: int,
    trained: tuple[list[str], Floats] | None,
) -> tuple[tuple[str, ...], ...]:  # fmt: skip
    """The names of tables in each tower.

    Args:
        names: names of all tables.
        loads: planned seconds by table.
        count: number of towers.
        strategy: coherent, diverse or random.
        seed: seed of the random numbers.
        trained: names and interactions of trained tables; needed unless the strategy is random.

    Raises:
        UsageError: there are fewer tables than towers, or trained tables are wanted and lack one.
    """
    if not 1 <= count <= len(names):
        raise UsageError(f"there are {len(names)} tables for {count} towers, and none may be empty; ask for fewer")
    weights = np.array([max(loads[name], 1e-12) for name in names])
    if strategy == "random":
        towers = towers_at_random(weights, count, seed)
    elif trained is None:
        raise UsageError(f"{strategy} towers follow from trained tables; give --trained OUTPUT/model, or take random")
    else:
        order = {name: number for number, name in enumerate(trained[0])}
        odd = next((name for name in names if name not in order), None)
        if odd is not None:
            raise UsageError(f"the trained model has no table '{odd}'; give the model of these tables")
        rows = [order[name] for name in names]
        apart = distances_of(trained[1][np.ix_(rows, rows)], strategy)
        towers = traded(towers_by(places_of(apart), weights, count, seed), apart, weights, count)
    return tuple(
        tuple(name for name, tower in zip(names, towers, strict=True) if tower == number) for number in range(count)
    )
