"""Parts of all trainings that need no PyTorch: checks of the output, the split, least squares, and scores.

Legend: N measurements or equations, f figures.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from recsmith._install import TRAINING
from recsmith._random import mixed, salt
from recsmith._types import Bools, Floats, Ints
from recsmith.costs.neural.files import HeldOut, NoiseFloor
from recsmith.costs.weight_files import SUFFIX, card_path, starts_with_card
from recsmith.errors import MissingExtra, UsageError
from recsmith.files import check_target, starts_with_schema
from recsmith.measuring.statistics import kendall_tau


def check_output(output: str) -> None:
    """Raise UsageError if the output is no path of a .safetensors file, or cannot be written."""
    if not output.endswith(SUFFIX):
        raise UsageError(f"the output is '{output}'; give a name that ends with {SUFFIX}")
    check_target(output)


def check_outputs(output: str, schema: str, inputs: Sequence[str], *, force: bool) -> None:
    """Raise UsageError if the output, or the card beside it, would overwrite an input, or a file of another kind.

    schema: of the card. inputs: files and folders that training reads. force: whether other kinds may be overwritten.
    """
    check_output(output)
    check_target(output, inputs=inputs, kind=starts_with_card(schema), force=force)
    check_target(str(card_path(output)), inputs=inputs, kind=starts_with_schema(schema), force=force)


def import_training(module: str) -> Any:
    """The module that trains; MissingExtra without PyTorch."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra(f"training needs PyTorch: {TRAINING}") from None


PARTS = (0.8, 0.1)  # shares of the cases that train, and that choose the best epoch; the other tenth judges
SEEDS_APART = 2**32  # added per seed to the numbers of its cases, so that folders of several seeds share none


def split(case: Ints, seed: int) -> tuple[Bools, Bools, Bools]:
    """(train, validation, test), each (N,): by case, so that no two measurements of a case are in different parts.

    case (N,): measurements of one case have the same number. Cases are ordered by a hash of number and seed. With more
    samples, or the same cases on another device, nearly all cases stay in their part: a model that starts from another
    model's weights is judged by cases on which neither was trained.
    """
    cases, where = np.unique(case, return_inverse=True)
    hashes = mixed(mixed(cases.astype(np.uint64) + np.uint64(salt("split", seed))))
    place = (np.argsort(np.argsort(hashes, kind="stable")) / len(cases))[where]
    train = place < PARTS[0]
    return train, ~train & (place < sum(PARTS)), place >= sum(PARTS)


def repeat_differences(case: Ints, seconds: Floats) -> Floats:
    """|second / first - 1| of every case that was measured twice, of seconds (N, ...)."""
    order = np.argsort(case, kind="stable")
    twice = np.flatnonzero(np.diff(case[order]) == 0)
    return np.abs(seconds[order[twice + 1]] / seconds[order[twice]] - 1)


def noise_floor_of(differences: Floats) -> NoiseFloor:
    """The noise floor for a model's card: median and mean of the differences of repeats; None without any."""
    if not len(differences):
        return NoiseFloor(pairs=0)
    return NoiseFloor(pairs=len(differences), median=float(np.median(differences)), mean=float(differences.mean()))


STEPS = 3000  # most steps of the descent; it ends earlier once it no longer moves
STILL = 1e-9  # change of a weight, relative to the largest, up to which the descent counts as ended


def non_negative_fit(figures: Floats, target: Floats) -> Floats:
    """Weights (f,) of 0 or more whose sums of figures (N, f) are nearest to a target (N,), by coordinate descent."""
    normal, right = figures.T @ figures, figures.T @ target
    weights = np.zeros(figures.shape[1])
    for _ in range(STEPS):
        before = weights.copy()
        for i in np.flatnonzero(normal.diagonal() > 0):
            weights[i] = max(0.0, weights[i] + (right[i] - normal[i] @ weights) / normal[i, i])
        if np.abs(weights - before).max() <= STILL * weights.max(initial=0.0):
            break
    return weights


TINY = 1e-300  # in place of a work of 0, which has no logarithm
BANDS_PER_E = 20  # bands per factor of e: groups whose work differs by less than 5 % are in one band


def errors(predicted: Floats, measured: Floats) -> Floats:
    """Relative errors |predicted / measured - 1|, of the shape of both."""
    return np.abs(predicted / measured - 1)


def bands(work: Floats) -> Ints:
    """The band (N,) of each group; groups of one band have equal work, within 5 %."""
    return np.floor(np.log(np.maximum(work, TINY)) * BANDS_PER_E).astype(np.int64)


def held_out(predicted: Floats, measured: Floats) -> HeldOut:
    """The scores of predictions (N, 2) of seconds forward and backward."""
    off, parts = errors(predicted.sum(axis=1), measured.sum(axis=1)), errors(predicted, measured)
    return HeldOut(
        samples=len(off), median=float(np.median(off)), mean=float(off.mean()),
        forward_median=float(np.median(parts[:, 0])), backward_median=float(np.median(parts[:, 1])),
        tau=kendall_tau(predicted.sum(axis=1), measured.sum(axis=1)),
    )  # fmt: skip
