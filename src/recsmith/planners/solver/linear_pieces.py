"""The cost model taken apart: in each phase of the step, a group on a rank takes the longest of its faces.

Legend: F phases, J faces, N sums, k work terms.
"""

from dataclasses import dataclass

import numpy as np

from recsmith._types import Floats
from recsmith.costs import Evaluator

ROUNDING = 1e-9  # relative; how exact faces must be to count
TRIALS = 64


@dataclass(frozen=True)
class LinearPieces:
    """Slopes of each phase (J, k), and what each phase takes (F,) on top where a group has a piece."""

    slopes: tuple[Floats, ...]
    opening: Floats

    def loads(self, sums: Floats) -> Floats:
        """Seconds (F, N) of groups that hold something, with summed terms (N, k)."""
        longest = [(sums @ slopes.T).max(axis=1) for slopes in self.slopes]
        return np.stack(longest) + self.opening[:, None]


def linear_pieces_of(evaluator: Evaluator, terms: Floats) -> LinearPieces | None:
    """The faces of a cost model, tried on the terms (N, k) of its pieces; None where its planes do not add up to it."""
    if not evaluator.planes:
        return None
    slopes = np.stack([plane.slopes for plane in evaluator.planes], axis=1)  # (F, J, k)
    opening = np.zeros(len(slopes))
    opening[0] = min(plane.opening for plane in evaluator.planes)
    faces = LinearPieces(tuple(np.unique(phase, axis=0) for phase in slopes), opening)
    return faces if (slopes >= 0).all() and _are_exact(faces, evaluator, terms) else None


def _are_exact(faces: LinearPieces, evaluator: Evaluator, terms: Floats) -> bool:
    """Whether faces give what the cost model does, for pieces alone and for some of them together."""
    draw = np.random.default_rng(0).integers(len(terms), size=(2, TRIALS))
    sums = np.vstack([terms, terms[draw[0]] + terms[draw[1]]])
    seconds = evaluator.loads(sums)
    return bool(np.allclose(faces.loads(sums), seconds, rtol=ROUNDING, atol=ROUNDING * float(seconds.max(initial=0.0))))
