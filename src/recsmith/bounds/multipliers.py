"""Multipliers that price pieces in the search of phase_branching.py, and the phase ranges that they are priced for.

Legend: K nodes side by side, G fusion groups, J planes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recsmith._types import Floats, Ints


@dataclass(frozen=True, slots=True)
class PhaseRanges:
    """Ranges of seconds that the slowest rank's pieces take: (least, most) in the first phase, and in the rest of them.

    Pieces that span the world, latencies and one opening are not counted: every rank pays those alike.
    """

    ready: tuple[float, float]
    rest: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Multipliers:
    """What a second of each phase, and a byte, is worth in the price of a piece; all 0 or more.

    ready_multiplier: of seconds in the first phase; rest_multiplier: of those in the later phases. byte_price: seconds
    per byte of device memory. mix (G, J): shares of the planes by which each group's seconds are taken. plane: number
    of the plane by which it is decided which pieces are big (phase_prices.py).
    """

    ready_multiplier: float
    rest_multiplier: float
    byte_price: float
    mix: Floats
    plane: int


class NodeArrays(NamedTuple):
    """Ranges and multipliers of K nodes as arrays: ready and rest are (K, 2), mix (K, G, J), all others (K,)."""

    ready: Floats
    rest: Floats
    ready_multiplier: Floats
    rest_multiplier: Floats
    byte_price: Floats
    mix: Floats
    plane: Ints


def stacked(ranges: Sequence[PhaseRanges], multipliers: Sequence[Multipliers]) -> NodeArrays:
    """Nodes side by side."""
    return NodeArrays(
        ready=np.array([each.ready for each in ranges]),
        rest=np.array([each.rest for each in ranges]),
        ready_multiplier=np.array([each.ready_multiplier for each in multipliers]),
        rest_multiplier=np.array([each.rest_multiplier for each in multipliers]),
        byte_price=np.array([each.byte_price for each in multipliers]),
        mix=np.stack([each.mix for each in multipliers]),
        plane=np.array([each.plane for each in multipliers]),
    )


def least_product(factor: Floats, ends: Floats) -> Floats:
    """The least (K,) of factor (K,) times anything between two ends (K, 2): it is at one of them."""
    return (factor[:, None] * ends).min(axis=1)
