"""Where a learned cost model is asked beyond what it was trained on.

Legend: M modes, T tables.
"""

from recsmith._types import Bools
from recsmith.costs.neural.files import Card
from recsmith.problems import Problem

CLOSE = 1.0 + 1e-9  # a factor; up to it an input counts as within the range
LEAST = 1e-9  # what a most of 0 is taken for, so that factors are finite


def extrapolations(problem: Problem, covered: Bools, card: Card) -> dict[str, float]:
    """By what factor inputs exceed the most that training saw, the largest factor first; those within it are left out.

    Inputs of tables count as those of the largest piece that any covered mode may put on a rank; inputs of devices as
    what ranks hold on average, as if all of it were one fusion group.
    """
    modes, world = problem.modes, problem.cluster.world_size
    asked = {
        "device ids": float(problem.demand.ids.sum()),
        "device outputs": float((problem.demand.bags * problem.demand.dim).sum()),
        "device tables": len(problem.tables) / world,
    }
    if covered.any():
        table = modes.table[covered]
        asked |= {
            "ids": float(modes.ids[covered].max()),
            "bags": float(modes.bags[covered].max()),
            "rows": float(modes.head_rows[covered].max()),
            "columns": float(problem.demand.dim[table].max()),
        }
    known = {name: value for name, value in asked.items() if name in card.ranges}
    factors = {name: value / max(card.ranges[name].most, LEAST) for name, value in known.items()}
    beyond = [(name, factor) for name, factor in factors.items() if factor > CLOSE]
    return dict(sorted(beyond, key=lambda pair: -pair[1]))
