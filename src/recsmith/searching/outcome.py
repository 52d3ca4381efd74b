"""What a search found: samples of the choices that it learned, with their prices."""

from recsmith._types import noun
from recsmith.searching.prices import PlannedPrice
from recsmith.searching.space import Picks, SearchSpace


@noun
class Sample:
    """One that was found.

    price: the sum of its choices' prices. replanned: what the planner says. network_auc: on data.test, masked in the
    one network, whose weights it shares with all others. settings: over the run.
    """

    name: str
    picks: Picks
    price: float
    replanned: PlannedPrice
    network_auc: float
    settings: tuple[str, ...]


@noun
class SearchOutcome:
    """What a search found. expected: price of the choices' likelihoods at its end; whole: of the run as it is."""

    space: SearchSpace
    expected: float
    whole: PlannedPrice
    samples: tuple[Sample, ...]
