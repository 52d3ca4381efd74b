"""Longest-first placement in compiled code, where the package has it and the code knows the cost model.

It does what the loop in placement.py does, and finds the same targets but for rounding: loads differ by some 1e-16 of
themselves (1e-7 under learned models), and are compared in steps that are coarser. Hundreds of devices take a
twentieth of the time.

Legend: N pieces of an assignment, W ranks, G fusion groups, F phases, k work terms.
"""

from typing import Any, cast

import numpy as np

from recsmith._compiled import call_compiled, compiled
from recsmith._types import Floats, Ints
from recsmith.planners.search.device_state import NOWHERE, Assignment, DeviceState

CODE = "planners.search._placing"


def place_compiled(devices: DeviceState, assignment: Assignment, sequence: Ints, quantum: float) -> bool:
    """Place pieces one after the other, sequence (N,), preferences in multiples of `quantum`; False where it cannot.

    It cannot without compiled code, under constraints, and for cost models that it does not know or that just add up.
    """
    if compiled(CODE) is None or devices.additive or devices.legality.any or devices.compiled_loads is None:
        return False
    groups = devices.compiled_loads
    problem, piece, table = devices.problem, assignment.piece[sequence], assignment.table[sequence]
    option = assignment.option[table]
    kind = np.where(devices.on_one_host[option], 2, devices.tied[option].astype(np.int64))
    target, terms = np.full(len(sequence), NOWHERE), devices.terms[piece]
    sizes = (len(sequence), len(devices.free), len(devices.loads), terms.shape[1], devices.local)
    sides = (each[piece] for each in devices.bytes_held)
    pieces = (devices.group[piece], devices.coverage[piece], *sides, table, kind, piece)
    arrays = (
        _ints(sizes), np.array([quantum, devices.memory_weight]), *map(_ints, pieces), _floats(terms),
        _floats(groups.columns(terms)), *groups.arrays, _floats(devices.expected), _ints(problem.capacity),
        _first_of_table(table),
    )  # fmt: skip
    cells = _floats([groups.columns(sums).T for sums in devices.sums])
    state = (devices.sums, cells, devices.group_loads, devices.loads, devices.free, devices.host_free)
    call_compiled(compiled(CODE).place, (*arrays, *state, target))
    assignment.target[sequence] = target
    devices.count_groups(piece[target != NOWHERE])
    return True


def _first_of_table(table: Ints) -> Ints:
    """Where in an order (N,) of tables each one's table comes first."""
    _, first, inverse = np.unique(table, return_index=True, return_inverse=True)
    return _ints(first[inverse])


def _ints(values: object) -> Ints:
    return np.ascontiguousarray(cast(Any, values), dtype=np.int64)


def _floats(values: object) -> Floats:
    return np.ascontiguousarray(cast(Any, values), dtype=np.float64)
