"""Longest-first placement in compiled code, where the package has it and the code knows the cost model.

It does what the loop in placement.py does, and finds the same targets but for rounding: loads differ by some 1e-16 of
themselves (1e-7 under learned models), and are compared in steps that are coarser. Where costs just add up, loads are
the same to the last bit. Hundreds of devices take a twentieth of the time.

Legend: N pieces of an assignment, W ranks, G fusion groups, F phases, k work terms.
"""

from typing import Any, cast

import numpy as np

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Floats, Ints
from recsmith.costs.group_loads import GroupLoads, Maximum
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState

CODE = "planners.search._placing"
MOST_CELLS = 10**8  # pieces times ranks up to which a learned model prices all ranks for a piece, which takes long
FEW = 256  # ranks that it prices beyond; trade-off: 10,000 x 4,096 took 2/3 of the seconds for 0.9 % longer steps
ADDS_UP = GroupLoads(np.zeros(1), (Maximum(0, np.ones((1, 1)), np.zeros(1)),))  # pieces whose seconds are all they add


def place_compiled(devices: DeviceState, assignment: Assignment, sequence: Ints, quantum: float) -> bool:
    """Place pieces one after the other, sequence (N,), preferences in multiples of `quantum`; False where it cannot.

    It cannot without compiled code, under constraints, and for cost models that it does not know.
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
    """Where in an order (N,) of tables each one's table comes the time before; NOWHERE for the first time."""
    order = np.argsort(table, kind="stable")
    again = table[order[1:]] == table[order[:-1]]
    before = np.full(len(table), NOWHERE)
    before[order[1:][again]] = order[:-1][again]
    return before


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(cast(Any, values), dtype=np.int64)


def _floats(values: object) -> Floats:
    return np.ascontiguousarray(cast(Any, values), dtype=np.float64)
