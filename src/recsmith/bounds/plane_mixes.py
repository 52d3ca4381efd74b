"""The mix of a cost model's planes under which the cheapest options of all tables together cost most.

Any mix of planes is below the head, so any mix gives a valid bound, and the best mix the tightest. Mixes and tables are
the two players of a game. Tables answer a mix by their cheapest options, and the mix answers the mean of all answers so
far: in each fusion group it moves towards the planes under which that mean costs most, more sharply with every turn.
This is fictitious play (Brown, Iterative solution of games by fictitious play, 1951) with a smoothed answer. Many
tables choose independently of each other, so 25 turns end within 0.02 % of the linear programme's optimum on six
problems.

Which mix is best depends on what tables may select: on the groups that are open, on the price of memory, and on how
large a piece may be.

Legend: G fusion groups, O options, J planes, T tables.
"""

import numpy as np

from recsmith._types import Bools, Floats, Ints
from recsmith.bounds.groups import replacements_by_type
from recsmith.bounds.linear_bounds import (
    LinearBound,
    cheapest_options,
    kept_for,
    least_opening,
    option_sums,
    plane_slopes,
)
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs.protocol import Evaluator
from recsmith.elementary import exp, matmul

TURNS = 25  # turns of the play; more gained 0.01 % at most
SHARPEST, SHARPER = 5e-3, 10.0  # share of the total by which planes must differ to matter; how much less at the end
LEAST_HEIGHT = -500.0  # below this height a share would be 0, and 0 times infinity is no number
LEAST_SHARE = 1e-3  # least share of a plane in the best mix; stands for 0, which the play approaches and never reaches
STEP = 0.3  # how far a mix moves towards its answer in a turn; with all of the way some mixes oscillate


def tightest_linear_bound(evaluator: Evaluator) -> LinearBound:
    """The linear bound of the cost under which the cheapest options of all tables together cost most."""
    return LinearBound(matmul(tightest_mix(evaluator), plane_slopes(evaluator)), least_opening(evaluator))


def tightest_mix(evaluator: Evaluator) -> Floats:
    """The shares of the planes (G, J) in the tightest linear bound; not to be changed by its users."""
    return plane_game(evaluator).mix(np.ones(evaluator.groups, dtype=bool))


def plane_game(evaluator: Evaluator) -> "PlaneGame":
    """The game of an evaluator; prepared once for each."""
    return kept_for(evaluator, "plane game", lambda: PlaneGame(evaluator))


class PlaneGame:
    """The costs of a problem's options by each plane; `mix` may be called many times."""

    def __init__(self, evaluator: Evaluator) -> None:
        problem, options, relaxation = evaluator.problem, evaluator.problem.options, shared_relaxation(evaluator)
        self.groups, self.replaced = evaluator.groups, replacements_by_type(evaluator)
        self.start, self.group = options.start, relaxation.option_group
        self.open: Bools = relaxation.option_room & ~np.isin(self.group, list(self.replaced))
        self.seconds = option_sums(problem, matmul(relaxation.piece_work.terms, plane_slopes(evaluator).T))  # (O, J)
        self.bytes = relaxation.option_bytes[:, None]
        self.largest, self.worldwide = relaxation.option_largest, relaxation.option_worldwide
        self._known: dict[tuple[bytes, float, float, float], Floats] = {}

    def mix(self, groups: Bools, price: float = 0.0, largest: float = np.inf, penalty: float = 0.0) -> Floats:
        """The best mix (G, J) if tables may select only these groups (G,); not to be changed by its users.

        price: seconds per byte. largest: most seconds of a piece, alone on a rank. penalty: share of its seconds that
        is added to an option that spans the world.
        """
        key = groups.tobytes(), price, largest, penalty
        if key not in self._known:
            open_ = self.open & groups[self.group] & (self.largest <= largest)
            scale = np.where(self.worldwide, 1 + penalty, 1.0)[:, None]
            seconds = np.where(open_[:, None], scale * self.seconds + price * self.bytes, np.inf)
            mix = played_mix(seconds, self.group, self.start, self.groups)
            for group, into in self.replaced.items():
                mix[group] = mix[into]
            self._known[key] = mix
        return self._known[key]


def played_mix(seconds: Floats, group: Ints, start: Ints, groups: int) -> Floats:
    """The best mix (G, J) met in a play of TURNS.

    seconds (O, J): of each option by each plane, infinite if it may not be selected. group (O,): of each option.
    start (T + 1,): options of each table.
    """
    kept, planes = _worth_playing(seconds, group, start), seconds.shape[1]
    start = np.append(0, np.cumsum(kept))[start]
    seconds, group = seconds[kept], group[kept]
    mix = best_mix = np.full((groups, planes), 1 / planes)
    mean: Floats = np.zeros((groups, planes))
    best = -np.inf
    for turn in range(TURNS if planes > 1 else 0):
        least, selected = cheapest_options(np.einsum("oj,oj->o", seconds, mix[group]), start)
        total = float(least.sum())
        if not np.isfinite(total):
            break  # a table fits nowhere
        if total > best:
            best, best_mix = total, mix
        of_groups = group[selected]
        answer = np.stack([np.bincount(of_groups, plane[selected], groups) for plane in seconds.T], axis=1)
        mean += (answer - mean) * 2 / (turn + 2)
        height = (mean - mean.max(axis=1, keepdims=True)) / (SHARPEST * max(total, np.finfo(float).tiny))
        answer = exp(np.maximum(height * (1 + SHARPER * turn / TURNS), LEAST_HEIGHT))
        mix = (1 - STEP) * mix + STEP * answer / answer.sum(axis=1, keepdims=True)
    rounded = np.where(best_mix < LEAST_SHARE, exp(LEAST_HEIGHT), best_mix)
    rounded /= rounded.sum(axis=1, keepdims=True)
    least, _ = cheapest_options(np.einsum("oj,oj->o", seconds, rounded[group]), start)
    return rounded if float(least.sum()) >= best else best_mix.copy()


def _worth_playing(seconds: Floats, group: Ints, start: Ints) -> Bools:
    """Options (O,) that some mix may prefer to the earlier option of their table and group with the least total."""
    new = np.append(True, group[1:] != group[:-1])
    new[start[:-1]] = True
    runs = np.flatnonzero(new)
    total: Floats = matmul(seconds, np.ones(len(seconds.T)))
    _, first = cheapest_options(total, np.append(runs, len(group)))
    first = np.repeat(first, np.diff(runs, append=len(group)))
    return np.logical_or.reduce([np.arange(len(group)) <= first, *(plane < plane[first] for plane in seconds.T)])
