"""Proofs that no plan exists; what would help is in remedies.py.

Two proofs, both exact: a table has no placement whose pieces fit a device; or all tables at their lightest weigh more
than all devices together. Anything else may still be unplannable, and then a search says NoPlanFound.

Legend: T tables, W ranks.
"""

import numpy as np

from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs import CostModel, Evaluator
from recsmith.errors import Infeasible
from recsmith.planning.remedies import LIGHTEST, roomy_weights, weights, what_helps
from recsmith.problems import Problem
from recsmith.units import counted, format_size
from recsmith.workloads import Table


def check_feasible(evaluator: Evaluator, model: CostModel) -> None:
    """Raise Infeasible where no plan can exist, naming tables, bytes, and a change that was checked to work."""
    problem = evaluator.problem
    light = shared_relaxation(evaluator).choose(LIGHTEST)
    room = float(problem.capacity.sum())
    if np.isfinite(light.seconds).all() and light.bytes.sum() <= room:
        return  # the options at hand fit already; no need to ask for every split
    least = weights(problem).per_table(LIGHTEST)
    unplaceable = np.flatnonzero(~np.isfinite(least.value))
    if unplaceable.size:
        raise Infeasible(_unplaceable_message(problem, model, unplaceable.tolist()))
    if least.bytes.sum() > room:
        raise Infeasible(_overfull_message(problem, model, float(least.bytes.sum()), room))


def _unplaceable_message(problem: Problem, model: CostModel, unplaceable: list[int]) -> str:
    tables = [problem.tables[t] for t in unplaceable]
    largest = max(tables, key=lambda table: table.weight_bytes)
    more = f" (and {len(tables) - 1} more tables)" if len(tables) > 1 else ""
    room = format_size(float(problem.capacity.max()))
    return (
        f"table '{largest.name}'{more} fits no device in the space {problem.space.describe()}: its weights are "
        f"{format_size(largest.weight_bytes)}, {_buffer_words(problem, largest)}the largest device offers {room}. "
        f"Proved. {what_helps(problem, model)}"
    )


def _buffer_words(problem: Problem, table: Table) -> str:
    """What a batch needs besides the weights, where that is what finds no room."""
    index = problem.tables.index(table)
    pieces = np.flatnonzero(problem.modes.table[problem.pieces.mode] == index)
    lightest = pieces[problem.pieces.tail.device[pieces].argmin()]
    mode, width = int(problem.pieces.mode[lightest]), int(problem.pieces.width[lightest])
    weights = int(problem.modes.tail_rows[mode]) * width * table.element_bytes
    if weights > problem.capacity.max():
        return ""
    need = float(problem.pieces.tail.device[lightest])
    batch = f"a batch of {problem.workload.batch_size:,} samples"
    return f"but ids, outputs and states of {batch} make it {format_size(need)} at the least, "


def _overfull_message(problem: Problem, model: CostModel, need: float, room: float) -> str:
    world = problem.cluster.world_size
    roomy = roomy_weights(problem)
    least = float(roomy.per_table(LIGHTEST).bytes.sum())
    floor = (
        f": no plan exists below {format_size(least / world)} a device, {_fewest(problem, least)}"
        if least > room
        else ""
    )
    return (
        f"the tables need at least {format_size(need)} in the space {problem.space.describe()}, "
        f"{counted(world, 'device')} offer{'s' if world == 1 else ''} {format_size(room)}. "
        f"Proved{floor}. {what_helps(problem, model, roomy)}"
    )


def _fewest(problem: Problem, least: float) -> str:
    """The least number of devices: more ranks serve more samples, so no table gets lighter."""
    cluster = problem.cluster
    devices = int(np.ceil(least / float(problem.capacity.max())))
    if cluster.replication is not None:
        return f"nor in sharding groups of fewer than {devices} devices of this size"
    if cluster.hosts == 1:
        return f"nor below {counted(devices, 'device')} of this size"
    local = cluster.local_world_size
    return f"nor below {-(-devices // local) * local} devices of this size in hosts of {local}"
