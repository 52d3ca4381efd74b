"""Fits a stream's law to counts of different ids in windows of many lengths, and of ids that two windows share.

W windows, F counts, Q parameters
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from recsmith._types import Floats, noun
from recsmith.errors import UsageError
from recsmith.streaming.capacity.distances import previous
from recsmith.streaming.capacity.id_sample import Sampled
from recsmith.streaming.capacity.law import IdLaw, LawFit

HALVINGS = 10  # window lengths go from the whole stream down by this many halvings
FEWEST_IDS = 40  # least number of different ids, in all windows of a length together
WINDOWS, APART = 16, (1, 2, 4, 8, 12)  # number of equal windows; distances of two windows whose ids are compared
HOT = 20  # least ratio of ids in a window to hot ids, since all hot ids are assumed to be read in each window
CERTAIN = 0.004  # least relative deviation assumed for a count, as no stream follows the law exactly
STEPS, TOLD = 40, 1e-4  # largest number of steps of a fit; least relative reduction of the error by a step


@noun
class SeenIds:
    """Counts of different ids in a stream.

    distinct: (lookups in a window, different ids, relative deviation) for several lengths of windows. common: (lookups
    in a window, lookups between two windows, ids in both, relative deviation) for pairs of windows.
    """

    lookups: int
    distinct: tuple[tuple[float, float, float], ...]
    common: tuple[tuple[float, float, float, float], ...]


def seen(sampled: Sampled) -> SeenIds:
    """Counts of different ids, estimated from a sample."""
    return SeenIds(
        lookups=sampled.lookups, distinct=tuple(_distinct(sampled)), common=tuple(_common(sampled))
    )  # fmt: skip


def _distinct(sampled: Sampled) -> Iterator[tuple[float, float, float]]:
    before = previous(sampled.ids)
    for halving in range(2 * HALVINGS):
        windows = 2 ** (halving / 2)
        width = sampled.lookups / windows
        whole = int(sampled.lookups // width)
        window = (sampled.places / width).astype(np.int64)
        inside = window < whole
        new = inside & ((before < 0) | (window[before] < window))
        count = int(new.sum())
        mean = count / whole / sampled.rate + sampled.hot_rows
        if count < FEWEST_IDS or width < 16 or mean < HOT * sampled.hot_rows:
            return
        certain = len(np.unique(sampled.ids[inside])) if sampled.rate < 1 else math.inf
        yield width, mean, math.hypot(CERTAIN, 1 / math.sqrt(min(certain, count * 4)))


def _common(sampled: Sampled) -> Iterator[tuple[float, float, float, float]]:
    width = sampled.lookups / WINDOWS
    window = np.minimum((sampled.places / width).astype(np.int64), WINDOWS - 1)
    number = np.unique(sampled.ids, return_inverse=True)[1]
    keys = np.unique(number * (2 * WINDOWS) + window)
    for apart in APART:
        both = int(np.isin(keys + apart, keys, assume_unique=True).sum())
        if both < FEWEST_IDS:
            continue
        mean = both / (WINDOWS - apart) / sampled.rate + sampled.hot_rows
        yield width, (apart - 1) * width, mean, math.hypot(2 * CERTAIN, 1 / math.sqrt(both))


def fit(found: SeenIds, start: IdLaw | None = None) -> LawFit:
    """Fit a law to counts by least squares. start: a law of similar counts, to start from; None: try several starts.

    Raises:
        UsageError: there are too few different ids to fit a law.
    """
    if len(found.distinct) < 3:
        raise UsageError(
            f"{found.lookups:,} lookups are too few to say how many rows a longer stream needs; read more samples"
        )
    residuals = _residuals(found)
    begins = [_parameters(start, found)] if start else list(_begins(found))
    best = min((_least_squares(residuals, begin) for begin in begins), key=lambda each: each[1])
    law = _law(best[0], found)
    return LawFit(law=law, off=float(np.exp(np.mean(np.abs(_ratios(found, law)))) - 1))


def _begins(found: SeenIds) -> Iterator[Floats]:
    """Parameters to start from: different powers, numbers of places and churns."""
    ids = found.distinct[0][1]
    for power in (0.6, 1.0, 1.4):
        for places in (1.2, 10.0):
            for churn in (1e-3, 1.0):
                yield _parameters(
                    IdLaw(power=power, shift=1.0, places=ids * places, churn=churn / found.lookups), found
                )


def _parameters(law: IdLaw, found: SeenIds) -> Floats:
    return np.array([
        law.power, math.log(max(law.shift, 1e-9) + 1), math.log(law.places),
        math.log(max(law.churn, 1e-300) * found.lookups),
    ])  # fmt: skip


def _law(parameters: Floats, found: SeenIds) -> IdLaw:
    power, shift, places, churn = parameters.tolist()
    ids = found.distinct[0][1]
    return IdLaw(
        power=min(max(power, 0.0), 4.0), shift=math.expm1(min(max(shift, 0.0), 20.0)),
        places=math.exp(min(max(places, 0.0), math.log(ids) + 14)),
        churn=math.exp(min(max(churn, -12.0), 14.0)) / found.lookups,
    )  # fmt: skip


def _ratios(found: SeenIds, law: IdLaw) -> Floats:
    """log(value of the law / count) for each count (F,)."""
    width, ids, _ = np.array(found.distinct).T
    parts = [np.log(law.distinct(width) / ids)]
    if found.common:
        window, apart, both, _ = np.array(found.common).T
        parts.append(np.log(law.common(float(window[0]), apart) / both))
    return np.concatenate(parts)


def _residuals(found: SeenIds) -> Callable[[Floats], Floats]:
    deviations = np.array([each[-1] for each in (*found.distinct, *found.common)])

    def residuals(parameters: Floats) -> Floats:
        made = _ratios(found, _law(parameters, found)) / deviations
        return np.sign(made) * np.sqrt(np.abs(made) * 6) * (np.abs(made) > 6) + made * (np.abs(made) <= 6)

    return residuals


def _least_squares(residuals: Callable[[Floats], Floats], begin: Floats) -> tuple[Floats, float]:
    """(parameters (Q,), sum of squares) of a local minimum, by the Levenberg-Marquardt algorithm."""
    at, damping = begin, 1e-2
    now = residuals(at)
    for _ in range(STEPS):
        nudges = np.eye(len(at)) * 1e-4
        slope = np.stack([(residuals(at + nudge) - now) / 1e-4 for nudge in nudges], axis=1)
        squares, downhill = slope.T @ slope, slope.T @ now
        while damping < 1e6:
            step = np.linalg.solve(squares + damping * (np.diag(np.diag(squares)) + 1e-9 * np.eye(len(at))), -downhill)
            there = at + np.clip(step, -1, 1)
            then = residuals(there)
            if then @ then < now @ now:
                break
            damping *= 4
        else:
            break
        gained = 1 - float(then @ then) / float(now @ now)
        at, now, damping = there, then, damping / 8
        if gained < TOLD:
            break
    return at, float(now @ now)
