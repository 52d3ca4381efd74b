"""Planes that may open below zero: what lies below a group on a rank where tables together cost more than each alone.

A convex head bends upwards where its tables outgrow a cache. A plane that touches it there lies below zero where the
group holds little, so its opening is below 0, and a rank that holds the group may take that much less. Every group that
a plan may use takes it once a rank at most, so bounds subtract that, and gain where groups hold much.

Such a head costs a group no less than its pieces alone, launches apart. So the first plane, which is the head without
bends, is replaced by what each piece costs alone (`of_pieces`).

Legend: G fusion groups, J planes, F phases, k work terms, K nodes side by side, O options.
"""

import numpy as np

from recsmith._types import Bools, Floats
from recsmith.bounds.linear_bounds import cheapest_options, kept_for, least_opening, option_sums, piece_work
from recsmith.bounds.plane_mixes import plane_game
from recsmith.bounds.relaxation import shared_relaxation
from recsmith.costs.protocol import Evaluator, Plane
from recsmith.elementary import exp, matmul

TURNS = 100  # of the play; 200 gained no more than 0.2 %
SHARPEST, SHARPER = 5e-3, 10.0  # share of the total by which planes must differ to count, and how much less at the end
MOST_BENT = 8  # planes below zero that are mixed: each costs a pass over all pieces
LEAST_SHARE = 0.01  # of a group's mix that makes a plane count


class BentPlanes:
    """Planes of a cost model that branching mixes. slopes (J, F, k); opening (J,): seconds where a group holds nothing.

    bent: whether the head bends. launch: the least that a rank pays for holding a piece of a group. flat: how many
    planes, the first ones, open so high: all, but for those of a head that bends.
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
        """Terms (O, k + 1) of options on all covered ranks; the last is what pieces alone cost more than plane 0."""
        problem = self.evaluator.problem
        terms = piece_work(self.evaluator).terms
        more = self.evaluator.loads(terms).sum(axis=0) - self.launch - matmul(terms, self.slopes[0].sum(axis=0))
        return option_sums(problem, np.column_stack([terms, more]))

    def of_pieces(self, terms: Floats, slopes: Floats, alone: Floats) -> Floats:
        """Seconds (N, J) of pieces with these terms (N, k) by planes with these slopes (J, k).

        alone (N,): seconds of each alone on a rank, without the launch.
        """
        seconds = np.einsum("nk,jk->nj", terms, slopes)
        if self.bent:
            seconds[:, 0] = alone
        return seconds

    def _that_count(self) -> list[int]:
        """The planes that open high, and those that some group mixes beside others or alone."""
        groups = self.evaluator.groups
        weight = np.zeros(len(self.opening))
        for some in (np.ones(groups, dtype=bool), *np.eye(groups, dtype=bool)):
            weight = np.maximum(weight, self._played(some).max(axis=0))
        bent = self.flat + np.argsort(-weight[self.flat :], kind="stable")[:MOST_BENT]
        return [*range(self.flat), *np.sort(bent[weight[bent] > LEAST_SHARE]).tolist()]

    def mix(self, groups: Bools) -> Floats:
        """The mix (G, J) under which tables cost much where plans use only these groups (G,); not to be changed."""
        if not self.bent:
            return plane_game(self.evaluator).mix(groups)
        key = groups.tobytes()
        if key not in self._mixes:
            self._mixes[key] = self._played(groups)
        return self._mixes[key]

    def _played(self, groups: Bools) -> Floats:
        """Fictitious play: tables answer a mix, and the mix the mean of all answers so far, ever more sharply."""
        options, first = self.evaluator.problem.options, np.eye(len(self.opening))[:, :1]
        slopes = np.hstack([self.slopes.sum(axis=1), first])  # the first plane counts what pieces cost alone
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
    """By how much (K,) mixes that open so (K, G) may price a rank's pieces above its seconds beyond a launch.

    groups (K, G): those that ranks may hold pieces of; a rank holds some of them, or nothing.
    """
    below: Floats = np.minimum(opening, 0.0).sum(axis=1, where=groups)
    lowest: Floats = opening.min(axis=1, initial=np.inf, where=groups)
    least: Floats = np.where(below < 0, below, lowest)
    return np.maximum(launch - least, 0.0)


def bent_planes(evaluator: Evaluator) -> BentPlanes:
    """The planes of an evaluator that branching mixes; worked out once for each evaluator."""
    return kept_for(evaluator, "bent planes", lambda: BentPlanes(evaluator))
