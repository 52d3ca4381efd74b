"""Where a learned cost model is asked beyond what it was trained on.

Legend: M modes, T tables.
"""

from recsmith._types import Bools
from recsmith.costs.neural.files import Card
from recsmith.problems import Problem

CLOSE, LEAST = 1.0 + 1e-9, 1e-9


def extrapolations(problem: Problem, covered: Bools, card: Card) -> dict[str, float]:
    """By what factor inputs exceed the most that training saw, above 1 only; largest first.

    Of tables: the largest piece that any covered mode may put on a rank. Of devices: what ranks hold on average, if all
    of it is one fusion group.
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
