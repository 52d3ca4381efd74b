"""Deals the samples of a step to ranks by their work: ranks get equally many samples, and about equal work.

Models of histories take longer for longer histories. If samples are split by number alone, all ranks wait for the one
with the longest histories. The samples of a step, and so its gradients, stay the same: only the rank that computes
each sample changes.

n ids of a sample's history, N samples of a step
"""

from collections.abc import Sequence

import numpy as np

from recsmith._types import Floats, Ints, noun
from recsmith.errors import UsageError, check_rules, outside
from recsmith.files import did_you_mean

LONGEST = 2**31  # largest allowed Deal.longest, in ids


@noun
class Deal:
    """The work by which samples are dealt to ranks: n + squared * n^2 for a history of n ids.

    feature: the feature whose ids are the history. squared: work of a pair of events, as in attention, relative to that
    of one event; 0: work is proportional to length. longest: ids of a history that count, if the model cuts longer
    histories; none: all.
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
        """The work of histories of the given lengths (N,)."""
        counted = (lengths if self.longest is None else np.minimum(lengths, self.longest)).astype(np.float64)
        return counted + self.squared * counted**2


def check_deal(deal: Deal, features: Sequence[str]) -> None:
    """Raise UsageError if the data lacks the feature that samples are dealt by. features: the data's feature names."""
    if deal.feature not in features:
        raise UsageError(
            f"samples are dealt to ranks by feature '{deal.feature}', which the data does not have"
            f"{did_you_mean(deal.feature, list(features))}"
        )


def dealt(work: Floats, ranks: int) -> Ints:
    """The rank of each sample (N,): in rounds of one sample per rank, the costliest goes to the least loaded rank.

    Samples are dealt in order of falling work; ranks' numbers of samples differ by one at most. Samples of equal work
    are dealt in their order, so that all ranks find the same result. Cost: N / ranks sorts of `ranks` numbers.
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
    """Work of the busiest rank / mean work of a rank; 1 if there is no work."""
    loads = np.bincount(rank_of, weights=work, minlength=ranks)
    return float(ranks * (loads.max() / loads.sum())) if loads.any() else 1.0
