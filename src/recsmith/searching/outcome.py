"""The outcome of an architecture search: samples of the learned choices, with their prices."""

from recsmith._types import noun
from recsmith.searching.prices import PlannedPrice
from recsmith.searching.space import Picks, SearchSpace


@noun
class Sample:
    """A sample that a search found.

    price: the sum of its choices' prices. replanned: its price by the planner. network_auc: AUC on data.test, masked in
    the one-shot network, whose weights all samples share. settings: changes to the run.
    """

    name: str
    picks: Picks
    price: float
    replanned: PlannedPrice
    network_auc: float
    settings: tuple[str, ...]


@noun
class SearchOutcome:
    """The outcome of a search. expected: expected price under its final probabilities. whole: of the unchanged run."""

    space: SearchSpace
    expected: float
    whole: PlannedPrice
    samples: tuple[Sample, ...]
