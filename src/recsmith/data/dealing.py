"""Samples of a step dealt to ranks by their work: all ranks get equally many, and about as much to do.

A model of histories takes longer for a longer one, so that ranks which share samples by number alone wait for the one
with the long histories. The samples of a step stay the same, and so do its gradients: only who computes them changes.

n ids of a sample's history, N samples of a step
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.errors import UsageError, check_rules, outside
from recsmith.files import did_you_mean

LONGEST = 2**31


@noun
class Deal:
    """By what work samples are dealt: n + squared n^2 for a history of n ids.

    feature: whose ids are the history. squared: work of a pair of events over that of an event, as of attention; 0:
    work grows with the length alone. longest: ids of a history that count, as a model that cuts them has it; none: all.
    """

    feature: str
    squared: float = 0.0
    longest: int | None = None

    def __post_init__(self) -> None:
        check_rules(
            outside("squared, by which work grows with a history,", self.squared, 0, 10**9),
            outside("longest, of a history that counts as work,", self.longest, 1, LONGEST),
        )

    def work(self, lengths: Ints) -> Floats:
        """The work of histories of these lengths (N,)."""
        counted = (lengths if self.longest is None else np.minimum(lengths, self.longest)).astype(np.float64)
        return counted + self.squared * counted**2


def check_deal(deal: Deal, features: Sequence[str]) -> None:
    """UsageError where samples have no feature that they could be dealt by. features: of the data, by name."""
    if deal.feature not in features:
        raise UsageError(
            f"samples are dealt to ranks by feature '{deal.feature}', which the data does not have"
            f"{did_you_mean(deal.feature, list(features))}"
        )


def dealt(work: Floats, ranks: int) -> Ints:
    """The rank of each sample (N,): the heaviest first, one to each rank in turn, to whoever has least so far.

    Ranks get equally many, or one more. Of equal works the sample that stands first is dealt first, so that all ranks
    find the same. Cost: N / ranks sorts of `ranks` numbers.
    """
    heaviest = np.argsort(-work, kind="stable")
    found, loads = np.empty(len(work), np.int64), np.zeros(ranks)
    for first in range(0, len(work), ranks):
        turn = heaviest[first : first + ranks]
        takers = np.argsort(loads, kind="stable")[: len(turn)]
        found[turn] = takers
        loads[takers] += work[turn]
    return found


def busiest(work: Floats, rank_of: Ints, ranks: int) -> float:
    """The work of the busiest rank over the mean; 1 where there is none."""
    loads = np.bincount(rank_of, weights=work, minlength=ranks)
    return float(ranks * (loads.max() / loads.sum())) if loads.any() else 1.0
