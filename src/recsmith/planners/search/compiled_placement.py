"""Longest-first placement in compiled code, if the package has it and the code supports the cost model.

It does the same as the loop in placement.py, and finds the same targets up to rounding: loads differ by a relative
1e-16 (1e-7 under learned models), and are compared in coarser steps. If costs are additive, loads are equal to the last
bit. On hundreds of devices it takes a twentieth of the time.

Legend: N pieces of an assignment, W ranks, G fusion groups, F phases, k work terms.
"""

from typing import Any, cast

import numpy as np

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Floats, Ints
from recsmith.costs.group_loads import GroupLoads, Maximum
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState

CODE = "planners.search._placing"
MOST_CELLS = 10**8  # pieces times ranks up to which a learned model prices all ranks for each piece, which takes long
FEW = 256  # ranks that it prices above that; trade-off: 10,000 x 4,096 took 2/3 of the seconds for 0.9 % longer steps
ADDS_UP = GroupLoads(np.zeros(1), (Maximum(0, np.ones((1, 1)), np.zeros(1)),))  # a piece adds its seconds and no more


def place_compiled(devices: DeviceState, assignment: Assignment, sequence: Ints, quantum: float) -> bool:
    """Place pieces one after the other, sequence (N,), comparing preferences in multiples of `quantum`.

    Returns False, and places nothing, without compiled code, under constraints, and for unsupported cost models.
    """
    groups = ADDS_UP if devices.additive else devices.compiled_loads
    if compiled(CODE) is None or devices.legality.any or groups is None:
        return False
    problem, piece, table = devices.problem, assignment.piece[sequence], assignment.table[sequence]
    option = assignment.option[table]
    kind = np.where(devices.on_one_host[option], 2, devices.tied[option].astype(np.int64))
    target = np.full(len(sequence), NOWHERE)
    terms = devices.seconds[piece, None] if devices.additive else devices.terms[piece]
    few = FEW if len(sequence) * len(devices.free) > MOST_CELLS else 0
    sizes = (len(sequence), len(devices.free), len(devices.loads), terms.shape[1], devices.local, devices.additive, few)
    sides = (each[piece] for each in devices.bytes_held)
    pieces = (devices.group[piece], devices.coverage[piece], *sides, _before_in_table(table), kind, piece)
    arrays = (
        _ints(sizes), np.array([quantum, devices.memory_weight]), *map(_ints, pieces), _floats(terms),
        _floats(groups.columns(terms)), *groups.arrays, _floats(devices.expected), _ints(problem.capacity),
    )  # fmt: skip
    cells = _floats([groups.columns(sums).T for sums in devices.sums])
    state = (devices.sums, cells, devices.group_loads, devices.loads, devices.free, devices.host_free)
    call_compiled(compiled(CODE).place, (*arrays, *state, target))
    assignment.target[sequence] = target
    if not devices.additive:
        devices.count_groups(piece[target != NOWHERE])
    return True


def _before_in_table(table: Ints) -> Ints:
    """For each entry of an order (N,) of tables, the index of its table's previous entry; NOWHERE if it is first."""
    order = np.argsort(table, kind="stable")
    again = table[order[1:]] == table[order[:-1]]
    before = np.full(len(table), NOWHERE)
    before[order[1:][again]] = order[:-1][again]
    return before


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(cast(Any, values), dtype=np.int64)


def _floats(values: object) -> Floats:
    return np.ascontiguousarray(cast(Any, values), dtype=np.float64)
