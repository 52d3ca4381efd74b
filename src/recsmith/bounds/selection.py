"""Which options tables may select when a problem is relaxed, and the linear bound that prices them.

Legend: G fusion groups, k work terms.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats


@dataclass(frozen=True, slots=True)
class LinearBound:
    """A linear function of the summed terms that lies nowhere above the cost of a fusion group on a rank.

    A group with summed terms S costs at least slopes[group] @ S + opening where it holds a piece. slopes (G, k):
    seconds, of all phases, per unit of a term. opening: seconds; the least that any group pays for holding a piece.
    """

    slopes: Floats
    opening: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionLimits:
    """The limits under which every table selects its cheapest option.

    limit: most seconds of a piece beyond the opening of its group; local: most seconds of one that does not span the
    world. price: seconds per byte of device memory. groups: fusion groups (G,) that may be selected; None for all.
    world_penalty: share of its seconds by which an option that spans the world counts as more expensive than it is.
    weight: most device bytes of a piece on a rank.
    """

    limit: float = np.inf
    price: float = 0.0
    groups: Bools | None = None
    local: float = np.inf
    world_penalty: float = 0.0
    weight: float = np.inf
