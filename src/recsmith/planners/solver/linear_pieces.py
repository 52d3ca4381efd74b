"""The cost model as linear pieces: in each phase of the step, a group's cost on a rank is the largest of some pieces.

A linear piece is one slope for each work term; the cost of summed terms is slopes @ sums. Convex cost models consist of
such pieces (`Evaluator.planes`), and a solver of linear constraints needs nothing else.

Legend: F phases, J linear pieces of a phase, N sums, k work terms.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.costs import Evaluator
from recsmith.costs.group_loads import GroupLoads, Maximum
from recsmith.elementary import distinct

TOLERANCE = 1e-9  # relative: how exactly linear pieces must give the cost; far above rounding errors (about 1e-15)
TRIALS = 64  # random pairs of terms whose sums are compared; trade-off: more are safer, but cost more; not tuned


@dataclass(frozen=True)
class LinearPieces:
    """Slopes of each phase, seconds per term (J, k), and seconds that a group in use adds to each phase (F,)."""

    slopes: tuple[Floats, ...]
    opening: Floats

    @property
    def group_loads(self) -> GroupLoads:
        """The linear pieces as `GroupLoads`, with one maximum per phase."""
        maxima = [Maximum(phase, slopes, np.zeros(len(slopes))) for phase, slopes in enumerate(self.slopes)]
        return GroupLoads(self.opening, tuple(maxima))

    def loads(self, sums: Floats) -> Floats:
        """Seconds (F, N) of groups that hold at least one piece of a table, with summed terms (N, k)."""
        longest = [(sums @ slopes.T).max(axis=1) for slopes in self.slopes]
        return np.stack(longest) + self.opening[:, None]


def linear_pieces_of(evaluator: Evaluator, terms: Floats) -> LinearPieces | None:
    """The linear pieces of a cost model; None if the model is not the largest of them.

    terms (N, k): work terms on which the pieces are compared with the model, each alone and some in pairs.
    """
    if not evaluator.planes:
        return None
    slopes = np.stack([plane.slopes for plane in evaluator.planes], axis=1)  # (F, J, k)
    opening = np.zeros(len(slopes))
    opening[0] = min(plane.opening for plane in evaluator.planes)
    found = LinearPieces(tuple(distinct(phase, axis=0) for phase in slopes), opening)
    return found if (slopes >= 0).all() and _are_exact(found, evaluator, terms) else None


def _are_exact(linear_pieces: LinearPieces, evaluator: Evaluator, terms: Floats) -> bool:
    """Whether linear pieces give the cost of all terms (N, k) alone, and of some of them in pairs."""
    draw = np.random.default_rng(0).integers(len(terms), size=(2, TRIALS))
    sums = np.vstack([terms, terms[draw[0]] + terms[draw[1]]])
    seconds = evaluator.loads(sums)
    off = TOLERANCE * float(seconds.max(initial=0.0))
    return bool(np.allclose(linear_pieces.loads(sums), seconds, rtol=TOLERANCE, atol=off))
