"""Planes that may open below zero: lower bounds on groups whose tables together cost more than the sum of each alone.

A convex head bends upwards when its tables outgrow a cache. A plane that touches it there is below zero if the group
holds little, so its opening is negative, and a rank that holds the group may cost that much less by it. Every group
that a plan may use causes this at most once per rank, so bounds subtract it, and gain if groups hold much.

Such a head costs a group no less than its pieces alone, launches apart. So the first plane, which is the head without
bends, is replaced by the cost of each piece alone (`of_pieces`).

Legend: G fusion groups, J planes, F phases, k work terms, K nodes side by side, O options.
"""

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.bounds.linear_bounds import cheapest_options, kept_for, least_opening, option_sums, piece_work
from recsmith.bounds.plane_mixes import plane_game
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs.protocol import Evaluator, Plane
from recsmith.elementary import exp, matmul

TURNS = 100  # turns of the play; 200 gained no more than 0.2 %
SHARPEST, SHARPER = 5e-3, 10.0  # share of the total by which planes must differ to matter; how much less at the end
MOST_BENT = 8  # most planes below zero that are mixed: each costs a pass over all pieces
LEAST_SHARE = 0.01  # least share of a group's mix for a plane to be kept


class BentPlanes:
    """Planes of a cost model that branching mixes. slopes (J, F, k); opening (J,): seconds of an empty group.

    bent: whether the head bends. launch: the least that a rank pays for holding a piece of a group. flat: number of
    planes, the first ones, with an opening of at least `launch`: all planes unless the head bends.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.bent = evaluator, bool(evaluator.bends)
        order, self.launch = list(evaluator.planes), least_opening(evaluator)
        if self.bent:
            order = sorted((*evaluator.planes, *evaluator.bends), key=lambda plane: -plane.opening)
            self.launch = order[0].opening
        self.flat = sum(plane.opening >= self.launch for plane in order)
        self._set_planes(order)
        self._mixes: dict[bytes, Floats] = {}
        if self.bent:
            self._work, self._group = self._option_terms(), evaluator.group[evaluator.problem.options.mode]
            self._fits = shared_relaxation(evaluator).option_fits
            self._set_planes([order[i] for i in self._that_count()])

    def _set_planes(self, planes: list[Plane]) -> None:
        self.slopes: Floats = np.stack([plane.slopes for plane in planes])
        self.opening: Floats = np.array([plane.opening for plane in planes])

    def _option_terms(self) -> Floats:
        """Terms (O, k + 1) of options on all covered ranks; the last is the cost of pieces alone above plane 0."""
        problem = self.evaluator.problem
        terms = piece_work(self.evaluator).terms
        more = self.evaluator.loads(terms).sum(axis=0) - self.launch - matmul(terms, self.slopes[0].sum(axis=0))
        return option_sums(problem, np.column_stack([terms, more]))

    def of_pieces(self, terms: Floats, slopes: Floats, alone: Floats) -> Floats:
        """Seconds (N, J) of pieces with these terms (N, k) by planes with these slopes (J, k).

        alone (N,): seconds of each piece alone on a rank, without the launch.
        """
        seconds = np.einsum("nk,jk->nj", terms, slopes)
        if self.bent:
            seconds[:, 0] = alone
        return seconds

    def _that_count(self) -> list[int]:
        """The planes with a high opening, and those that have a share in the mix of some set of groups."""
        groups = self.evaluator.groups
        weight = np.zeros(len(self.opening))
        for some in (np.ones(groups, dtype=bool), *np.eye(groups, dtype=bool)):
            weight = np.maximum(weight, self._played(some).max(axis=0))
        bent = self.flat + np.argsort(-weight[self.flat :], kind="stable")[:MOST_BENT]
        return [*range(self.flat), *np.sort(bent[weight[bent] > LEAST_SHARE]).tolist()]

    def mix(self, groups: Bools) -> Floats:
        """The mix (G, J) under which tables cost much if plans use only these groups (G,); not to be changed."""
        if not self.bent:
            return plane_game(self.evaluator).mix(groups)
        key = groups.tobytes()
        if key not in self._mixes:
            self._mixes[key] = self._played(groups)
        return self._mixes[key]

    def _played(self, groups: Bools) -> Floats:
        """Fictitious play: tables answer a mix, and mixes answer the mean of all answers so far, ever more sharply."""
        options, first = self.evaluator.problem.options, np.eye(len(self.opening))[:, :1]
        slopes = np.hstack([self.slopes.sum(axis=1), first])  # the first plane counts the cost of pieces alone
        taken = self.evaluator.problem.cluster.world_size * np.minimum(self.opening, 0.0)
        mix = np.tile(np.eye(len(slopes))[0], (len(groups), 1))
        mean: Floats = np.zeros((len(groups), slopes.shape[1]))
        best, best_mix, open_ = -np.inf, mix, self._fits & groups[self._group]
        for turn in range(TURNS):
            seconds = np.einsum("ok,ok->o", self._work, matmul(mix, slopes)[self._group])
            least, selected = cheapest_options(np.where(open_, seconds, np.inf), options.start)
            total = float(least.sum())
            if not np.isfinite(total):
                break
            value = total + float(matmul(mix, taken)[groups].sum())
            best, best_mix = max((best, best_mix), (value, mix), key=lambda found: found[0])
            answer = np.zeros_like(mean)
            np.add.at(answer, self._group[selected], self._work[selected])
            mean += (answer - mean) * 2 / (turn + 2)
            height = matmul(mean, slopes.T) + taken
            height = (height - height.max(axis=1, keepdims=True)) / (SHARPEST * total)
            mix = exp(height * (1 + SHARPER * turn / TURNS))
            mix /= mix.sum(axis=1, keepdims=True)
        return best_mix


def most_taken(launch: float, opening: Floats, groups: Bools) -> Floats:
    """By how much (K,) mixes with these openings (K, G) may price a rank's pieces above its seconds beyond a launch.

    groups (K, G): groups of which ranks may hold pieces; a rank holds some of them, or nothing.
    """
    below: Floats = np.minimum(opening, 0.0).sum(axis=1, where=groups)
    lowest: Floats = opening.min(axis=1, initial=np.inf, where=groups)
    least: Floats = np.where(below < 0, below, lowest)
    return np.maximum(launch - least, 0.0)


def bent_planes(evaluator: Evaluator) -> BentPlanes:
    """The planes of an evaluator that branching mixes; computed once for each evaluator."""
    return kept_for(evaluator, "bent planes", lambda: BentPlanes(evaluator))
