"""Which measurements train a model, choose its best epoch, and judge it; and what two measurements of a case differ by.

Legend: N measurements.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.costs.neural.files import NoiseFloor

PARTS = (0.8, 0.1)  # of the cases: to train, to choose the best epoch; the other tenth judges
SEEDS_APART = 2**32  # what a seed adds to the numbers of its cases, so that folders of several seeds share none


def split(case: Ints, seed: int) -> tuple[Bools, Bools, Bools]:
    """(train, validation, test), each (N,): by case, so that no two measurements of a case are in different parts.

    case (N,): measurements of one case have the same number.
    """
    cases = np.unique(case)
    draw = np.random.default_rng(seed).permutation(len(cases)) / len(cases)
    place = draw[np.searchsorted(cases, case)]
    train = place < PARTS[0]
    return train, ~train & (place < sum(PARTS)), place >= sum(PARTS)


def repeat_differences(case: Ints, seconds: Floats) -> Floats:
    """|second / first - 1| of every case that was measured twice, of seconds (N, ...)."""
    order = np.argsort(case, kind="stable")
    twice = np.flatnonzero(np.diff(case[order]) == 0)
    return np.abs(seconds[order[twice + 1]] / seconds[order[twice]] - 1)


def noise_floor_of(differences: Floats) -> NoiseFloor:
    """The noise floor of a model's card: median and mean of differences of repeats; None without any."""
    if not len(differences):
        return NoiseFloor(pairs=0)
    return NoiseFloor(pairs=len(differences), median=float(np.median(differences)), mean=float(differences.mean()))
