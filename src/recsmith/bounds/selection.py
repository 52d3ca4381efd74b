"""Which options tables may select when a problem is relaxed, and the linear bound that prices them.

Legend: G fusion groups, k work terms.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Bools, Floats


@dataclass(frozen=True, slots=True)
class LinearBound:
    """A linear function below the cost of each fusion group: slopes (G, k), and the least opening of all groups."""

    slopes: Floats
    opening: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionLimits:
    """The limits under which every table selects its cheapest option.

    limit: most seconds of a piece; local: most seconds of one that does not span the world. price: seconds per byte of
    device memory. menu: fusion groups (G,) to select from; all for None. world_penalty: share by which options that
    span the world look dearer than they are. weight: most device bytes of a piece on a rank.
    """

    limit: float = np.inf
    price: float = 0.0
    menu: Bools | None = None
    local: float = np.inf
    world_penalty: float = 0.0
    weight: float = np.inf
